import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.core.events import Event, Measured, Notice, PhaseChanged, RunEnded, StartFailed
from sweeper.core.experiment import Workload
from sweeper.core.launch import Difference, LaunchPlan
from sweeper.core.result import Completed, Conditions, Failed, Skipped, TrialResult
from sweeper.core.run import GroupJob, RunData
from sweeper.core.sample import LoadOutcome, RequestError
from sweeper.core.trial import Plan
from sweeper.errors import ClusterLost, DiskError, ServerError, StoreError
from sweeper.execution.accounts import Accounts
from sweeper.execution.controller import Controller, Policy, Work
from sweeper.execution.pool import LocalPool, Slot
from sweeper.execution.resume import resume
from sweeper.execution.runner import Drive, Tools
from sweeper.planning.placement import Place
from sweeper.store.disk import Disk
from sweeper.store.reader import find_runs, half_written, read_run
from sweeper.store.samples import samples_from_parquet
from sweeper.store.writer import RunWriter
from sweeper.testing.launcher import FakeLauncher, Script, fake_drive
from sweeper.testing.plans import small_fingerprint, small_plan, small_prompts

PROMPTS = small_prompts()
WORKLOAD = Workload(max_tokens=4, num_prompts=4)


class Collected:
    """A Display that keeps what it is shown."""

    def __init__(self, on_event: Callable[[Event], None] = lambda event: None) -> None:
        self.events: list[Event] = []
        self._on_event = on_event

    def show(self, event: Event) -> None:
        self.events.append(event)
        self._on_event(event)

    def close(self) -> None: ...


@dataclass(frozen=True)
class NoGpus:
    def conditions(self) -> Conditions:
        return Conditions()


@asynccontextmanager
async def no_gpus(gpu_ids: tuple[int, ...]) -> AsyncIterator[NoGpus]:
    yield NoGpus()


@contextmanager
def prepare(job: GroupJob) -> Iterator[LaunchPlan]:
    yield LaunchPlan(
        launch_id=f"{job.arm.label}/{job.start}",
        argv=("fake",),
        env={},
        gpu_ids=job.gpu_ids,
        host="127.0.0.1",
        port=1,
        base_url="http://127.0.0.1:1",
        served_model_name="fake",
        ready_timeout_s=1,
        log_path=job.run_dir / "server.log",
    )


def tools(launcher: FakeLauncher, drive: Drive = fake_drive) -> Tools:
    return Tools(
        launcher=launcher, prepare=prepare, drive=drive, watch_gpus=no_gpus, differences=lambda server, live: ()
    )


def with_spec_args(plan: Plan, *labels: str) -> Plan:
    """These arms carry --speculative-lookahead-window 7 (the fake engine takes anything)."""
    arms = tuple(
        replace(arm, server=replace(arm.server, spec=replace(arm.server.spec, args={"lookahead_window": 7})))
        if arm.label in labels and arm.server.spec
        else arm
        for arm in plan.arms
    )
    return replace(plan, arms=arms)


def script(**by_launch: Script) -> Callable[[LaunchPlan], Script]:
    """Scripts by `label/start`; every other start is well."""
    return lambda plan: by_launch.get(plan.launch_id, Script())


@dataclass(frozen=True)
class Outcome:
    ended: RunEnded
    run: RunData
    launcher: FakeLauncher
    events: list[Event]

    def result(self, trial_id: str) -> TrialResult:
        return next(one for one in self.run.results if one.trial_id == trial_id)


async def execute(
    results: Path,
    plan: Plan,
    launcher: FakeLauncher,
    *,
    work: Callable[[Work], Work] = lambda work: work,
    disk: Disk | None = None,
    resumed: Path | None = None,
    pool: type[LocalPool] = LocalPool,
    interrupt_at: Callable[[Event], bool] = lambda event: False,
    clock: Callable[[], float] = lambda: 0.0,
    drive: Drive = fake_drive,
    with_tools: Callable[[Tools], Tools] = lambda tools: tools,
) -> Outcome:
    if resumed is None:
        writer = RunWriter.create(results, plan, experiment={}, environment={}, disk=disk)
        accounts, kept = Accounts(plan), 0
    else:
        before = resume(read_run(resumed), small_fingerprint(PROMPTS), broken=half_written(resumed))
        writer = RunWriter(resumed)
        writer.set_aside(before.aside)
        accounts, kept = Accounts(plan, kept=before.kept, results=before.results), len(before.kept)
    display = Collected(lambda event: controller.interrupt() if interrupt_at(event) else None)
    slots = pool(with_tools(tools(launcher, drive)))
    controller = Controller(
        work(Work(plan=plan, workload=WORKLOAD, prompts=PROMPTS, resumed=kept)),
        accounts=accounts,
        pool=slots,
        writer=writer,
        display=display,
        clock=clock,
    )
    try:
        ended = await controller.run()
    finally:
        await slots.close()
        writer.close()
    return Outcome(ended, read_run(writer.path), launcher, display.events)


