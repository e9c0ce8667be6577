"""A real Ray on this machine with fake servers in its workers."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray

from sweeper.core.events import GroupEvent, Measured, PhaseChanged, StartEnded
from sweeper.core.experiment import Workload
from sweeper.core.launch import LaunchPlan
from sweeper.core.result import Conditions
from sweeper.core.run import GroupJob, Owed
from sweeper.errors import PreflightError, ServerError
from sweeper.execution.pool import Slot
from sweeper.execution.ray_pool import RayPool
from sweeper.execution.runner import Tools
from sweeper.testing.launcher import FakeLauncher, Script, fake_drive
from sweeper.testing.plans import small_plan, small_prompts

pytestmark = pytest.mark.real
PLAN = small_plan(starts=1, repeats=1)
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the workers cannot import this file


@dataclass(frozen=True)
class NoGpus:
    def conditions(self) -> Conditions:
        return Conditions()


@asynccontextmanager
async def no_gpus(gpu_ids: tuple[int, ...]) -> AsyncIterator[NoGpus]:
    yield NoGpus()


@contextmanager
def prepare(job: GroupJob) -> Iterator[LaunchPlan]:
    """The worker's own pid stands in the plan, so that a test can kill it."""
    yield LaunchPlan(
        launch_id=job.arm.label,
        argv=("fake", str(os.getpid())),
        env={},
        gpu_ids=job.gpu_ids,
        host="127.0.0.1",
        port=1,
        base_url="http://127.0.0.1:1",
        served_model_name="fake",
        ready_timeout_s=1,
        log_path=job.run_dir / "server.log",
    )


def fake_tools() -> Tools:
    launcher = FakeLauncher(lambda plan: Script(blocks_in_load=plan.launch_id == "3-1-4"))
    return Tools(
        launcher=launcher, prepare=prepare, drive=fake_drive, watch_gpus=no_gpus, differences=lambda server, live: ()
    )


def job_of(arm: int, slot: Slot, folder: Path) -> GroupJob:
    group = PLAN.launch_groups[arm]
    return GroupJob(
        run_id="r1",
        run_dir=folder,
        group_id=group.group_id,
        arm=PLAN.arms[arm],
        start=0,
        owed=tuple(Owed(trial=trial, repeat=0) for trial in PLAN.trials if trial.trial_id in group.trial_ids),
        workload=Workload(max_tokens=4),
        prompts=small_prompts(),
        gpu_ids=slot.gpu_ids,
        slot=slot.name,
        owner_pid=os.getpid(),
    )


@pytest.fixture(scope="module")
def pool() -> Iterator[RayPool]:
    made = RayPool(fake_tools, device="cpu", exclusive=True)
    yield made
    asyncio.run(made.close())


async def test_a_group_runs_in_a_worker_and_its_events_come_back_in_order(pool: RayPool, tmp_path: Path) -> None:
    slot = await pool.acquire(1)
    events = [event async for event in pool.run(slot, job_of(0, slot, tmp_path))]
    await pool.release(slot)
    assert [e.measurement.trial_id for e in events if isinstance(e, Measured)] == ["baseline-c1", "baseline-c4"]
    assert isinstance(events[-1], StartEnded)
    worker_pid = int(events[-1].record.command.split()[-1])
    assert worker_pid != os.getpid()


async def test_an_exclusive_node_gives_one_slot_at_a_time_and_the_worker_is_used_again(pool: RayPool) -> None:
    slot = await pool.acquire(1)
    second = asyncio.create_task(pool.acquire(1))
    done, _ = await asyncio.wait([second], timeout=0.5)
    assert not done
    await pool.release(slot)
    again = await second
    assert again == slot
    await pool.release(again)


async def test_stop_ends_a_load_that_would_never_end(pool: RayPool, tmp_path: Path) -> None:
    slot = await pool.acquire(1)
    seen: list[GroupEvent] = []
    async for event in pool.run(slot, job_of(1, slot, tmp_path)):
        seen.append(event)
        if isinstance(event, PhaseChanged) and event.phase == "warming":
            await pool.stop()
    await pool.release(slot)
    assert not any(isinstance(event, Measured) for event in seen)


async def test_a_killed_worker_is_a_lost_node_and_the_next_slot_has_a_new_one(pool: RayPool, tmp_path: Path) -> None:
    slot = await pool.acquire(1)
    with pytest.raises(ServerError, match="was lost") as caught:
        async for event in pool.run(slot, job_of(1, slot, tmp_path)):
            if isinstance(event, PhaseChanged) and event.phase == "warming":
                os.kill(await pool.worker_pid(slot), signal.SIGKILL)
    assert caught.value.failure_class == "node_lost"
    await pool.release(slot)
    fresh = await pool.acquire(1)
    assert fresh.slot_id != slot.slot_id
    events = [event async for event in pool.run(fresh, job_of(0, fresh, tmp_path))]
    assert isinstance(events[-1], StartEnded)
    await pool.release(fresh)


async def test_a_server_that_can_never_fit_is_refused_at_once(pool: RayPool) -> None:
    with pytest.raises(PreflightError, match=r"a server of 4096 CPUs does not fit: the largest node has \d+"):
        await pool.acquire(4096)
