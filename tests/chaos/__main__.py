"""`python -m tests.chaos --n 200 --seed 1`: a random campaign; `--each`: every fault once; `--list`: their names."""

import argparse
import random
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .campaign import Outcome, run_fault
from .faults import every_fault


def main() -> int:
    args = _arguments()
    faults = [fault for fault in every_fault() if args.match in fault.name]
    if args.list:
        print("\n".join(fault.name for fault in faults))
        return 0
    rng = random.Random(args.seed)
    chosen = faults if args.each else [rng.choice(faults) for _ in range(args.n)]
    seeds = [rng.randrange(2**32) for _ in chosen]
    outcomes: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory(prefix="sweeper-chaos-", ignore_cleanup_errors=True) as folder,
        ThreadPoolExecutor(args.jobs) as workers,
    ):
        places = [Path(folder) / str(number) for number in range(len(chosen))]
        struck = workers.map(
            lambda fault, place, seed: run_fault(fault, place, seed=seed, plant=args.plant), chosen, places, seeds
        )
        for number, outcome in enumerate(struck, start=1):
            outcomes.append(outcome)
            print(f"{number:4d}  {row(outcome)}", flush=True)
    print(summary(outcomes, args.seed))
    return 0 if all(outcome.fine for outcome in outcomes) else 1


def row(outcome: Outcome) -> str:
    told = f"lost {outcome.lost}  leaked {len(outcome.leaked)}  foreign {outcome.foreign}"
    resumed = "resumed" if outcome.resumed else "NOT RESUMED"
    mark = "" if outcome.fine else f"  <-- {'; '.join(outcome.leaked)}"
    return f"{outcome.fault:46}  exit {outcome.exit_code!s:>4}  {told}  {resumed}  {outcome.seconds:5.1f} s{mark}"


def summary(outcomes: list[Outcome], seed: int) -> str:
    return (
        f"{len(outcomes)} faults of {len({one.fault for one in outcomes})} kinds, seed {seed}: "
        f"lost {sum(one.lost for one in outcomes)}, leaked {sum(len(one.leaked) for one in outcomes)}, "
        f"foreign {sum(one.foreign for one in outcomes)}, "
        f"not resumed {sum(not one.resumed for one in outcomes)}, hung {sum(one.exit_code is None for one in outcomes)}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time, each in its own place")
    parser.add_argument("--each", action="store_true", help="every fault once, in order")
    parser.add_argument("--match", default="", help="only faults whose name holds this")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--plant", choices=["plain-write", "kill-by-name", "late-ledger"])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