async def test_every_trial_is_measured_in_every_start_and_repeat(tmp_path: Path) -> None:
    plan = small_plan(("baseline", "3-1-4", "5-1-6"), starts=2, repeats=3, concurrency=(1, 4))
    done = await execute(tmp_path, plan, FakeLauncher())
    assert done.ended == RunEnded(completed=6, failed=0, skipped=0)
    assert done.run.finished and done.run.problems == ()
    found = {(one.trial_id, one.start, one.repeat) for one in done.run.measurements}
    assert found == {
        (trial.trial_id, start, repeat) for trial in plan.trials for start in (0, 1) for repeat in range(3)
    }
    labels = [server.plan.launch_id for server in done.launcher.servers]
    assert labels == ["baseline/0", "3-1-4/0", "5-1-6/0", "5-1-6/1", "3-1-4/1", "baseline/1"]
    assert all(server.stopped for server in done.launcher.servers)


async def test_repeats_go_over_all_load_points_in_turn(tmp_path: Path) -> None:
    done = await execute(tmp_path, small_plan(("baseline",), starts=1, repeats=2, concurrency=(1, 4)), FakeLauncher())
    order = [(e.measurement.trial_id, e.measurement.repeat) for e in done.events if isinstance(e, Measured)]
    assert order == [("baseline-c1", 0), ("baseline-c4", 0), ("baseline-c1", 1), ("baseline-c4", 1)]
    warmed = [e.detail for e in done.events if isinstance(e, PhaseChanged) and e.phase == "warming"]
    assert warmed == ["concurrency 1", "concurrency 4"]


async def test_a_start_that_fails_once_leaves_the_other_start_to_count(tmp_path: Path) -> None:
    crash = ServerError("died while loading", failure_class="crash_start", log_lines=("Traceback",))
    launcher = FakeLauncher(script(**{"3-1-4/0": Script(fails=crash)}))
    done = await execute(tmp_path, small_plan(), launcher)
    result = done.result("3-1-4-c1")
    assert isinstance(result, Completed)
    assert (result.measurements, [f.failure_class for f in result.failures]) == (2, ["crash_start"])
    assert result.failures[0].log_lines == ("Traceback",)


async def test_a_lasting_failure_is_not_tried_again_and_the_sweep_goes_on(tmp_path: Path) -> None:
    bad = ServerError("no such flag", failure_class="bad_argument")
    launcher = FakeLauncher(lambda plan: Script(fails=bad) if plan.launch_id.startswith("3-1-4") else Script())
    done = await execute(tmp_path, small_plan(("baseline", "3-1-4", "5-1-6")), launcher)
    assert done.ended == RunEnded(completed=4, failed=2, skipped=0)
    assert len([e for e in done.events if isinstance(e, StartFailed)]) == 1
    failed = done.result("3-1-4-c4")
    assert isinstance(failed, Failed) and failed.failure.failure_class == "bad_argument" and not failed.expected


async def test_a_port_that_was_taken_is_tried_once_more(tmp_path: Path) -> None:
    tries: list[str] = []

    def first_port_taken(plan: LaunchPlan) -> Script:
        tries.append(plan.launch_id)
        taken = tries.count(plan.launch_id) == 1 and plan.launch_id == "3-1-4/0"
        return Script(fails=ServerError("port taken", failure_class="port") if taken else None)

    done = await execute(tmp_path, small_plan(starts=1), FakeLauncher(first_port_taken))
    assert done.ended == RunEnded(completed=4, failed=0, skipped=0)
    assert tries == ["baseline/0", "3-1-4/0", "3-1-4/0"]
    assert [e.message for e in done.events if isinstance(e, Notice)] == ["3-1-4: start 1 is tried once more (port)"]


async def test_a_port_that_stays_taken_is_tried_only_once_more(tmp_path: Path) -> None:
    taken = Script(fails=ServerError("port taken", failure_class="port"))
    done = await execute(tmp_path, small_plan(("baseline",), starts=1), FakeLauncher(lambda plan: taken))
    assert done.ended == RunEnded(completed=0, failed=2, skipped=0)
    assert len([e for e in done.events if isinstance(e, StartFailed)]) == 2


