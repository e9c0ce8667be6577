"""The regression hunt on simulated version lists."""

import json
import math
import random
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.analysis.nightly.hunt import Hunt, HuntError, Reading, hunt
from sweeper.core.run import RunData
from sweeper.errors import ConfigError, ServerError, StoreError
from sweeper.nightly.bench import Interrupted, plan_again, with_baselines
from sweeper.nightly.bisect import Question, candidates, find_first_bad, identity
from sweeper.nightly.hunts import open_hunt
from sweeper.testing.model import Story
from sweeper.testing.runs import model_run

NOON = datetime(2026, 11, 3, 12, tzinfo=UTC)
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
    plan = drafts().plan
    with pytest.raises(ConfigError, match="more than one trial"):
        candidates(plan, SWEEP, replace(QUESTION, only=None))
    with pytest.raises(ConfigError, match="names no versions"):
        candidates(plan, {}, QUESTION)
    with pytest.raises(ConfigError, match="v9: is none of"):
        candidates(plan, SWEEP, replace(QUESTION, bad="v9"))


class Drafts:
    """Measures the four drafts: v2 does not run, from v3 on the accept length is lower. Dies when told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.folders: list[Path] = []
        self.said: list[str] = []
        self.die_after: int | None = None

    def again(self, trials: frozenset[str], repeats: int, folder: Path) -> RunData:
        if self.die_after is not None and len(self.asked) >= self.die_after:
            raise Interrupted
        (trial,) = trials
        self.asked.append(trial)
        self.folders.append(folder)
        if trial == "arm-v2-8":
            raise ServerError("no such kernel", failure_class="crash_start")
        story = Story(acceptance={"3-1-4": 0.6}) if trial in ("arm-v3-8", "arm-v4-8") else Story()
        run = model_run(("3-1-4",), concurrency=(1, 8), repeats=3, story=story)
        old = next(one.trial_id for one in run.plan.trials if "base" not in one.arm_id and one.load.concurrency == 8)
        trials_ = tuple(replace(one, trial_id=trial) for one in run.plan.trials if one.trial_id == old)
        measured = tuple(replace(one, trial_id=trial) for one in run.measurements if one.trial_id == old)
        return replace(run, plan=replace(run.plan, trials=trials_), measurements=measured)

    def hunt(
        self, out: Path, *, question: Question = QUESTION, now: datetime = NOON, fresh: bool = False, **known: str
    ) -> Hunt:
        plan = drafts().plan
        found = candidates(plan, SWEEP, question)
        folder = open_hunt(out, identity(plan, found, question, known), fresh=fresh, now=lambda: now)
        try:
            return find_first_bad(plan, found, question, self.again, folder, self.said.append)
        finally:
            folder.close()


def test_a_hunt_over_drafts_measures_only_their_trials(tmp_path: Path) -> None:
    bench = Drafts()
    found = bench.hunt(tmp_path)
    assert found.first_bad == "/m/v3" and found.last_good == "/m/v1" and found.unknown == ("/m/v2",)
    assert bench.asked == ["arm-v1-8", "arm-v4-8", "arm-v2-8", "arm-v3-8"]
    assert "/m/v2: no such kernel" in bench.said


@pytest.mark.parametrize("measured", range(5))
def test_a_hunt_that_was_cut_goes_on_wherever_it_stood(tmp_path: Path, measured: int) -> None:
    whole = Drafts().hunt(tmp_path / "whole")
    bench = Drafts()
    bench.die_after = measured
    with suppress(Interrupted):
        bench.hunt(tmp_path / "cut")
    bench.die_after = None
    assert bench.hunt(tmp_path / "cut", now=NOON + timedelta(hours=3)) == whole
    assert bench.asked == ["arm-v1-8", "arm-v4-8", "arm-v2-8", "arm-v3-8"]
    assert len(set(bench.folders)) == 4 and len({folder.parent for folder in bench.folders}) == 1


def test_what_was_measured_is_on_disk_before_the_next_version_starts(tmp_path: Path) -> None:
    """A process that is killed while it measures the third version writes nothing more."""
    kept: list[int] = []

    class Killed(Drafts):
        def again(self, trials: frozenset[str], repeats: int, folder: Path) -> RunData:
            kept.append(len(json.loads((folder.parent / "hunt.json").read_text())["probes"]))
            return super().again(trials, repeats, folder)

    Killed().hunt(tmp_path)
    assert kept == [0, 1, 2, 3]


def test_the_version_that_was_being_measured_goes_on_in_its_own_folder(tmp_path: Path) -> None:
    folders: list[Path] = []

    class Cut(Drafts):
        def again(self, trials: frozenset[str], repeats: int, folder: Path) -> RunData:
            folders.append(folder)
            return super().again(trials, repeats, folder)

    bench = Cut()
    bench.die_after = 1
    with pytest.raises(Interrupted):
        bench.hunt(tmp_path)
    bench.die_after = None
    bench.hunt(tmp_path)
    assert folders[1] == folders[2] and folders[1].name == "03-0"


def test_another_question_another_draft_another_day_or_fresh_is_another_hunt(tmp_path: Path) -> None:
    bench = Drafts()
    bench.hunt(tmp_path, engine="0.5.23")
    bench.hunt(tmp_path, engine="0.5.23")
    assert len(bench.asked) == 4
    bench.hunt(tmp_path, engine="0.5.23", fresh=True)
    bench.hunt(tmp_path, engine="0.5.23", now=NOON + timedelta(hours=21))
    bench.hunt(tmp_path, engine="0.5.22")
    bench.hunt(tmp_path, engine="0.5.23", question=replace(QUESTION, repeats=8))
    assert len(bench.asked) == 20
    assert len(list(tmp_path.glob("*/hunt.json"))) == 5


def test_two_processes_never_write_one_hunt(tmp_path: Path) -> None:
    held = open_hunt(tmp_path, {"a": "b"}, fresh=False, now=lambda: NOON)
    with pytest.raises(StoreError, match="is writing"):
        open_hunt(tmp_path, {"a": "b"}, fresh=False, now=lambda: NOON)
    held.close()
    open_hunt(tmp_path, {"a": "b"}, fresh=False, now=lambda: NOON).close()


def test_a_damaged_hunt_is_left_alone_and_a_new_one_begun(tmp_path: Path) -> None:
    bench = Drafts()
    bench.hunt(tmp_path)
    [file] = tmp_path.glob("*/hunt.json")
    file.write_text("{")
    bench.hunt(tmp_path)
    assert len(bench.asked) == 8 and file.read_text() == "{"


def test_no_secret_of_a_version_is_shown_or_kept(tmp_path: Path) -> None:
    secret = "hf_" + "a" * 30
    plan = drafts().plan
    axis = {"/m/v1": f"/m/v1?token={secret}", "/m/v4": f"/m/v4 {secret}"}
    arms = tuple(
        replace(arm, axes={key: axis.get(value, value) for key, value in arm.axes.items()}) for arm in plan.arms
    )
    sweep = {key: [axis.get(value, value) for value in values] for key, values in SWEEP.items()}
    found = candidates(replace(plan, arms=arms), sweep, QUESTION)
    assert secret not in " ".join([*found.versions, *found.trials, *identity(plan, found, QUESTION, {}).values()])
    assert len(found.versions) == 4


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
