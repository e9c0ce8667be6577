"""Eight GPUs, and four nodes of eight, that are not there: a real Ray cluster, the real controller, fake servers.

Every fake server holds a file for each of its GPUs while it runs, so a GPU given twice is seen where it happens.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from sweeper.core.events import Event, Measured, PhaseChanged, ServerReady
from sweeper.core.experiment import Workload
from sweeper.core.launch import LaunchPlan, Server
from sweeper.core.result import Completed, Failed, StartRecord
from sweeper.core.run import GroupJob
from sweeper.core.sample import LoadOutcome, PromptSet
from sweeper.core.trial import Arm, LaunchGroup, LoadPoint, Plan, ServerConfig, Trial
from sweeper.effects.gpu import still_blocked
from sweeper.engine.devices import visible_devices
from sweeper.errors import ServerError
from sweeper.execution.accounts import Accounts
from sweeper.execution.controller import Controller, Work
from sweeper.execution.ray_pool import RayPool
from sweeper.execution.runner import Tools
from sweeper.planning.placement import jobs_of, makespan_s, room_of, timetable
from sweeper.planning.schedule import schedule
from sweeper.store.writer import RunWriter
from sweeper.testing.gpus import fake_node
from sweeper.testing.launcher import FakeLauncher, Script, fake_drive
from sweeper.testing.plans import small_prompts

sys.path.insert(0, str(Path(__file__).parent))
from test_ray_pool import no_gpus

pytestmark = pytest.mark.real
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the workers cannot import this file
ray.cloudpickle.register_pickle_by_value(sys.modules["test_ray_pool"])

INVENTORY = fake_node(8)
FULL_HOUSE_S = 60.0


def hold(path: Path) -> None:
    """A GPU is taken by one process at a time; the file of a dead one is left over, not a second holder."""
    mine = f"{os.getpid()}"
    while True:
        try:
            with path.open("x") as file:
                file.write(mine)
            return
        except FileExistsError:
            holder = int(path.read_text() or 0)
            if holder and Path(f"/proc/{holder}").exists():
                raise ServerError(f"{path.name} is held twice", failure_class="gpu_busy") from None
            path.unlink(missing_ok=True)


@contextmanager
def prepare(job: GroupJob) -> Iterator[LaunchPlan]:
    """Takes the GPUs as a launch would: all of them free in NVML's eyes, as many as the server asks for."""
    node = ray.get_runtime_context().get_node_id()
    assert still_blocked(job.gpu_ids, INVENTORY, frozenset()) == ()
    visible = visible_devices(job.gpu_ids, given=None, needed=job.arm.server.gpus)
    held = job.run_dir / "held"
    held.mkdir(exist_ok=True)
    files = [held / f"{node}-{gpu}" for gpu in job.gpu_ids]
    taken: list[Path] = []
    try:
        for path in files:
            hold(path)
            taken.append(path)
        yield LaunchPlan(
            launch_id=f"{job.arm.label}/{job.start}",
            argv=("fake", node),
            env={"CUDA_VISIBLE_DEVICES": visible},
            gpu_ids=job.gpu_ids,
            host="127.0.0.1",
            port=1,
            base_url="http://127.0.0.1:1",
            served_model_name="fake",
            ready_timeout_s=1,
            log_path=job.run_dir / "server.log",
        )
    finally:
        for path in taken:
            path.unlink(missing_ok=True)


async def drive_when_full(
    server: Server, prompts: PromptSet, workload: Workload, load: LoadPoint, **more: object
) -> LoadOutcome:
    """Answers only once all eight GPUs of the node were held at the same time: only servers side by side get there."""
    held = server.plan.log_path.parent / "held"
    seen = held.parent / f"full-{len(server.plan.gpu_ids)}"
    deadline = asyncio.get_running_loop().time() + FULL_HOUSE_S
    while not seen.exists() and asyncio.get_running_loop().time() < deadline:
        if len(list(held.iterdir())) == 8:
            seen.touch()
        await asyncio.sleep(0.02)
    return await fake_drive(server, prompts, workload, load)


async def drive_or_die(
    server: Server, prompts: PromptSet, workload: Workload, load: LoadPoint, **more: object
) -> LoadOutcome:
    """The worker of one arm is killed at its first load."""
    mark = server.plan.log_path.parent / "killed"
    if server.plan.launch_id.startswith("killed") and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.2)  # the length of a measurement
    return await fake_drive(server, prompts, workload, load)


def script(plan: LaunchPlan) -> Script:
    if plan.launch_id.startswith("fails"):
        return Script(fails=ServerError("scripted", failure_class="crash_start"))
    return Script(dies_after_loads=1 if plan.launch_id.startswith("dies") else None)


def full_tools() -> Tools:
    return Tools(
        launcher=FakeLauncher(),
        prepare=prepare,
        drive=drive_when_full,
        watch_gpus=no_gpus,
        differences=lambda server, live: (),
    )


def failing_tools() -> Tools:
    return replace(full_tools(), launcher=FakeLauncher(script), drive=drive_or_die)


