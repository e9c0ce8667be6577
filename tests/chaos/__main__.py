"""`python -m tests.chaos --n 200 --seed 1`: a random campaign; `--each`: every fault once; `--list`: their names.

With `--journal FILE` the outcomes are kept, and the same command goes on where it stopped: a campaign of an hour can be
run in pieces (`--for-s 240`).
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .campaign import Outcome, run_fault
from .faults import every_fault
from .journal import Journal
from .tied import campaign_folder


def main() -> int:
    args = _arguments()
    faults = [fault for fault in every_fault() if args.match in fault.name]
    if args.list:
        print("\n".join(fault.name for fault in faults))
        return 0
    rng = random.Random(args.seed)
    chosen = faults if args.each else [rng.choice(faults) for _ in range(args.n)]
    seeds = [rng.randrange(2**32) for _ in chosen]
    journal = Journal(args.journal, chosen)
    before = len(journal.outcomes)
    deadline = time.monotonic() + args.for_s

    def strike(number: int, folder: Path) -> Outcome | None:
        if time.monotonic() > deadline:
            return None
        return run_fault(chosen[number], folder / str(number), seed=seeds[number], plant=args.plant)

    _strike_all(journal, strike, jobs=args.jobs)
    if len(journal.outcomes) < len(chosen):
        print(f"{len(journal.outcomes)} of {len(chosen)} faults done; the same command goes on", flush=True)
        return 0
    if before:
        print("\n".join(f"{number + 1:4d}  {row(one)}" for number, one in sorted(journal.outcomes.items())))
    print(summary(journal.ordered(), args.seed))
    print("\n" + table(journal.ordered()))
    return 0 if all(outcome.fine for outcome in journal.ordered()) else 1


def _strike_all(journal: Journal, strike: Callable[[int, Path], Outcome | None], *, jobs: int) -> None:
    """Every fault that is not done yet, until `strike` gives None because the time is up."""
    with campaign_folder() as folder, ThreadPoolExecutor(jobs) as workers:
        left = journal.left()
        for number, outcome in zip(left, workers.map(lambda number: strike(number, folder), left), strict=True):
            if outcome is not None:
                journal.add(number, outcome)
                print(f"{number + 1:4d}  {row(outcome)}", flush=True)


def row(outcome: Outcome) -> str:
    told = f"lost {outcome.lost}  leaked {len(outcome.leaked)}  foreign {outcome.foreign}"
    resumed = "resumed" if outcome.resumed else "NOT RESUMED"
    mark = "" if outcome.fine else f"  <-- {'; '.join(outcome.leaked)}"
    return f"{outcome.fault:46}  exit {outcome.exit_code!s:>4}  {told}  {resumed}  {outcome.seconds:5.1f} s{mark}"


def summary(outcomes: Sequence[Outcome], seed: int) -> str:
    return (
        f"{len(outcomes)} faults of {len({one.fault for one in outcomes})} kinds, seed {seed}: "
        f"lost {sum(one.lost for one in outcomes)}, leaked {sum(len(one.leaked) for one in outcomes)}, "
        f"foreign {sum(one.foreign for one in outcomes)}, "
        f"not resumed {sum(not one.resumed for one in outcomes)}, hung {sum(one.exit_code is None for one in outcomes)}"
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown, a line for each kind of fault."""
    kinds = {name: [one for one in outcomes if one.fault == name] for name in sorted({one.fault for one in outcomes})}
    heads = ("fault", "times", "exit codes", "lost results", "leaked processes", "foreign kills", "resumed")
    lines = [heads, tuple("---" for _ in heads)]
    for name, ones in kinds.items():
        codes = sorted({"hung" if one.exit_code is None else str(one.exit_code) for one in ones})
        lines.append((name, *_counted(ones, ", ".join(codes))))
    total = (f"**{text}**" if text else "" for text in _counted(outcomes, ""))
    lines.append((f"**all, {len(kinds)} kinds**", *total))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _counted(outcomes: Sequence[Outcome], codes: str) -> tuple[str, ...]:
    lost, leaked = sum(one.lost for one in outcomes), sum(len(one.leaked) for one in outcomes)
    foreign, resumed = sum(one.foreign for one in outcomes), sum(one.resumed for one in outcomes)
    return str(len(outcomes)), codes, str(lost), str(leaked), str(foreign), str(resumed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time, each in its own place")
    parser.add_argument("--each", action="store_true", help="every fault once, in order")
    parser.add_argument("--match", default="", help="only faults whose name holds this")
    parser.add_argument("--journal", type=Path, help="keep the outcomes here, and go on where they end")
    parser.add_argument("--for-s", type=float, default=float("inf"), help="strike nothing new after so many seconds")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--plant", choices=["plain-write", "kill-by-name", "late-ledger"])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