async def test_a_server_that_dies_under_load_fails_only_what_it_still_owed(tmp_path: Path) -> None:
    plan = small_plan(("baseline",), starts=1, repeats=2, concurrency=(1, 4))
    alone = await execute(
        tmp_path / "alone", small_plan(("baseline",), starts=1, repeats=1, concurrency=(1,)), FakeLauncher()
    )
    loads_of_one = alone.launcher.servers[0].loads
    launcher = FakeLauncher(lambda launch: Script(dies_after_loads=loads_of_one + 1))
    done = await execute(tmp_path / "dies", plan, launcher)
    first, second = done.result("baseline-c1"), done.result("baseline-c4")
    assert isinstance(first, Completed) and first.measurements == 1
    assert [failure.failure_class for failure in first.failures] == ["crash_load"]
    assert isinstance(second, Failed) and second.failure.failure_class == "crash_load"
    assert launcher.servers[0].stopped


async def test_what_had_finished_when_the_server_died_is_kept_apart_and_never_counted(tmp_path: Path) -> None:
    async def last_answer_lost(*args: Any, **more: Any) -> LoadOutcome:
        outcome = await fake_drive(*args, **more)
        lost = RequestError(kind="dropped", message="connection closed")
        return replace(outcome, samples=(*outcome.samples[:-1], replace(outcome.samples[-1], error=lost)))

    plan = small_plan(("baseline",), starts=1, repeats=1, concurrency=(1,))
    alone = await execute(tmp_path / "alone", plan, FakeLauncher())
    all_loads = alone.launcher.servers[0].loads
    launcher = FakeLauncher(lambda plan: Script(dies_after_loads=all_loads, tok_per_s=250.0))
    done = await execute(tmp_path / "dies", plan, launcher, drive=last_answer_lost)
    failed = done.result("baseline-c1")
    assert isinstance(failed, Failed) and done.run.measurements == ()
    assert failed.failure.message == (
        "the fake server died; 3 of 4 requests had finished at 250 tok/s, kept apart and not a measurement"
    )
    kept = samples_from_parquet(
        done.run.path / "groups" / "group-baseline" / "start-0" / "partial-baseline-c1-repeat-0.parquet"
    )
    assert [sample.ok for sample in kept] == [True, True, True, False]
    assert half_written(done.run.path) == () and done.run.problems == ()
    assert '"load_cut"' in (done.run.path / "events.jsonl").read_text()
    assert "answer to p0" not in (done.run.path / "events.jsonl").read_text()


async def test_a_server_that_hangs_under_load_is_ended_and_named(tmp_path: Path) -> None:
    launcher = FakeLauncher(script(**{"baseline/0": Script(hangs_after_loads=0)}))
    done = await execute(tmp_path, small_plan(starts=1), launcher)
    failed = done.result("baseline-c1")
    assert isinstance(failed, Failed) and failed.failure.failure_class == "hang_load"
    assert isinstance(done.result("3-1-4-c1"), Completed)


async def test_a_ledger_on_a_full_disk_fails_each_start_by_its_own_class_and_takes_no_other_arm_along(
    tmp_path: Path,
) -> None:
    full = Script(fails=DiskError("/s/ledger: the ledger cannot be written: No space left on device"))
    launcher = FakeLauncher(lambda plan: full if plan.launch_id.startswith("3-1-4") else Script())
    done = await execute(tmp_path, small_plan(("baseline", "3-1-4", "5-1-6"), starts=1), launcher)
    failed = done.result("3-1-4-c1")
    assert isinstance(failed, Failed) and failed.failure.failure_class == "disk"
    assert "No space left" in failed.failure.message
    assert done.ended == RunEnded(completed=4, failed=2, skipped=0)


async def test_a_gpu_that_was_throttled_under_the_load_marks_its_measurement(tmp_path: Path) -> None:
    class Hot:
        def conditions(self) -> Conditions:
            return Conditions(throttle_reasons=("power cap",), throttled_share=0.25, sm_clock_mhz_min=1200.0)

    @asynccontextmanager
    async def watch(gpu_ids: tuple[int, ...]) -> AsyncIterator[Hot]:
        yield Hot()

    plan = small_plan(("baseline",), starts=1, repeats=1, concurrency=(1,))
    done = await execute(tmp_path, plan, FakeLauncher(), with_tools=lambda tools: replace(tools, watch_gpus=watch))
    (measurement,) = done.run.measurements
    assert "the GPU was throttled: power cap, in 25% of the readings, down to 1200 MHz" in {
        mark.message for mark in measurement.marks if mark.code == "throttled"
    }
    assert measurement.conditions.throttle_reasons == ("power cap",)


