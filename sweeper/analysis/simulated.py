"""Runs whose acceptance is invented (SGLANG_SIMULATE_ACC_LEN): figures are shown and badged, nothing ranks."""

from dataclasses import replace

from sweeper.analysis.outcome import Outcome
from sweeper.analysis.quality import SIMULATED, pretends
from sweeper.core.result import Mark, Measurement
from sweeper.core.run import RunData

BADGE = "simulated acceptance"
_FOLLOWS = ("repeated-output", "identical-output")
"""What pretending does to the output, which means nothing anyway; other reasons against a measurement stay."""


def is_simulated(run: RunData) -> bool:
    """Every measurement was made on a server that pretends; the baselines are its servers too."""
    return bool(run.measurements) and all(map(pretends, run.measurements))


def countable(run: RunData) -> RunData:
    """The run with all measurements that its figures may be made of; no simulated one ranks."""
    return shown(run) if is_simulated(run) else run


def shown(run: RunData) -> RunData:
    """The same run, with its pretended measurements counted: for step times, latencies and rates."""
    return replace(run, measurements=tuple(_shown(entry) for entry in run.measurements))


def _shown(entry: Measurement) -> Measurement:
    marks = tuple(_soft(mark) for mark in entry.marks if mark.code not in _FOLLOWS)
    return replace(entry, marks=marks)


def _soft(mark: Mark) -> Mark:
    return replace(mark, ranked=True) if mark.code == SIMULATED else mark


def badged(outcome: Outcome) -> Outcome:
    """Its numbers without any claim. The break-even length stays: it is made of step times alone."""
    return replace(
        outcome,
        standing="not compared",
        reason="; ".join(filter(None, [BADGE, outcome.reason])),
        estimate=None,
        categories={},
        category_mean=None,
        lossless=None,
    )
