"""A run read whole and compared, without what no page needs any more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweeper.analysis.compare import Comparison, compare
from sweeper.analysis.figures import FIGURES, Drawn, Material
from sweeper.analysis.golden import GoldenCurve, matching_curves
from sweeper.analysis.outcome import Outcome
from sweeper.analysis.points import load_words
from sweeper.analysis.statistics import geometric_mean
from sweeper.analysis.verdict import explain, ratio_words
from sweeper.core.result import Measurement
from sweeper.core.run import RunData
from sweeper.core.trial import Arm, Trial
from sweeper.present.assets import golden
from sweeper.present.dashboard.filters import Filter
from sweeper.present.dashboard.journal import RunNow
from sweeper.present.document import STANDING_MARK, Document, Row, document, trial_row
from sweeper.present.numbers import ABSENT, fixed, milliseconds, rate
from sweeper.store.reader import read_run

MOST_EXPLANATIONS = 12
NEVER = (ABSENT, ABSENT, ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What pages and figures of one run are made from."""

    run: RunData
    """Its measurements without their distributions: of 10,000 trials they alone would be half a gigabyte."""
    comparison: Comparison
    document: Document
    """Without tables, which are made for what is in view."""
    curves: tuple[GoldenCurve, ...]
    categories: tuple[str, ...]
    read_at: datetime

    @property
    def decided(self) -> bool:
        """Whether anything could be compared yet."""
        return any(entry.estimate for entry in self.comparison.outcomes)

    def outcomes(self, chosen: Filter) -> list[Outcome]:
        """In the order asked for; what has no number comes last."""
        taken = [entry for entry in self.comparison.outcomes if _takes(chosen, entry)]
        return taken if chosen.sort == "plan" else sorted(taken, key=lambda entry: _sort_key(entry, chosen))

    def figure(self, name: str, chosen: Filter) -> Drawn | None:
        """One of the report's figures over what is in view."""
        taken = [entry for entry in self.comparison.outcomes if _takes(chosen, entry)]
        if chosen.category:
            taken = [_only_category(entry, chosen.category) for entry in taken]
        kept = {entry.trial.trial_id for entry in taken}
        run = replace(self.run, measurements=tuple(one for one in self.run.measurements if one.trial_id in kept))
        return FIGURES[name](Material.of(run, replace(self.comparison, outcomes=tuple(taken)), golden=self.curves))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One trial of the table."""

    trial_id: str
    load: str
    row: Row
    category_speedup: str = ""
    category_ms: str = ""


def read_whole(run_dir: Path) -> Reading:
    """Raises StoreError when the folder's plan cannot be read."""
    run = read_run(run_dir)
    comparison = compare(run)
    said = document(run, comparison)
    categories = sorted({name for one in run.measurements for name in one.metrics.by_category})
    return Reading(
        run=replace(run, measurements=_slim(run.measurements)),
        comparison=comparison,
        document=replace(said, tables=(), explanations=said.explanations[:MOST_EXPLANATIONS]),
        curves=matching_curves(run, golden()).curves,
        categories=tuple(categories),
        read_at=datetime.now(UTC),
    )


def _slim(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """One server start resolves its arguments once; every measurement on disk repeats them."""
    raws: dict[tuple[str, int], Mapping[str, Any]] = {}
    slim = []
    for one in measurements:
        raw = raws.setdefault((one.group_id, one.start), one.effective.raw)
        metrics = replace(
            one.metrics,
            by_category={},
            ttft_ms=None,
            tpot_ms=None,
            itl_ms=None,
            chunk_gap_ms=None,
            e2e_ms=None,
            input_len=None,
            output_len=None,
        )
        slim.append(replace(one, metrics=metrics, effective=replace(one.effective, raw=raw)))
    return tuple(slim)


def _takes(chosen: Filter, entry: Outcome) -> bool:
    return (
        chosen.takes_arm(entry.arm)
        and chosen.takes_load(entry.trial)
        and (not chosen.state or chosen.state in (entry.state, entry.standing))
    )


def _only_category(entry: Outcome, name: str) -> Outcome:
    return replace(entry, categories={key: value for key, value in entry.categories.items() if key == name})


def _sort_key(entry: Outcome, chosen: Filter) -> tuple[bool, float]:
    numbers = entry.numbers
    value: float | None = None
    if numbers and chosen.sort == "tok":
        value = -numbers.output_tok_per_s
    elif numbers and chosen.sort == "ttft":
        value = numbers.ttft.p50_ms
    elif numbers and numbers.spec and numbers.spec.accept_length and chosen.sort == "accept":
        value = -numbers.spec.accept_length
    elif chosen.sort == "speedup":
        estimate = entry.categories.get(chosen.category) if chosen.category else entry.estimate
        value = -estimate.ratio if estimate else None
    return (value is None, value or 0.0)


def line_of(entry: Outcome, chosen: Filter) -> Line:
    speedup, ms = "", ""
    if chosen.category:
        estimate = entry.categories.get(chosen.category)
        speedup = ratio_words(estimate) if estimate else ("1" if entry.standing == "baseline" else ABSENT)
        ms = milliseconds(entry.numbers.category_decode_ms.get(chosen.category) if entry.numbers else None)
    return Line(
        trial_id=entry.trial.trial_id,
        load=load_words(entry.trial.load),
        row=trial_row(entry),
        category_speedup=speedup,
        category_ms=ms,
    )


def why(entry: Outcome) -> str:
    """Why it is faster or slower, as a sentence; empty when nothing can be said."""
    said = explain(entry)
    return f"{said[:1].upper()}{said[1:]}." if said else ""


def journal_trials(now: RunNow, chosen: Filter) -> list[tuple[Trial, Arm]]:
    """What is in view while the measurements are still being read."""
    arms = {arm.arm_id: arm for arm in now.plan.arms if chosen.takes_arm(arm)}
    trials = [trial for trial in now.plan.trials if trial.arm_id in arms and chosen.takes_load(trial)]
    return [(trial, arms[trial.arm_id]) for trial in trials]


def journal_line(now: RunNow, trial: Trial, arm: Arm) -> Line:
    """A trial as the journal tells it: means, no verdict yet."""
    windows = now.windows.get(trial.trial_id, {}).values()
    rates = [window.tok_per_s for window in windows if window.tok_per_s]
    lengths = [window.accept_length for window in windows if window.accept_length]
    spec = arm.server.spec
    row = Row(
        label=arm.label,
        requested="no speculation" if spec is None else spec.triple or spec.algorithm,
        effective=ABSENT,
        rewritten=False,
        captured=ABSENT,
        standing=now.ended.get(trial.trial_id, "pending"),
        mark=STANDING_MARK["not compared"],
        speedup=ABSENT,
        tok_per_s=rate(geometric_mean(rates) if rates else None),
        per_user=ABSENT,
        ttft=NEVER,
        tpot=NEVER,
        accept_length=fixed(sum(lengths) / len(lengths) if lengths else None),
        accept_rate=ABSENT,
        step_ms=ABSENT,
        break_even=ABSENT,
        delivered=ABSENT,
        remark="",
    )
    return Line(trial_id=trial.trial_id, load=load_words(trial.load), row=row)
