"""Every configuration on one line of a terminal: its speedup from load to load, and how far its drafts get."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from sweeper.analysis.compare import Comparison
from sweeper.analysis.outcome import Outcome
from sweeper.core.trial import Arm
from sweeper.present.glyphs import spark
from sweeper.present.numbers import ABSENT

MOST_ROWS = 20
MOST_CELLS = 16
"""Loads and positions that a line has room for."""


def overview(comparison: Comparison) -> Table | None:
    """Fastest first, MOST_ROWS at most; None when there are less than two configurations or loads to look over."""
    arms = {entry.arm.arm_id: entry.arm for entry in comparison.outcomes if entry.estimate}
    lines = sorted((_line(comparison, arm) for arm in arms.values()), key=_best, reverse=True)
    if len(lines) * len(comparison.loads) < 2:
        return None
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", max_width=34, overflow="fold")
    table.add_column("over load", no_wrap=True)
    table.add_column("speedup, first → last", no_wrap=True)
    table.add_column("accepted", no_wrap=True)
    table.add_column("draft 1 → last", no_wrap=True)
    top = max(map(_best, lines))
    for line in lines[:MOST_ROWS]:
        ratios = [entry.estimate.ratio if entry and entry.estimate else None for entry in line]
        table.add_row(
            Text(next(entry.arm.label for entry in line if entry)),
            Text(spark(ratios[:MOST_CELLS], top), style="cyan"),
            Text(_range(ratios)),
            *_acceptance(line),
        )
    return table


def _line(comparison: Comparison, arm: Arm) -> list[Outcome | None]:
    return [comparison.outcome(arm.arm_id, load) for load in comparison.loads]


def _best(line: Sequence[Outcome | None]) -> float:
    return max(entry.estimate.ratio for entry in line if entry and entry.estimate)


def _range(ratios: Sequence[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    ends = [known[0], known[-1]] if len(known) > 1 else known
    return " → ".join(f"{ratio:.2f}×" for ratio in ends)


def _acceptance(line: Sequence[Outcome | None]) -> tuple[Text, str]:
    """Of the lowest load: the share of verify steps in which the first draft was accepted, the first two, …"""
    found = (entry.numbers.spec.joint for entry in line if entry and entry.numbers and entry.numbers.spec)
    joint = next((shares for shares in found if shares and len(shares) > 1), None)
    if joint is None:
        return Text(), ABSENT
    words = f"{joint[1]:.0%}" + (f" → {joint[-1]:.0%}" if len(joint) > 2 else "")
    return Text(spark(joint[1 : MOST_CELLS + 1], 1.0), style="cyan"), words
