"""Why an arm of a finished run accepts little: causes in the order in which they are to blame in the field."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sweeper.analysis.engagement import engaging, flat
from sweeper.core.finding import Finding
from sweeper.core.result import Failed, Measurement, Skipped, SpecMetrics
from sweeper.core.run import RunData
from sweeper.core.trial import Arm
from sweeper.doctor.examine import Diagnosis

Topic = Literal["output", "metric", "configuration", "checkpoint", "target"]
TOPICS: tuple[Topic, ...] = ("output", "metric", "configuration", "checkpoint", "target")
_WORDS: Mapping[Topic, str] = {
    "output": "prompt mode and degenerate output",
    "metric": "metric formula and engine version",
    "configuration": "configuration",
    "checkpoint": "draft checkpoint",
    "target": "target mismatch",
}
LOW_FIRST_STEP = 0.5
"""Acceptance of the first draft below which an arm counts as low; sound drafts reach it on real text."""

_OUTPUT_MARKS = ("repeated-output", "empty-output", "identical-output", "random-prompts", "simulated-acceptance")
_METRIC_MARKS = ("counters-contradict",)
_CONFIGURATION = (
    "algorithm-eagle-for-eagle3",
    "algorithm-eagle3-for-eagle",
    "algorithm-standalone-for-eagle3",
    "algorithm-standalone-for-head",
    "draft-read-as-predictor",
    "token-map-standalone",
    "heads-not-shardable",
    "capture-off",
    "layer-ids-unreached",
    "layer-ids-reordered",
    "layer-ids-off-by-one",
    "layer-ids-misplaced",
    "draft-inherits-quantization",
    "context-shorter",
    "dtype-differs",
)
_TARGET = (
    "hidden-size-differs",
    "vocabulary-size",
    "tokenizer-differs",
    "target-without-capture",
    "rope-differs",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing seen that lowers acceptance."""

    topic: Topic
    code: str
    evidence: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCauses:
    """One speculative arm of the run."""

    label: str
    accept_length: float | None
    first_step: float | None
    """Share of verify steps that accepted at least one draft."""
    low: bool
    causes: tuple[Cause, ...]
    """Most to blame first; empty and low: unexplained."""
    excluded: tuple[str, ...]
    ending: str | None = None
    """Why the arm has no numbers: skipped by the doctor, failed."""

    @property
    def sentence(self) -> str:
        if self.ending is not None:
            return self.ending
        if self.accept_length is None:
            return "no acceptance was measured"
        told = f"accept length {self.accept_length:.2f}"
        if not self.low:
            return f"{told}: fine"
        if not self.causes:
            return f"{told}: low, unexplained; next: `sweeper diagnose accuracy`, then `sweeper diagnose wiring`"
        first = self.causes[0]
        return f"{told}: {first.code}: {first.evidence} → {first.remedy}"


def explain(run: RunData, examined: Callable[[Arm], Diagnosis | None]) -> tuple[ArmCauses, ...]:
    """Every speculative arm; `examined` gives the doctor's word on an arm, None where its files are not here."""
    return tuple(_arm(run, arm, examined(arm)) for arm in run.plan.arms if arm.server.spec is not None)


def _arm(run: RunData, arm: Arm, diagnosis: Diagnosis | None) -> ArmCauses:
    measured = [item for item in run.measurements if item.arm_id == arm.arm_id]
    length, first = _pooled([item.metrics.spec for item in measured if item.metrics.spec is not None])
    low = (first is not None and first < LOW_FIRST_STEP) or any(_faulty(item) for item in measured)
    limited = tuple(_chain_limits(measured))
    seen = (*_measured_causes(measured), *_changed_ids(arm), *_doctor_causes(diagnosis))
    found = sorted(seen, key=lambda cause: TOPICS.index(cause.topic))
    blamed = {cause.topic for cause in (*limited, *found)}
    looked = [topic for topic in TOPICS if topic in ("output", "metric", "configuration") or diagnosis is not None]
    return ArmCauses(
        label=arm.label,
        accept_length=length,
        first_step=first,
        low=low or bool(limited),
        causes=(*limited, *found),
        excluded=tuple(_WORDS[topic] for topic in looked if topic not in blamed and measured),
        ending=None if measured else _ending(run, arm),
    )


def _faulty(item: Measurement) -> bool:
    spec = item.metrics.spec
    return spec is not None and (not engaging(spec) or flat(spec))