async def test_a_server_that_speculates_otherwise_than_its_name_says_is_not_measured(tmp_path: Path) -> None:
    tree = Difference(key="speculative_num_draft_tokens", requested=4, effective=8)
    known = replace(tree, explained="a rule of the engine")

    def differs(found: Difference) -> Callable[[Tools], Tools]:
        return lambda tools: replace(
            tools, differences=lambda requested, server: (found,) if requested.spec is not None else ()
        )

    lied = await execute(tmp_path / "lied", small_plan(starts=1), FakeLauncher(), with_tools=differs(tree))
    failed = lied.result("3-1-4-c1")
    assert isinstance(failed, Failed) and failed.failure.failure_class == "config_differs"
    assert "the engine does not run 3-1-4: speculative_num_draft_tokens is 8, not 4" in failed.failure.message
    told = await execute(tmp_path / "told", small_plan(starts=1), FakeLauncher(), with_tools=differs(known))
    assert isinstance(told.result("3-1-4-c1"), Completed)


@pytest.mark.parametrize("error", [ServerError("GET http://u:hunter22@h/", failure_class="nccl"), None])
async def test_no_secret_that_an_error_repeats_is_kept(error: ServerError | None, tmp_path: Path) -> None:
    def unforeseen(requested: object, server: object) -> tuple[Difference, ...]:
        raise RuntimeError("--api-key hunter22 was refused") from None

    script = Script(fails=error)
    done = await execute(
        tmp_path,
        small_plan(("baseline",), starts=1),
        FakeLauncher(lambda plan: script),
        with_tools=lambda tools: replace(tools, differences=unforeseen),
    )
    failed = done.result("baseline-c1")
    assert isinstance(failed, Failed) and "***" in failed.failure.message
    kept = [path for path in done.run.path.rglob("*") if path.is_file() and b"hunter22" in path.read_bytes()]
    assert kept == []


async def test_a_failure_that_belongs_to_the_story_is_expected(tmp_path: Path) -> None:
    bad = Script(fails=ServerError("too big", failure_class="oom_capture"))
    launcher = FakeLauncher(lambda plan: bad if plan.launch_id.startswith("3-1-4") else Script())
    done = await execute(tmp_path, small_plan(expect={"3-1-4": "oom_capture"}), launcher)
    failed = done.result("3-1-4-c1")
    assert isinstance(failed, Failed) and failed.expected


async def test_on_failure_stop_skips_the_rest_and_says_so(tmp_path: Path) -> None:
    bad = Script(fails=ServerError("no such flag", failure_class="bad_argument"))
    launcher = FakeLauncher(lambda plan: bad if plan.launch_id == "3-1-4/0" else Script())
    plan = small_plan(("baseline", "3-1-4", "5-1-6"), starts=1)
    done = await execute(tmp_path, plan, launcher, work=lambda work: replace(work, policy=Policy(stop_on_failure=True)))
    skipped = done.result("5-1-6-c1")
    assert isinstance(skipped, Skipped) and "on_failure: stop" in skipped.reason
    assert done.ended == RunEnded(completed=2, failed=2, skipped=2)


async def test_no_server_is_started_after_the_budget(tmp_path: Path) -> None:
    launcher = FakeLauncher()
    done = await execute(
        tmp_path,
        small_plan(("baseline", "3-1-4"), starts=2),
        launcher,
        work=lambda work: replace(work, policy=Policy(budget_s=150.0)),
        clock=lambda: 160.0 * len(launcher.servers),
    )
    skipped = done.result("3-1-4-c1")
    assert isinstance(skipped, Skipped) and skipped.reason == "budget: 2.5 minutes were used up"
    assert done.result("baseline-c1") == Completed(trial_id="baseline-c1", measurements=2)
    assert len(launcher.servers) == 1


