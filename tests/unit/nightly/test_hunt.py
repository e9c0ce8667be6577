"""The regression hunt on simulated version lists."""

import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.analysis.nightly.hunt import HuntError, Reading, hunt
from sweeper.core.run import RunData
from sweeper.errors import ConfigError, ServerError
from sweeper.nightly.bench import plan_again, with_baselines
from sweeper.nightly.bisect import Question, candidates, find_first_bad
from sweeper.testing.runs import model_run

VERSIONS = tuple(f"0.5.{number}" for number in range(10, 27))


class Engines:
    """From `first_bad` on the value is 4 % worse; `broken` ones do not run. Repeats have 1 % noise."""

    def __init__(self, first_bad: int, broken: frozenset[int] = frozenset(), seed: int = 1) -> None:
        self.first_bad, self.broken = first_bad, broken
        self.rng = random.Random(seed)
        self.measured: list[str] = []

    def __call__(self, version: str) -> Reading | None:
        self.measured.append(version)
        position = VERSIONS.index(version)
        if position in self.broken:
            return None
        center = 96.0 if position >= self.first_bad else 100.0
        return tuple(center * (1 + self.rng.gauss(0, 0.01)) for _ in range(12))


@given(st.integers(1, len(VERSIONS) - 1), st.integers(0, 50))
def test_the_first_bad_version_is_found_in_few_measurements(first_bad: int, seed: int) -> None:
    engines = Engines(first_bad, seed=seed)
    found = hunt(VERSIONS, engines, "output_tok_per_s")
    assert found.first_bad == VERSIONS[first_bad] and found.last_good == VERSIONS[first_bad - 1]
    assert len(set(engines.measured)) <= 2 + math.ceil(math.log2(len(VERSIONS)))


@given(st.integers(3, len(VERSIONS) - 2), st.sets(st.integers(1, len(VERSIONS) - 2), max_size=5))
def test_versions_that_do_not_run_are_passed_by_and_named(first_bad: int, broken: set[int]) -> None:
    found = hunt(VERSIONS, Engines(first_bad, frozenset(broken)), "output_tok_per_s")
    bad, good = VERSIONS.index(found.first_bad), VERSIONS.index(found.last_good)
    assert good < first_bad <= bad
    assert found.unknown == VERSIONS[good + 1 : bad]
    assert set(range(good + 1, bad)) <= broken


def test_ends_that_do_not_differ_are_refused() -> None:
    with pytest.raises(HuntError, match="not worse than"):
        hunt(VERSIONS[:5], Engines(99), "output_tok_per_s")


def test_an_end_that_does_not_run_is_refused() -> None:
    with pytest.raises(HuntError, match=r"0\.5\.26 does not run"):
        hunt(VERSIONS, Engines(3, frozenset({16})), "output_tok_per_s")


def test_of_times_more_is_worse() -> None:
    times = {"a": (10.0, 10.1), "b": (10.0, 10.2), "c": (11.0, 11.1), "d": (11.1, 11.0)}
    assert hunt(tuple(times), times.__getitem__, "verify_step_ms").first_bad == "c"


def drafts() -> RunData:
    """A plan over four drafts as a sweep axis makes it."""
    from dataclasses import replace

    run = model_run(("3-1-4",), concurrency=(1, 8))
    base, arm = run.plan.arms
    arms = tuple(
        replace(arm, arm_id=f"arm-{name}", label=f"3-1-4 {name}", axes={"speculative.draft_model_path": f"/m/{name}"})
        for name in ("v1", "v2", "v3", "v4")
    )
    old = [trial for trial in run.plan.trials if trial.arm_id == arm.arm_id]
    trials = tuple(
        replace(trial, arm_id=one.arm_id, trial_id=f"{one.arm_id}-{trial.load.concurrency}")
        for one in arms
        for trial in old
    )
    kept = tuple(trial for trial in run.plan.trials if trial.arm_id == base.arm_id)
    return replace(run, plan=replace(run.plan, arms=(base, *arms), trials=(*kept, *trials)))


SWEEP = {"speculative.draft_model_path": ["/m/v1", "/m/v2", "/m/v3", "/m/v4"]}
QUESTION = Question(
    axis="draft_revision", good="v1", bad="v4", only="concurrency=8", quantity="accept_length", repeats=6
)


def test_the_trials_between_good_and_bad_are_found_by_their_axis() -> None:
    plan = drafts().plan
    found = candidates(plan, SWEEP, QUESTION)
    assert found.versions == ("/m/v1", "/m/v2", "/m/v3", "/m/v4")
    assert found.trials["/m/v3"] == "arm-v3-8"


def test_a_question_that_names_no_single_trial_is_refused() -> None:
    from dataclasses import replace

    plan = drafts().plan
    with pytest.raises(ConfigError, match="more than one trial"):
        candidates(plan, SWEEP, replace(QUESTION, only=None))
    with pytest.raises(ConfigError, match="names no versions"):
        candidates(plan, {}, QUESTION)
    with pytest.raises(ConfigError, match="v9: is none of"):
        candidates(plan, SWEEP, replace(QUESTION, bad="v9"))


def test_a_hunt_over_drafts_measures_only_their_trials(tmp_path: Path) -> None:
    data = drafts()
    good = model_run(("3-1-4",), concurrency=(1, 8), repeats=3)
    asked: list[frozenset[str]] = []

    def again(trials: frozenset[str], repeats: int, folder: Path) -> RunData:
        from dataclasses import replace

        from sweeper.testing.model import Story

        asked.append(trials)
        (trial,) = trials
        if trial == "arm-v2-8":
            raise ServerError("no such kernel", failure_class="crash_start")
        story = Story(acceptance={"3-1-4": 0.6}) if trial in ("arm-v3-8", "arm-v4-8") else Story()
        run = model_run(("3-1-4",), concurrency=(1, 8), repeats=3, story=story)
        old = next(one for one in good.plan.trials if one.arm_id != "base00000000" and one.load.concurrency == 8)
        return replace(
            run,
            plan=replace(
                run.plan,
                trials=tuple(replace(one, trial_id=trial) for one in run.plan.trials if one.trial_id == old.trial_id),
            ),
            measurements=tuple(
                replace(one, trial_id=trial) for one in run.measurements if one.trial_id == old.trial_id
            ),
        )

    said: list[str] = []
    found = find_first_bad(data.plan, candidates(data.plan, SWEEP, QUESTION), QUESTION, again, tmp_path, said.append)
    assert found.first_bad == "/m/v3" and found.last_good == "/m/v1" and found.unknown == ("/m/v2",)
    assert all(len(trials) == 1 for trials in asked)
    assert "/m/v2: no such kernel" in said


def test_measuring_again_takes_two_starts_and_only_the_wanted_trials() -> None:
    plan = model_run(("3-1-4", "5-1-6"), concurrency=(1, 8)).plan
    chosen = frozenset({plan.trials[2].trial_id})
    again = plan_again(plan, chosen, 12)
    assert [trial.trial_id for trial in again.trials] == list(chosen)
    assert len(again.schedule) == 2 and again.repeats == 6
    assert {group.trial_ids for group in again.launch_groups} == {tuple(chosen)}
    both = plan_again(plan, with_baselines(plan, chosen), 12)
    order = [start.group_id for start in both.schedule]
    assert len(both.trials) == 2 and order == order[::-1]
