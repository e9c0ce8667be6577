"""A run that holds its greedy answers against the baseline's: scripted servers, then the fake server over HTTP."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from test_controller import PROMPTS, WORKLOAD, Collected, tools

from sweeper.analysis.compare import compare
from sweeper.analysis.lossless import judge
from sweeper.core.events import Event, Notice, ReferenceRecorded, StartFailed
from sweeper.core.experiment import Experiment, Workload
from sweeper.core.launch import LaunchPlan, Server
from sweeper.core.lossless import Losslessness, Reference
from sweeper.core.run import GroupJob, RunData
from sweeper.core.sample import LoadOutcome, PromptSet
from sweeper.core.trial import LoadPoint, Plan
from sweeper.execution.answers import Answers
from sweeper.execution.loadgen import LoadTarget, drive
from sweeper.execution.pool import LocalPool
from sweeper.execution.reference import record_reference
from sweeper.execution.resume import resume
from sweeper.execution.runner import Drive
from sweeper.execution.session import Opened, Prepared, _accounts, run_session
from sweeper.store import layout
from sweeper.store.reader import half_written, read_run, unreadable
from sweeper.store.writer import RunWriter
from sweeper.testing.launcher import FakeLauncher, FakeServer, Script, fake_drive, fake_reference
from sweeper.testing.plans import small_fingerprint, small_measurement, small_plan, small_prompts
from sweeper.testing.server import running

Record = Callable[[Server, GroupJob], Awaitable[Reference]]


@dataclass
class Done:
    run: RunData
    events: list[Event]
    starts: list[str]

    def recorded(self) -> list[ReferenceRecorded]:
        return [event for event in self.events if isinstance(event, ReferenceRecorded)]

    def counts(self, trial_id: str) -> str:
        outcome = next(one for one in compare(self.run).outcomes if one.trial.trial_id == trial_id)
        return str(outcome.lossless)


def prepared(plan: Plan, temperature: float = 0) -> Prepared:
    workload = WORKLOAD.model_dump() | {"temperature": temperature}
    experiment = Experiment.model_validate({"name": "small", "server": {"model_path": "toy"}, "workload": workload})
    return Prepared(experiment=experiment, plan=plan, prompts=PROMPTS, fingerprint=small_fingerprint(), skips=())


async def execute(
    results: Path,
    plan: Plan,
    *,
    temperature: float = 0,
    driven: Drive = fake_drive,
    record: Record | None = fake_reference,
    script: Callable[[LaunchPlan], Script] = lambda plan: Script(),
    resumed: Path | None = None,
) -> Done:
    what, launcher, display = prepared(plan, temperature), FakeLauncher(script), Collected()
    writer = RunWriter(resumed) if resumed else RunWriter.create(results, plan, experiment={}, environment={})
    before = None
    if resumed:
        broken = (*half_written(resumed), *unreadable(resumed))
        before = resume(read_run(resumed), small_fingerprint(PROMPTS), broken=broken)
        writer.set_aside(before.aside)
    answers = Answers(plan, writer) if what.greedy else None
    if answers is not None:
        answers.take_up(read_run(writer.path))
    opened = Opened(writer=writer, accounts=_accounts(what, None, before), notes=(), resumed=0, answers=answers)
    pool = LocalPool(replace(tools(launcher, driven), record_reference=record))
    await run_session(what, opened, pool, display)
    return Done(read_run(writer.path), display.events, [server.plan.launch_id for server in launcher.servers])


def turning(at: int, arm: str = "3-1-4") -> Drive:
    """An engine that, speculating, says another token at this position."""

    async def turned(server: Server, *args: Any, **more: Any) -> LoadOutcome:
        outcome = await fake_drive(server, *args, **more)
        if not server.plan.launch_id.startswith(arm):
            return outcome
        samples = [
            replace(one, output_ids=(*one.output_ids[:at], 999, *one.output_ids[at + 1 :]))
            for one in outcome.samples
            if one.output_ids is not None
        ]
        return replace(outcome, samples=tuple(samples))

    return turned


async def test_one_pass_of_the_baseline_is_enough_for_a_whole_run(tmp_path: Path) -> None:
    done = await execute(tmp_path, small_plan(starts=2, repeats=2))
    (recorded,) = done.recorded()
    assert (recorded.reference.group_id, recorded.reference.start) == ("group-baseline", 0)
    assert recorded.reference.concurrency == 1  # the lowest
    assert done.run.references == (recorded.reference,)
    assert len(done.run.losslessness) == len(done.run.measurements) == 16
    assert (done.counts("3-1-4-c1"), done.counts("baseline-c4")) == ("16 equal", "16 equal")


@pytest.mark.parametrize(("at", "counts"), [(1, "16 ties"), (2, "16 different")])
async def test_a_difference_is_a_tie_only_where_the_baseline_hesitated(tmp_path: Path, at: int, counts: str) -> None:
    done = await execute(tmp_path, small_plan(starts=2, repeats=2), driven=turning(at))
    assert done.counts("3-1-4-c1") == counts
    assert done.counts("baseline-c1") == "16 equal"


async def test_a_baseline_that_differs_from_itself_shows_it(tmp_path: Path) -> None:
    done = await execute(tmp_path, small_plan(starts=1, repeats=1), driven=turning(2, arm="baseline"))
    assert (done.counts("baseline-c1"), done.counts("3-1-4-c1")) == ("4 different", "4 equal")


async def test_arms_measured_before_the_pass_are_held_against_it_too(tmp_path: Path) -> None:
    plan = small_plan(starts=1, repeats=1)
    done = await execute(tmp_path, replace(plan, schedule=tuple(reversed(plan.schedule))), driven=turning(2))
    assert done.starts == ["3-1-4/0", "baseline/0"]
    assert done.counts("3-1-4-c1") == "4 different"


async def test_sampled_answers_are_not_compared(tmp_path: Path) -> None:
    done = await execute(tmp_path, small_plan(), temperature=0.7)
    assert (done.recorded(), done.run.losslessness, done.run.finished) == ([], (), True)


async def test_a_baseline_alone_needs_no_pass(tmp_path: Path) -> None:
    done = await execute(tmp_path, small_plan(("baseline",)))
    assert done.recorded() == []


async def test_a_pass_that_fails_costs_nothing_else_and_the_next_start_tries_again(tmp_path: Path) -> None:
    tries: list[int] = []

    async def second_time(server: Server, job: GroupJob) -> Reference:
        tries.append(job.start)
        if len(tries) == 1:
            raise ValueError("the answer has no output_top_logprobs")
        return await fake_reference(server, job)

    done = await execute(tmp_path, small_plan(starts=2, repeats=1), record=second_time)
    assert tries == [0, 1]
    assert not any(isinstance(event, StartFailed) for event in done.events)
    told = [event.message for event in done.events if isinstance(event, Notice)]
    assert told == [
        "the baseline's log-probabilities could not be recorded, so answers are not compared: "
        "the answer has no output_top_logprobs"
    ]
    assert done.counts("3-1-4-c1") == "8 equal"


async def test_a_pass_that_always_fails_leaves_a_whole_run(tmp_path: Path) -> None:
    async def never(server: Server, job: GroupJob) -> Reference:
        raise OSError("POST /generate: HTTP 400")

    plan = small_plan(starts=1, repeats=1)
    done = await execute(tmp_path, plan, record=never)
    assert done.run.finished and len(done.run.measurements) == 4 and done.run.losslessness == ()
    again = await execute(tmp_path, plan, resumed=done.run.path)
    assert again.starts == []


async def test_a_run_cut_before_the_pass_starts_its_baseline_once_more_for_it(tmp_path: Path) -> None:
    plan = small_plan(starts=1, repeats=1)
    done = await execute(tmp_path, plan)
    layout.reference_file(done.run.path, "group-baseline").unlink()
    for trial in ("baseline-c1", "baseline-c4"):
        (layout.trial_dir(done.run.path, trial) / layout.RESULT).unlink()
    again = await execute(tmp_path, plan, resumed=done.run.path)
    assert again.starts == ["baseline/0"]
    assert len(again.recorded()) == 1 and again.run.finished
    assert len(again.run.measurements) == 4


async def test_a_run_cut_before_the_judgement_is_judged_without_a_server(tmp_path: Path) -> None:
    plan = small_plan(starts=1, repeats=1)
    done = await execute(tmp_path, plan, driven=turning(2))
    for file in done.run.path.glob(f"trials/*/*/{layout.LOSSLESS}"):
        file.unlink()
    again = await execute(tmp_path, plan, resumed=done.run.path)
    assert again.starts == []
    assert again.counts("3-1-4-c1") == "4 different"


async def test_a_pass_of_another_engine_is_set_aside_with_its_measurements(tmp_path: Path) -> None:
    done = await execute(tmp_path, small_plan(starts=1, repeats=1))
    patched = replace(small_fingerprint(PROMPTS), prompts_sha256="other")
    before = resume(done.run, patched)
    assert before.recorded == ()
    assert layout.reference_file(done.run.path, "group-baseline") in before.aside


async def test_a_pass_that_cannot_be_read_is_made_again(tmp_path: Path) -> None:
    done = await execute(tmp_path, small_plan(starts=1, repeats=1))
    file = layout.reference_file(done.run.path, "group-baseline")
    file.write_bytes(file.read_bytes()[:100])
    assert file in unreadable(done.run.path)
    assert any("reference.json" in problem for problem in read_run(done.run.path).problems)


async def test_a_server_that_dies_in_the_pass_keeps_what_it_measured(tmp_path: Path) -> None:
    async def dying(server: Server, job: GroupJob) -> Reference:
        assert isinstance(server, FakeServer)
        server.script = replace(server.script, dies_after_loads=0)
        return await fake_reference(server, job)

    done = await execute(tmp_path, small_plan(starts=1, repeats=1), record=dying)
    assert done.run.finished and len(done.run.measurements) == 4
    assert not any(isinstance(event, StartFailed) for event in done.events)


@dataclass
class Asked:
    """A server that is only asked over HTTP."""

    plan: LaunchPlan
    info: dict[str, Any] = field(default_factory=lambda: {"dtype": "bfloat16"})
    engine: Any = field(default_factory=lambda: small_fingerprint().engine)

    async def flush(self) -> str:
        return "flushed"


QUICK = ("--prefill-ms", "0", "--step-ms", "0")


async def recorded_by(*options: str, workload: Workload, prompts: PromptSet) -> Reference:
    """A baseline's pass over HTTP."""
    with running(*QUICK, *options) as url:
        launch = LaunchPlan(
            launch_id="x", argv=(), env={}, gpu_ids=(), host="127.0.0.1", port=1, base_url=url,
            served_model_name="fake-model", ready_timeout_s=1, log_path=Path("x"),
        )  # fmt: skip
        job = GroupJob(
            run_id="r", run_dir=Path("x"), group_id="g", arm=small_plan().arms[0], start=0, owed=(), workload=workload,
            prompts=prompts, gpu_ids=(), slot="", owner_pid=1, reference_at=4,
        )  # fmt: skip
        return await record_reference(Asked(launch), job)  # type: ignore[arg-type]