async def test_what_is_larger_than_what_did_not_fit_is_not_tried_and_named(tmp_path: Path) -> None:
    launcher = FakeLauncher(
        lambda plan: Script(
            fails=ServerError("out of memory", failure_class="oom_capture") if plan.launch_id == "5-1-6/0" else None
        )
    )
    plan = small_plan(("baseline", "3-1-4", "5-1-6", "8-1-9", "3-4-16"), starts=1)
    done = await execute(tmp_path, plan, launcher)
    skipped = done.result("8-1-9-c1")
    assert skipped == Skipped(trial_id="8-1-9-c1", reason="dominated by 5-1-6, which failed: oom_capture")
    assert isinstance(done.result("3-4-16-c1"), Completed)
    assert [server.plan.launch_id for server in launcher.servers] == ["baseline/0", "3-1-4/0", "3-4-16/0"]


async def test_a_server_that_died_of_anothers_memory_starts_once_more_and_condemns_no_larger_arm(
    tmp_path: Path,
) -> None:
    tries: list[str] = []

    def held_at_first(plan: LaunchPlan) -> Script:
        tries.append(plan.launch_id)
        held = plan.launch_id == "3-1-4/0" and tries.count(plan.launch_id) == 1
        died = ServerError("9 GiB held by pid 5", failure_class="gpu_busy", log_lines=("OutOfMemoryError",))
        return Script(fails=died if held else None)

    plan = small_plan(("baseline", "3-1-4", "5-1-6"), starts=1)
    done = await execute(tmp_path, plan, FakeLauncher(held_at_first))
    assert done.ended == RunEnded(completed=6, failed=0, skipped=0)
    assert tries == ["baseline/0", "3-1-4/0", "3-1-4/0", "5-1-6/0"]


async def test_a_gpu_that_stays_held_is_refused_without_another_try_and_condemns_no_larger_arm(tmp_path: Path) -> None:
    refused = ServerError("GPU 0: pid 5 (python) holds 9 GiB", failure_class="gpu_busy")
    launcher = FakeLauncher(lambda plan: Script(fails=refused if plan.launch_id == "3-1-4/0" else None))
    done = await execute(tmp_path, small_plan(("baseline", "3-1-4", "5-1-6"), starts=1), launcher)
    failed = done.result("3-1-4-c1")
    assert isinstance(failed, Failed) and failed.failure.failure_class == "gpu_busy"
    assert isinstance(done.result("5-1-6-c1"), Completed)
    assert len([e for e in done.events if isinstance(e, StartFailed)]) == 1


async def test_a_flag_that_the_engine_lacks_is_refused_once_for_all_arms_that_carry_it(tmp_path: Path) -> None:
    message = "bad launch argument --speculative-lookahead-window 7"
    bad = Script(fails=ServerError(message, failure_class="bad_argument"))
    launcher = FakeLauncher(lambda plan: bad if plan.launch_id == "3-1-4/0" else Script())
    plan = with_spec_args(small_plan(("baseline", "3-1-4", "5-1-6", "2-4-8"), starts=2), "3-1-4", "5-1-6")
    done = await execute(tmp_path, plan, launcher)
    assert done.result("5-1-6-c1") == Skipped(
        trial_id="5-1-6-c1", reason=f"not started: the engine refused the same argument in 3-1-4: {message}"
    )
    assert isinstance(done.result("2-4-8-c1"), Completed) and isinstance(done.result("baseline-c1"), Completed)
    assert {server.plan.launch_id.partition("/")[0] for server in done.launcher.servers} == {"baseline", "2-4-8"}


async def test_a_refused_flag_of_the_shared_server_ends_the_sweep_after_one_start(tmp_path: Path) -> None:
    plan = small_plan(("baseline", "3-1-4", "5-1-6"), starts=2)
    arms = tuple(replace(arm, server=replace(arm.server, args={"old_name": 4})) for arm in plan.arms)
    bad = ServerError(
        "bad launch argument --old-name: it could be --old-name-a, --old-name-b", failure_class="bad_argument"
    )
    done = await execute(tmp_path, replace(plan, arms=arms), FakeLauncher(lambda launch: Script(fails=bad)))
    assert done.ended == RunEnded(completed=0, failed=2, skipped=4)
    assert len([e for e in done.events if isinstance(e, StartFailed)]) == 1


async def test_an_arm_the_doctor_refuses_never_starts(tmp_path: Path) -> None:
    skips = (("3-1-4", "doctor: d2t-absolute-ids", "d2t-absolute-ids"),)
    done = await execute(tmp_path, small_plan(), FakeLauncher(), work=lambda work: replace(work, skips=skips))
    assert done.ended == RunEnded(completed=2, failed=0, skipped=2)
    assert {server.plan.launch_id for server in done.launcher.servers} == {"baseline/0", "baseline/1"}


