"""Whole nights on a bench of thought: the sentence, its cause, what is missing, what people said."""

from dataclasses import replace
from pathlib import Path

import pytest
from thought_nights import KNOWN, NAME, Nights, ThoughtBench, history_of

from sweeper.analysis.decompose import accept_rate
from sweeper.analysis.nightly.decide import Tonight, decide
from sweeper.analysis.nightly.record import Accepted, ArmNight, Muted
from sweeper.analysis.nightly.verdict import shared
from sweeper.core.result import Failure
from sweeper.errors import ConfigError
from sweeper.nightly.history import History
from sweeper.nightly.job import run_night
from sweeper.testing.model import Model, Story

WORSE_DRAFT = Story(acceptance={"3-1-4": 0.60})


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(History(tmp_path / "history"))


def test_two_nights_are_too_few_and_the_third_is_fine(nights: Nights) -> None:
    assert nights.night().sentence.startswith("could not tell yet: this is the first good night")
    assert "1 good night before this one" in nights.night().sentence
    third = nights.night()
    assert third.verdict.state == "fine" and third.exit_code == 0
    assert third.sentence == "fine: 18 series as on the last 2 good nights"


def test_a_worse_draft_is_named_with_its_trial_its_revision_and_the_doctors_word(nights: Nights) -> None:
    fine, wrong = ArmNight(captured_layers=(2, 30, 58)), ArmNight(captured_layers=(1, 29, 57))
    nights.quiet(6, arms={"3-1-4": fine})
    ended = nights.night(story=WORSE_DRAFT, known={**KNOWN, "draft": "d1"}, arms={"3-1-4": wrong})
    assert ended.exit_code == 1
    assert ended.sentence.startswith("regressed since 20261107-030000: accept length of 3-1-4 at concurrency")
    assert "changed with draft d0 → d1" in ended.sentence
    assert "doctor: the engine captures layers 1, 29, 57, on the last good night 2, 30, 58" in ended.sentence
    assert "speedup" in ended.sentence
    later = nights.night(story=WORSE_DRAFT, known={**KNOWN, "draft": "d1"}, arms={"3-1-4": wrong})
    assert "doctor: the engine captures layers 1, 29, 57" in later.sentence
    assert "regressed since 20261107-030000" in later.sentence
    (speedup, *_) = [one for one in ended.verdict.alarms if one.name.quantity == "speedup"]
    assert speedup.cause is not None and speedup.cause.quantity == "accept_length"


def test_only_suspicious_trials_are_measured_again(nights: Nights) -> None:
    nights.quiet(6)
    bench = ThoughtBench(seed=50, story=WORSE_DRAFT)
    ended = nights.on(bench)
    assert len(bench.asked) == 1
    assert all(one.finding.confirmed for one in ended.verdict.alarms)
    assert f"{len(bench.asked[0])} suspicious trials of 4 are measured again" in nights.said


def test_a_sweep_that_was_disturbed_raises_no_alarm(nights: Nights) -> None:
    nights.quiet(12)
    slow = Model(base_step_ms=12.4)
    ended = nights.night(model=slow, again_model=Model())
    assert ended.verdict.state == "fine"
    assert any("the sweep was disturbed" in note for note in _notes(nights))


def test_a_slower_speculative_step_is_blamed_on_the_engine(nights: Nights) -> None:
    nights.quiet(8)
    ended = nights.night(model=Model(verify_cost=0.06), known={**KNOWN, "engine": "0.5.24"})
    causes = {one.cause.quantity for one in ended.verdict.alarms if one.cause}
    assert causes == {"verify_step_ms"}
    assert "verify-step time of 3-1-4" in ended.sentence
    assert "changed with engine 0.5.23 → 0.5.24" in ended.sentence


def test_a_faster_baseline_is_no_fault_of_the_draft(nights: Nights) -> None:
    """The machine's base step falls by 8 %, and the speculative step keeps its time."""
    nights.quiet(8)
    before, after = Model(), Model(base_step_ms=11.2 * 0.92)
    cost = (1 + before.draft_cost * 3 + before.verify_cost * 3) / 0.92
    kept = replace(after, draft_cost=(cost - 1 - before.verify_cost * 3) / 3)
    ended = nights.night(model=kept)
    (speedup,) = [one for one in ended.verdict.alarms if one.name.quantity == "speedup" and one.name.load == "1"]
    assert speedup.cause is not None and speedup.cause.quantity == "baseline_step_ms"
    assert "the baseline got 8" in speedup.cause.text


def test_a_step_at_an_engine_change_says_so_and_is_not_silent(nights: Nights) -> None:
    nights.quiet(8)
    ended = nights.night(model=Model(base_step_ms=12.2), known={**KNOWN, "engine": "0.5.24"})
    assert ended.verdict.state == "regressed"
    assert all(one.changed_with[0].text == "engine 0.5.23 → 0.5.24" for one in ended.verdict.alarms)


def test_an_engine_change_without_a_step_is_a_mark_and_no_alarm(nights: Nights) -> None:
    nights.quiet(8)
    ended = nights.night(known={**KNOWN, "engine": "0.5.24"})
    assert ended.verdict.state == "fine"
    assert [mark.text for mark in ended.verdict.marks] == ["engine 0.5.23 → 0.5.24"]


