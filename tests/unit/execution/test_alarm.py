"""Speculation that does not engage is told while the load still runs."""

from pathlib import Path

import pytest
from test_controller import execute, script

from sweeper.core.events import Event, Measured, Notice
from sweeper.core.experiment import Workload
from sweeper.core.sample import Prompt, PromptSet, SpecCounters
from sweeper.core.trial import LoadPoint
from sweeper.execution.alarm import Alarm
from sweeper.execution.loadgen import LoadTarget, drive
from sweeper.present.dashboard.journal import run_now
from sweeper.store.reader import read_run
from sweeper.testing.launcher import FakeLauncher, Script
from sweeper.testing.plans import small_plan
from sweeper.testing.server import running

IDLE, FLAT, SOUND, WEAK = (97, 3, 0, 0), (40, 58, 2, 0), (20, 20, 20, 40), (65, 25, 8, 2)


def answer(*histogram: int) -> SpecCounters:
    correct = sum(count * drafts for drafts, count in enumerate(histogram))
    return SpecCounters(verify_steps=sum(histogram), correct_drafts=correct, proposed_drafts=None, histogram=histogram)


def heard(*answers: SpecCounters | None) -> tuple[list[str], int]:
    """What was told, and how many answers were listened to."""
    told: list[str] = []
    alarm = Alarm(told.append, positions=3)
    return told, next((n for n, one in enumerate(answers, start=1) if not alarm(one)), len(answers))


@pytest.mark.parametrize(
    ("histogram", "words"),
    [(IDLE, "speculation is not engaging: accept length 1.03"), (FLAT, "more steps bring nothing")],
    ids=["idle", "flat"],
)
def test_a_fault_is_told_once_after_a_few_answers(histogram: tuple[int, ...], words: str) -> None:
    told, count = heard(*[answer(*histogram)] * 20)
    assert count == 4
    assert len(told) == 1 and words in told[0] and "after 4 answers" in told[0]


@pytest.mark.parametrize("histogram", [SOUND, WEAK], ids=["sound", "weak"])
def test_a_sound_or_weak_draft_is_no_alarm_and_is_listened_to_only_briefly(histogram: tuple[int, ...]) -> None:
    told, count = heard(*[answer(*histogram)] * 20)
    assert told == [] and count == 4


def test_a_few_odd_steps_are_no_alarm() -> None:
    assert heard(*[answer(10, 0, 0, 0)] * 4)[0] == []


def test_an_engine_without_counters_is_not_listened_to() -> None:
    assert heard(None, answer(*IDLE)) == ([], 1)


async def test_the_journal_the_display_and_the_dashboard_have_the_alarm_before_the_measurement(tmp_path: Path) -> None:
    plan = small_plan(("baseline", "3-1-4"), starts=1, repeats=2, concurrency=(1,))
    done = await execute(tmp_path, plan, FakeLauncher(script(**{"3-1-4/0": Script(accepted=IDLE)})))
    alarms = [place for place, event in enumerate(done.events) if _is_alarm(event)]
    measured = [place for place, event in enumerate(done.events) if isinstance(event, Measured)]
    arm = [place for place in measured if done.events[place].measurement.arm_id == plan.arms[1].arm_id]  # type: ignore[union-attr]
    assert len(alarms) == 1, "once a server start"
    assert alarms[0] < min(arm)
    kinds = [str(event["kind"]) for event in read_run(done.run.path).events]
    assert "notice" in kinds
    assert any("3-1-4 at concurrency 1: speculation is not engaging" in n for n in run_now(done.run.path, plan).notices)


async def test_an_arm_whose_drafts_are_accepted_raises_nothing(tmp_path: Path) -> None:
    plan = small_plan(("baseline", "3-1-4"), starts=1, repeats=1, concurrency=(1,))
    done = await execute(tmp_path, plan, FakeLauncher(script(**{"3-1-4/0": Script(accepted=SOUND)})))
    assert not any(_is_alarm(event) for event in done.events)


def _is_alarm(event: Event) -> bool:
    return isinstance(event, Notice) and event.level == "warning" and "not engaging" in event.message


@pytest.mark.parametrize("endpoint", ["generate", "completions", "chat"])
async def test_the_load_generator_lets_the_alarm_hear_each_answer_as_it_ends(endpoint: str) -> None:
    made = tuple(Prompt(prompt_id=f"p{i}", category="c", text=f"prompt number {i}") for i in range(12))
    heard: list[SpecCounters | None] = []

    def listen(counters: SpecCounters | None) -> bool:
        heard.append(counters)
        return len(heard) < 6

    fast = ("--step-ms", "1", "--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3")
    with running(*fast) as url:
        outcome = await drive(
            LoadTarget(base_url=url, model="m"),
            PromptSet(prompts=made, source="test", sha256="0", template="none"),
            Workload.model_validate({"max_tokens": 24, "endpoint": endpoint}),
            LoadPoint(concurrency=2),
            listen=listen,
        )
    assert len(heard) == 6, "it said it had enough"
    counters = [sample.spec for sample in outcome.samples]
    assert all(one is not None and one in counters for one in heard)