def plan_of(*labels_and_widths: tuple[str, int]) -> Plan:
    """A block of its own for each width: its first arm is the baseline."""
    first: dict[int, str] = {}
    arms = tuple(
        Arm(
            arm_id=label,
            label=label,
            server=ServerConfig(model_path="m", device="cuda", args={"tp_size": width}, env={}, spec=None),
            baseline_id=first.setdefault(width, label),
        )
        for label, width in labels_and_widths
    )
    trials = tuple(Trial(trial_id=arm.arm_id, arm_id=arm.arm_id, load=LoadPoint(concurrency=1)) for arm in arms)
    groups = tuple(
        LaunchGroup(
            group_id=arm.arm_id, arm_id=arm.arm_id, gpus=arm.server.gpus, trial_ids=(arm.arm_id,), estimate_s=100.0
        )
        for arm in arms
    )
    order = schedule(groups, arms, starts=1, mirrored=False)
    return Plan(experiment="sim", arms=arms, trials=trials, launch_groups=groups, schedule=order, repeats=1)


@dataclass
class Watch:
    """A Display that keeps what it is shown, and can act on it."""

    events: list[Event]
    on_measured: int = 0
    then: object = None

    def show(self, event: Event) -> None:
        self.events.append(event)
        measured = sum(isinstance(one, Measured) for one in self.events)
        if isinstance(event, Measured) and measured == self.on_measured and callable(self.then):
            self.then()

    def close(self) -> None: ...

    @property
    def records(self) -> list[StartRecord]:
        return [event.record for event in self.events if isinstance(event, ServerReady)]

    @property
    def told(self) -> str:
        return "\n".join(str(event) for event in self.events if not isinstance(event, PhaseChanged | Measured))


async def run(plan: Plan, pool: RayPool, folder: Path, watch: Watch) -> Accounts:
    accounts = Accounts(plan)
    writer = RunWriter.create(folder, plan, experiment={}, environment={})
    work = Work(plan=plan, workload=Workload(max_tokens=4, num_prompts=4), prompts=small_prompts())
    controller = Controller(work, accounts=accounts, pool=pool, writer=writer, display=watch)
    try:
        await controller.run()
    finally:
        await pool.close()
        writer.close()
    return accounts


def full_houses(results: Path) -> set[str]:
    return {path.name for path in results.glob("sim/*/full-*")}


@contextmanager
def cluster_of(nodes: int) -> Iterator[Cluster]:
    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 16, "num_gpus": 8 if nodes == 1 else 0, "include_dashboard": False},
    )
    try:
        for _ in range(nodes if nodes > 1 else 0):
            made.add_node(num_cpus=16, num_gpus=8)
        made.wait_for_nodes()
        yield made
    finally:
        made.shutdown()


async def test_every_width_fills_the_eight_gpus_of_a_node_side_by_side(tmp_path: Path) -> None:
    sweep = [(f"tp{width}-{number}", width) for width in (1, 2, 4, 8) for number in range(8 // width)]
    plan, watch = plan_of(*sweep), Watch([])
    with cluster_of(1) as cluster:
        pool = RayPool(full_tools, device="cuda", exclusive=False, address=cluster.address)
        accounts = await run(plan, pool, tmp_path, watch)
    assert [type(one) for one in accounts.results()] == [Completed] * 15, watch.told
    assert full_houses(tmp_path) == {"full-1", "full-2", "full-4", "full-8"}
    used = {record.group_id: record.gpu_ids for record in watch.records}
    for width in (1, 2, 4, 8):
        windows = {used[f"tp{width}-{number}"] for number in range(8 // width)}
        assert windows == {tuple(range(at, at + width)) for at in range(0, 8, width)}
    assert makespan_s(timetable(jobs_of(plan), room_of(8, exclusive=False))) == 400


async def test_failures_dead_workers_and_a_lost_node_of_four_never_book_a_gpu_twice(tmp_path: Path) -> None:
    plan = plan_of(
        *((f"one-{number}", 1) for number in range(2)),
        ("killed", 1),
        ("two-0", 2),
        ("fails", 2),
        ("four-0", 4),
        ("dies", 4),
        ("eight-0", 8),
        ("eight-1", 8),
    )
    with cluster_of(4) as cluster:
        pool = RayPool(failing_tools, device="cuda", exclusive=False, address=cluster.address)
        lost = list(cluster.worker_nodes)[-1]
        watch = Watch([], on_measured=3, then=lambda: cluster.remove_node(lost, allow_graceful=False))
        accounts = await run(plan, pool, tmp_path, watch)
    failed = {one.trial_id: one.failure.failure_class for one in accounts.results() if isinstance(one, Failed)}
    assert failed == {"fails": "crash_start", "dies": "crash_load"}, watch.told
    assert len(accounts.results()) == 9
    assert "held twice" not in watch.told
    for record in watch.records:
        width = len(record.gpu_ids)
        assert record.gpu_ids == tuple(range(record.gpu_ids[0], record.gpu_ids[0] + width)), "neighbours"
        assert record.gpu_ids[0] % width == 0
    assert len({record.command for record in watch.records}) > 1, "more than one node was used"