def test_a_formula_that_changed_with_the_engine_is_no_regression() -> None:
    """A logged rate fell with a release that divides by one more token; lengths did not, and lengths are watched."""
    lengths, drafts = {"0.5.9": 2.8, "0.5.12": 2.8}, 4
    rates = [accept_rate(accept_length=length, num_draft_tokens=drafts) for length in lengths.values()]
    assert rates == [pytest.approx(0.6), pytest.approx(0.6)]
    past = history_of([2.8, 2.81, 2.79])
    assert decide(past, Tonight(night_id="x", first=(2.9, 2.9)), "accept_length").standing == "fine"


def test_the_chance_of_a_false_alarm_is_the_jobs_and_not_the_series(nights: Nights) -> None:
    assert shared(nights.policy, 12).alpha == nights.policy.alpha
    assert shared(nights.policy, 60).alpha == pytest.approx(nights.policy.alpha / 5)


def test_other_prompts_begin_a_new_level(nights: Nights) -> None:
    nights.quiet(8)
    ended = nights.night(story=WORSE_DRAFT, prompts="ee" * 32, known={**KNOWN, "prompts": "ee"})
    assert ended.verdict.state != "regressed" and ended.exit_code == 0
    assert "begin anew: changed with prompts aa11 → ee" in ended.verdict.new_levels[0]


def test_a_failed_trial_is_a_regression_and_its_numbers_shift_nothing(nights: Nights) -> None:
    nights.quiet(6)
    failure = Failure(failure_class="oom_capture", message="out of memory while capturing", remedy="lower it")
    ended = nights.night(story=Story(failures={"3-1-4": failure}))
    assert ended.exit_code == 1
    assert ended.verdict.failures[0] == "3-1-4 at concurrency 1: oom_capture: out of memory while capturing"
    assert ended.verdict.absent == ()
    assert nights.night().verdict.state == "fine"


def test_an_arm_that_the_doctor_stopped_is_a_regression_with_the_doctors_reason(nights: Nights) -> None:
    nights.quiet(3)
    ended = nights.night(story=Story(skips={"3-1-4": "doctor: key-prefix: 12 tensors are dropped; rename them"}))
    assert ended.exit_code == 1
    assert "doctor: key-prefix: 12 tensors are dropped" in ended.sentence


def test_a_number_that_is_gone_is_its_own_message(nights: Nights) -> None:
    nights.quiet(3)
    bench = _WithoutAcceptLength(seed=99)
    ended = nights.on(bench)
    assert ended.exit_code == 0 and ended.verdict.state == "unknown"
    assert "accept length of 3-1-4 at concurrency 1 is absent tonight" in ended.verdict.absent
    assert ended.sentence.startswith("could not tell: accept length of 3-1-4")


def test_a_night_that_cannot_run_ends_with_two_and_shifts_nothing(nights: Nights) -> None:
    nights.quiet(4)
    ended = nights.night(cannot="no GPU is free")
    assert ended.exit_code == 2 and ended.sentence == "could not run: no GPU is free"
    after = nights.night()
    assert after.verdict.state == "fine"
    assert max(one.finding.nights for one in after.verdict.judged) == 4


def test_muted_series_raise_no_alarm_until_their_day(nights: Nights) -> None:
    nights.quiet(6)
    for pattern in ("3-1-4",):
        nights.history.add(Muted(pattern=pattern, until="2026-11-08", note="new draft is coming"))
    silent = nights.night(story=WORSE_DRAFT)
    assert silent.exit_code == 0 and any("muted until 2026-11-08" in note for note in _notes(nights))
    nights.night(story=WORSE_DRAFT)
    assert nights.night(story=WORSE_DRAFT).exit_code == 1


def test_an_accepted_level_is_the_new_measure(nights: Nights) -> None:
    nights.quiet(6)
    last = nights.night(story=WORSE_DRAFT)
    nights.history.add(Accepted(after=last.verdict.night_id, since=None, pattern="", note="smaller draft on purpose"))
    nights.night(story=WORSE_DRAFT)
    assert nights.night(story=WORSE_DRAFT).verdict.state == "fine"
    assert nights.night().verdict.state == "improved"


def test_the_history_of_another_experiment_is_refused(nights: Nights) -> None:
    nights.night()
    with pytest.raises(ConfigError, match=f"history of experiment {NAME}, not of other"):
        run_night(
            lambda: ThoughtBench(seed=1), nights.history, nights.policy, experiment="other", say=nights.said.append
        )


class _WithoutAcceptLength(ThoughtBench):
    def _run(self, *args: object, **options: object):  # type: ignore[no-untyped-def]
        run = super()._run(*args, **options)  # type: ignore[arg-type]
        return replace(run, measurements=tuple(_without(one) for one in run.measurements))


def _without(one):  # type: ignore[no-untyped-def]
    spec = one.metrics.spec
    return one if spec is None else replace(one, metrics=replace(one.metrics, spec=replace(spec, accept_length=None)))


def _notes(nights: Nights) -> str:
    return [(nights.history.root / "summary.md").read_text().replace("\\", "")]  # type: ignore[return-value]