def _pooled(specs: Sequence[SpecMetrics]) -> tuple[float | None, float | None]:
    """Accept length and first-step acceptance over all measurements, from counts."""
    counted = [(s.verify_steps, s.correct_drafts) for s in specs if s.correct_drafts is not None and s.verify_steps]
    steps = sum(count for count, _ in counted)
    length = 1 + sum(correct for _, correct in counted) / steps if steps else None
    histograms = [spec.histogram for spec in specs if spec.histogram]
    total = sum(sum(histogram) for histogram in histograms)
    first = 1 - sum(histogram[0] for histogram in histograms) / total if total else None
    return length, first


def _chain_limits(measured: Sequence[Measurement]) -> Iterator[Cause]:
    """More draft tokens were asked for than the engine will ever use."""
    for difference in (d for item in measured[:1] for d in item.differences):
        if "num_draft_tokens" not in difference.key or not isinstance(difference.effective, int):
            continue
        requested = difference.requested
        yield Cause(
            topic="configuration",
            code="draft-tokens-changed",
            evidence=f"{requested} draft tokens were asked for, the engine runs {difference.effective}: accept length "
            f"cannot exceed {difference.effective}",
            remedy=f"set num_steps to {requested - 1}" if isinstance(requested, int) else "set num_steps",
        )


def _changed_ids(arm: Arm) -> Iterator[Cause]:
    """Ids of the experiment instead of the draft's own: nothing in the files can say that they are wrong."""
    ids = arm.server.spec.aux_layer_ids if arm.server.spec else None
    if ids is not None:
        evidence = f"the experiment sets the layer ids {list(ids)} in place of the draft's own"
        remedy = "drop aux_layer_ids, or see `sweeper diagnose wiring` for the ids that reproduce the training"
        yield Cause(topic="configuration", code="layer-ids-changed", evidence=evidence, remedy=remedy)


def _measured_causes(measured: Sequence[Measurement]) -> Iterator[Cause]:
    marks = {mark.code: mark for item in measured for mark in item.marks}
    for topic, codes in (("output", _OUTPUT_MARKS), ("metric", _METRIC_MARKS)):
        for code in codes:
            if code in marks:
                remedy = "look at the answers and the prompts first; this acceptance means nothing"
                yield Cause(topic=topic, code=code, evidence=marks[code].message, remedy=remedy)  # type: ignore[arg-type]
    if "flat-in-steps" in marks:
        remedy = (
            "compare with `sweeper diagnose accuracy`: a head that keeps its agreement there is wired wrongly between "
            "its steps here (norm_output, positions, the draft's context); one that loses it was trained for one step"
        )
        yield Cause(topic="checkpoint", code="flat-in-steps", evidence=marks["flat-in-steps"].message, remedy=remedy)
    stale = {name for item in measured for name in item.fingerprint.engine.stale_bytecode}
    if stale:
        evidence = f"the engine runs compiled files that are not of its source: {', '.join(sorted(stale)[:3])}"
        yield Cause(topic="metric", code="stale-bytecode", evidence=evidence, remedy="delete its __pycache__ folders")
    weaker = [s for s in (item.metrics.spec for item in measured) if s and s.accept_length_basis != "correct_drafts"]
    if weaker:
        evidence = "this engine counts no correct drafts; the length is output tokens per verify step"
        yield Cause(topic="metric", code="weaker-formula", evidence=evidence, remedy="compare only within this version")


def _doctor_causes(diagnosis: Diagnosis | None) -> Iterator[Cause]:
    for item in diagnosis.findings if diagnosis else ():
        if item.severity != "note":
            yield Cause(topic=_topic(item), code=item.code, evidence=item.evidence, remedy=item.remedy)


def _topic(item: Finding) -> Topic:
    if item.code == "simulated-acceptance":
        return "output"
    if item.code in _CONFIGURATION:
        return "configuration"
    return "target" if item.code in _TARGET else "checkpoint"


def _ending(run: RunData, arm: Arm) -> str:
    trials = {trial.trial_id for trial in run.plan.trials if trial.arm_id == arm.arm_id}
    for result in run.results:
        if result.trial_id in trials and isinstance(result, Skipped):
            return f"skipped: {result.reason}"
        if result.trial_id in trials and isinstance(result, Failed):
            failure = result.failure
            return f"failed ({failure.failure_class}): {failure.message} → {failure.remedy}"
    return "not measured yet"