async def test_an_interrupted_run_keeps_what_it_has_and_the_next_one_only_adds(tmp_path: Path) -> None:
    plan = small_plan(starts=2, repeats=2)
    count = iter(range(100))
    cut = await execute(
        tmp_path, plan, FakeLauncher(), interrupt_at=lambda event: isinstance(event, Measured) and next(count) == 5
    )
    assert cut.ended.interrupted and not cut.run.finished
    assert 6 <= len(cut.run.measurements) < 16
    assert not any(isinstance(one, Failed | Skipped) for one in cut.run.results)
    assert all(server.stopped for server in cut.launcher.servers)
    whole = await execute(tmp_path, plan, FakeLauncher(), resumed=cut.run.path)
    assert whole.run.finished and len(whole.run.measurements) == 16
    again = [event.measurement for event in whole.events if isinstance(event, Measured)]
    assert len(again) == 16 - len(cut.run.measurements)
    kept = {one.started_at for one in cut.run.measurements}
    assert kept <= {one.started_at for one in whole.run.measurements}


async def test_a_trial_whose_end_was_not_written_down_any_more_ends_without_another_start(tmp_path: Path) -> None:
    plan = small_plan(("baseline",), starts=1, repeats=1, concurrency=(1,))
    done = await execute(tmp_path, plan, FakeLauncher())
    (done.run.path / "trials" / "baseline-c1" / "result.json").unlink()
    again = await execute(tmp_path, plan, FakeLauncher(), resumed=done.run.path)
    assert again.run.finished and again.launcher.servers == []


async def test_interrupting_a_load_in_flight_stops_its_server(tmp_path: Path) -> None:
    launcher = FakeLauncher(lambda plan: Script(blocks_in_load=True))
    done = await asyncio.wait_for(
        execute(
            tmp_path,
            small_plan(),
            launcher,
            interrupt_at=lambda event: isinstance(event, PhaseChanged) and event.phase == "warming",
        ),
        timeout=20,
    )
    assert done.ended.interrupted and done.run.measurements == ()
    assert [server.stopped for server in launcher.servers] == [True]


async def test_a_results_folder_that_fails_ends_the_run_and_stops_the_server(tmp_path: Path) -> None:
    class FullLater(Disk):
        def write_whole(self, path: Path, data: bytes) -> None:
            if path.name == "measurement.json":
                raise StoreError(f"{path}: cannot be written: No space left on device")
            super().write_whole(path, data)

    launcher = FakeLauncher()
    with pytest.raises(StoreError, match="No space left"):
        await execute(tmp_path, small_plan(), launcher, disk=FullLater())
    assert [server.stopped for server in launcher.servers] == [True]


async def test_a_cluster_lost_between_two_starts_ends_the_run_and_no_trial_is_at_fault(tmp_path: Path) -> None:
    class LostLater(LocalPool):
        given = 0

        async def acquire(self, gpus: int, at: Place | None = None, *, nodes: int | None = None) -> Slot:
            self.given += 1
            if self.given > 1:
                raise ClusterLost("Ray's head is gone")
            return await super().acquire(gpus, at, nodes=nodes)

    with pytest.raises(ClusterLost):
        await execute(tmp_path, small_plan(starts=1, repeats=1), FakeLauncher(), pool=LostLater)
    (path,) = find_runs(tmp_path)
    run = read_run(path)
    assert run.measurements and not run.finished
    assert not any(isinstance(one, Failed) for one in run.results)


async def test_a_generator_that_may_open_no_more_files_does_not_blame_the_server(tmp_path: Path) -> None:
    async def drive(*args: Any, **options: Any) -> LoadOutcome:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    plan = small_plan(("baseline",), starts=1, repeats=1, concurrency=(1,))
    done = await execute(tmp_path, plan, FakeLauncher(), drive=drive)
    (failed,) = done.run.results
    assert isinstance(failed, Failed)
    assert failed.failure.failure_class == "generator" and "ulimit" in failed.failure.remedy


async def test_the_journal_tells_the_run_in_order(tmp_path: Path) -> None:
    done = await execute(tmp_path, small_plan(("baseline",), starts=1, repeats=1, concurrency=(1,)), FakeLauncher())
    kinds = [line["kind"] for line in done.run.events if line["kind"] != "phase_changed"]
    assert kinds == ["run_started", "server_ready", "measured", "start_ended", "trial_ended", "run_ended"]
