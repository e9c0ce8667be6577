"""How often the shipped decision is wrong: false alarms among identical arms, true gains that it finds, and how often
the fastest of identical arms is no tie with the others.

    python benchmarks/decision_power.py [--runs 2000] [--seed 1]

Prints the table of docs/statistics.md. Noise is drawn as it occurs: one value per server start, shared by the load
points of that start, and one per repeat.
"""

import argparse
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.analysis.statistics import Blocks, Cell, Decision, contrast, decide


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Noise in standard deviations of the log rate; `arms` without the baseline."""

    repeat_noise: float = 0.02
    start_noise: float = 0.005
    starts: int = 2
    repeats: int = 4
    arms: int = 4
    loads: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    false_alarms: float
    """Share of load points at which some identical arm was called different."""
    found: float
    """Share of true gains that were called better."""
    parted: float = 0.0
    """Share of load points at which the fastest of several identical arms was told apart from another one."""


SETTINGS = (
    Setting(),
    Setting(repeat_noise=0.01),
    Setting(repeat_noise=0.03),
    Setting(start_noise=0.01),
    Setting(start_noise=0.01, starts=3),
    Setting(starts=3),
    Setting(arms=10),
    Setting(starts=1),
)


def simulate_run(setting: Setting, rng: random.Random, *, gain: float) -> dict[Cell, Blocks]:
    """One run whose arm 1 is faster by `gain`; all others are the baseline under another name."""
    cells: dict[Cell, dict[tuple[int, int], float]] = {}
    for arm in range(setting.arms + 1):
        # A single pass still has the baseline first and last.
        for start in range(2 if setting.starts == 1 and arm == 0 else setting.starts):
            start_factor = 1 + rng.gauss(0, setting.start_noise)
            for load in range(setting.loads):
                cell = cells.setdefault(Cell(str(arm), str(load)), {})
                for repeat in range(setting.repeats):
                    rate = 100 * start_factor * (1 + rng.gauss(0, setting.repeat_noise))
                    cell[start, repeat] = rate * (1 + gain if arm == 1 else 1)
    return dict(cells)


def power(setting: Setting, *, runs: int, seed: int, gain: float = 0.05) -> Power:
    rng = random.Random(seed)
    baselines = {str(arm): "0" for arm in range(setting.arms + 1)}
    alarms = found = parted = 0
    for _ in range(runs):
        cells = simulate_run(setting, rng, gain=0)
        same = decide(cells, baselines)
        alarms += len({cell.load for cell, estimate in same.estimates.items() if estimate.verdict != "no difference"})
        parted += sum(leader_parted(cells, same, str(load)) for load in range(setting.loads))
        better = decide(simulate_run(setting, rng, gain=gain), baselines).estimates
        found += sum(better[Cell("1", str(load))].verdict == "better" for load in range(setting.loads))
    points = runs * setting.loads
    return Power(false_alarms=alarms / points, found=found / points, parted=parted / points)


def leader_parted(cells: Mapping[Cell, Blocks], decision: Decision, load: str) -> bool:
    """As the winner of a load point is held against the others: any two arms could have been the pair."""
    arms = [cell for cell in cells if cell.load == load and cell.arm != "0"]
    lead = max(arms, key=lambda cell: decision.estimates[cell].ratio)
    pairs = [(cells[lead], cells[cell]) for cell in arms if cell != lead]
    told = contrast(pairs, decision.noise, comparisons=len(arms) * (len(arms) - 1) // 2)
    return any(estimate.verdict != "no difference" for estimate in told)


PROMISED = Power(false_alarms=0.05, found=0.90)
"""For the default setting, the first of SETTINGS."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        "| repeat noise | start noise | starts × repeats | arms | false alarms | 5 % gain found | leader told apart |"
    )
    print("|---|---|---|---|---|---|---|")
    results = []
    for setting in SETTINGS:
        result = power(setting, runs=options.runs, seed=options.seed)
        results.append(result)
        print(
            f"| {setting.repeat_noise:.1%} | {setting.start_noise:.1%} | {setting.starts} × {setting.repeats} "
            f"| {setting.arms} | {result.false_alarms:.1%} | {result.found:.1%} | {result.parted:.1%} |"
        )
    kept = results[0].false_alarms <= PROMISED.false_alarms and results[0].found >= PROMISED.found
    print(
        f"\nPromise for the first line (≤ {PROMISED.false_alarms:.0%} false alarms, ≥ {PROMISED.found:.0%} found): "
        f"{'kept' if kept else 'BROKEN'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
