"""The most likely cause of a low accept length, arm by arm."""

from dataclasses import replace

import pytest

from sweeper.analysis.engagement import engagement_mark, engaging
from sweeper.core.finding import Finding
from sweeper.core.launch import Difference
from sweeper.core.result import Failure, Mark, Measurement, SpecMetrics
from sweeper.core.run import RunData
from sweeper.core.trial import Arm
from sweeper.doctor.causes import ArmCauses, explain
from sweeper.doctor.examine import Diagnosis
from sweeper.testing.runs import Story, model_run

CLEAN = Diagnosis(findings=(), captured_layers=None, excluded=())


def diagnosis(*codes: str) -> Diagnosis:
    findings = tuple(Finding(code=code, severity="error", evidence=f"saw {code}", remedy="mend it") for code in codes)
    return Diagnosis(findings=findings, captured_layers=None, excluded=())


def one(run: RunData, said: Diagnosis | None = CLEAN, label: str = "3-1-4") -> ArmCauses:
    (found,) = [item for item in explain(run, lambda arm: said) if item.label == label]
    return found


def low_run() -> RunData:
    return model_run(["3-1-4"], concurrency=[4], story=Story(acceptance={"3-1-4": 0.05}))


def test_a_sound_arm_is_fine_and_the_baseline_is_not_asked() -> None:
    run = model_run(["3-1-4"], concurrency=[4])
    found = one(run)
    assert not found.low
    assert found.sentence.endswith(": fine")
    assert len(explain(run, lambda arm: CLEAN)) == 1


def test_a_low_arm_without_a_cause_says_what_was_excluded_and_what_to_do_next() -> None:
    found = one(low_run())
    assert found.low
    assert "unexplained; next: `sweeper diagnose accuracy`" in found.sentence
    assert len(found.excluded) == 5


def test_without_the_draft_files_the_checkpoint_is_not_called_excluded() -> None:
    assert found_topics(one(low_run(), None)) == ["prompt", "metric", "configuration"]


def found_topics(arm: ArmCauses) -> list[str]:
    return [text.split()[0] for text in arm.excluded]


def test_causes_come_in_the_order_of_blame() -> None:
    run = low_run()
    mark = Mark(code="repeated-output", message="9 of 10 answers end in a loop", ranked=False)
    looped = replace(run, measurements=tuple(replace(item, marks=(mark,)) for item in run.measurements))
    found = one(looped, diagnosis("hidden-size-differs", "d2t-absolute-ids", "algorithm-eagle-for-eagle3"))
    assert [cause.topic for cause in found.causes] == ["output", "configuration", "checkpoint", "target"]
    assert "9 of 10 answers end in a loop" in found.sentence


def test_the_wrong_algorithm_is_named_from_the_draft() -> None:
    found = one(low_run(), diagnosis("algorithm-eagle-for-eagle3"))
    assert "algorithm-eagle-for-eagle3: saw algorithm-eagle-for-eagle3 → mend it" in found.sentence


def test_fewer_draft_tokens_than_asked_for_bound_the_length() -> None:
    run = model_run(["1-1-2"], concurrency=[4])
    change = Difference(key="speculative_num_draft_tokens", requested=16, effective=2, explained="topk 1")
    changed = replace(run, measurements=tuple(replace(item, differences=(change,)) for item in run.measurements))
    found = one(changed, label="1-1-2")
    assert found.low
    assert "cannot exceed 2 → set num_steps to 15" in found.sentence
    assert "configuration" not in found_topics(found)


def test_layer_ids_of_the_experiment_are_blamed_only_when_the_arm_is_low() -> None:
    run = low_run()
    arms = tuple(
        replace(arm, server=replace(arm.server, spec=replace(arm.server.spec, aux_layer_ids=(-1, 0, 1))))
        if arm.server.spec
        else arm
        for arm in run.plan.arms
    )
    found = one(replace(run, plan=replace(run.plan, arms=arms)))
    assert "layer-ids-changed: the experiment sets the layer ids [-1, 0, 1]" in found.sentence
    sound = model_run(["3-1-4"], concurrency=[4])
    assert one(replace(sound, plan=replace(sound.plan, arms=arms))).sentence.endswith(": fine")


def test_an_arm_without_numbers_tells_its_ending() -> None:
    skipped = model_run(["3-1-4"], concurrency=[4], story=Story(skips={"3-1-4": "doctor: weights-dropped: …"}))
    assert one(skipped).sentence == "skipped: doctor: weights-dropped: …"
    failure = Failure(failure_class="draft_mismatch", message="shapes differ", remedy="see doctor")
    failed = model_run(["3-1-4"], concurrency=[4], story=Story(failures={"3-1-4": failure}))
    assert one(failed).sentence == "failed (draft_mismatch): shapes differ → see doctor"


def spec(correct: int, steps: int = 1000) -> SpecMetrics:
    run = model_run(["3-1-4"], concurrency=[4])
    measured = next(item.metrics.spec for item in run.measurements if item.metrics.spec is not None)
    joint = (1.0, correct / steps, 0.0)
    return replace(measured, verify_steps=steps, correct_drafts=correct, accept_length=1 + correct / steps, joint=joint)


@pytest.mark.parametrize(
    ("correct", "steps", "engages"), [(20, 1000, False), (190, 1000, False), (300, 1000, True), (0, 20, True)]
)
def test_refusing_nearly_every_draft_is_an_alarm_once_there_are_enough_steps(
    correct: int, steps: int, engages: bool
) -> None:
    assert engaging(spec(correct, steps)) is engages


def test_the_alarm_is_a_mark_that_names_the_next_command() -> None:
    metrics = next(item.metrics for item in low_run().measurements if item.metrics.spec is not None)
    mark = engagement_mark(replace(metrics, spec=spec(10)))
    assert mark is not None
    assert "not engaging" in mark.message and "sweeper diagnose run" in mark.message
    assert engagement_mark(replace(metrics, spec=None)) is None


def test_a_drafter_that_fails_after_its_first_step_is_low_however_good_its_first_is() -> None:
    run = model_run(["3-1-4"], concurrency=[4])
    broken = replace(spec(700), histogram=(300, 680, 20, 0), joint=(1.0, 0.7, 0.02, 0.0))

    def measured(item: Measurement) -> Measurement:
        metrics = replace(item.metrics, spec=broken)
        mark = engagement_mark(metrics)
        return replace(item, metrics=metrics, marks=(mark,) if mark else ())

    spoilt = replace(run, measurements=tuple(measured(i) if i.metrics.spec else i for i in run.measurements))
    found = one(spoilt)
    assert found.low and [cause.code for cause in found.causes] == ["flat-in-steps"]
    assert "first draft is accepted in 70% of the steps, the second in 3% of those" in found.sentence


def test_each_arm_is_examined_by_its_own_files() -> None:
    asked: list[str] = []

    def look(arm: Arm) -> Diagnosis | None:
        asked.append(arm.label)
        return None

    explain(model_run(["3-1-4", "5-1-6"], concurrency=[4]), look)
    assert sorted(asked) == ["3-1-4", "5-1-6"]