async def answers_of(*options: str, max_tokens: int = 12) -> tuple[Losslessness, Reference]:
    """A baseline's pass, and a speculative server's measured load, both over HTTP."""
    prompts = small_prompts(40)
    workload = Workload(max_tokens=max_tokens, num_prompts=40)
    recorded = await recorded_by(workload=workload, prompts=prompts)
    with running(*QUICK, "--speculative-algorithm", "EAGLE3", *options) as url:
        target = LoadTarget(base_url=url, model="fake-model")
        outcome = await drive(target, prompts, workload, LoadPoint(concurrency=4))
    return judge(recorded, outcome.samples, measurement=small_measurement(small_plan().trials[0])), recorded


async def test_over_http_a_refused_pass_is_an_error_that_the_runner_knows() -> None:
    with pytest.raises(OSError, match="HTTP 500"):
        await recorded_by("--fault", "status:1", workload=Workload(num_prompts=4), prompts=small_prompts(4))


async def test_over_http_a_sound_server_gives_the_baselines_answers() -> None:
    found, recorded = await answers_of()
    assert (found.equal, found.unequal, found.by) == (24, (), "tokens")
    assert (recorded.dtype, recorded.concurrency, len(recorded.answers)) == ("bfloat16", 4, 24)


async def test_over_http_a_lossy_server_and_one_that_turns_ties_are_told_apart() -> None:
    found, _ = await answers_of("--lossy", "0.3", "--turned", "0.3")
    assert found.count("different") > 0 and found.count("tie") > 0 and found.equal > 0
    assert {one.position for one in found.unequal if one.likeness == "different"} == {3}
    assert {one.position for one in found.unequal if one.likeness == "tie"} == {5}


async def test_answers_longer_than_the_pass_are_compared_as_far_as_it_went() -> None:
    found, recorded = await answers_of(max_tokens=300)
    assert all(answer.cut and len(answer.best) == 256 for answer in recorded.answers)
    assert found.equal == 24


async def test_what_pretends_its_acceptance_is_not_held_against_anything(tmp_path: Path) -> None:
    plan = small_plan()
    env = {"SGLANG_SIMULATE_ACC_LEN": "3"}
    arms = tuple(replace(arm, server=replace(arm.server, env=env)) for arm in plan.arms)
    done = await execute(tmp_path, replace(plan, arms=arms))
    assert done.run.finished
    assert (done.recorded(), done.run.losslessness) == ([], ())
