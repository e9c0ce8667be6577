"""Holds the answers of a run against its baselines' references, as soon as both are there."""

from collections.abc import Iterable, Sequence

from sweeper.analysis.lossless import judge
from sweeper.core.lossless import Reference
from sweeper.core.result import Measurement
from sweeper.core.run import RunData
from sweeper.core.sample import Sample
from sweeper.core.trial import Plan
from sweeper.errors import StoreError
from sweeper.store.reader import read_samples
from sweeper.store.writer import RunWriter


class Answers:
    """Writes one lossless.json a measurement. What cannot be read is left unjudged: it is no measurement's fault."""

    def __init__(self, plan: Plan, writer: RunWriter) -> None:
        self._writer = writer
        self._baseline_of = {arm.arm_id: arm.baseline_id for arm in plan.arms}
        self._references: dict[str, Reference] = {}
        self._measured: list[Measurement] = []

    def take_up(self, run: RunData) -> None:
        """What an earlier session left: a session may have died between a reference and the last judgement."""
        known = {(one.trial_id, one.start, one.repeat) for one in run.losslessness}
        self._references = {one.arm_id: one for one in run.references}
        self._measured = [one for one in run.measurements if one.arm_id in self._baseline_of]
        self._judge_stored(one for one in self._measured if (one.trial_id, one.start, one.repeat) not in known)

    def measured(self, one: Measurement, samples: Sequence[Sample]) -> None:
        self._measured.append(one)
        self._judge(one, samples)

    def recorded(self, reference: Reference) -> None:
        """Everything of this baseline's family is held against the new reference."""
        self._references[reference.arm_id] = reference
        self._judge_stored(one for one in self._measured if self._baseline_of[one.arm_id] == reference.arm_id)

    def _judge_stored(self, measurements: Iterable[Measurement]) -> None:
        for one in measurements:
            if self._baseline_of[one.arm_id] not in self._references:
                continue
            try:
                samples = read_samples(self._writer.path, one)
            except StoreError:
                continue
            self._judge(one, samples)

    def _judge(self, one: Measurement, samples: Sequence[Sample]) -> None:
        reference = self._references.get(self._baseline_of[one.arm_id])
        if reference is not None:
            self._writer.write_losslessness(judge(reference, samples, measurement=one))
