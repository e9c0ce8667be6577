"""Servers that span two nodes of a real Ray cluster on this machine: two fake SGLang processes that meet."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from sweeper.core.events import GroupEvent, Measured, PhaseChanged, ServerReady, StartEnded, StartFailed
from sweeper.core.experiment import Workload
from sweeper.core.run import GroupJob, Owed
from sweeper.core.trial import Arm, ServerConfig, SpecConfig, Trial
from sweeper.effects import ledger
from sweeper.errors import PreflightError
from sweeper.execution.pool import Slot
from sweeper.execution.ray_pool import RayPool
from sweeper.execution.tools import real_tools
from sweeper.testing.plans import small_plan, small_prompts
from sweeper.testing.server import stand_in_python
from sweeper.toy import unpack

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

ENDLESS = 50_000
"""Tokens of an answer that takes longer than a test."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv(ledger.STATE_DIR_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setenv("SWEEPER_FAKE_SERVER", "--step-ms 2")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def fake_server(folder: Path) -> ServerConfig:
    return ServerConfig(
        model_path="m",
        device="cpu",
        args={"tp_size": 2},
        env={},
        spec=None,
        python=str(stand_in_python(folder.with_name("python"))),
        ready_timeout_s=60,
    )


def real_server(folder: Path) -> ServerConfig:
    pair = unpack(folder)
    return ServerConfig(
        model_path=str(pair.target),
        device="cpu",
        args={"tp_size": 2},
        env={"SGLANG_CPU_OMP_THREADS_BIND": "0|1"},
        spec=SpecConfig(
            algorithm="EAGLE3",
            draft_model_path=str(pair.draft),
            num_steps=3,
            eagle_topk=1,
            num_draft_tokens=4,
        ),
        ready_timeout_s=400,
    )


def job_of(slot: Slot, folder: Path, server: ServerConfig | None = None, *, max_tokens: int = 40) -> GroupJob:
    """A server of two CPU slots; its folder is there, as if the controller had made it."""
    folder.mkdir(exist_ok=True)
    (folder / "plan.json").write_text("{}")
    plan = small_plan(starts=1, repeats=1)
    server = server or fake_server(folder)
    arm = Arm(arm_id="two", label="two nodes", server=server, baseline_id="two")
    trial = Trial(trial_id="two-c1", arm_id="two", load=plan.trials[0].load)
    return GroupJob(
        run_id="r1",
        run_dir=folder,
        group_id="two",
        arm=arm,
        start=0,
        owed=(Owed(trial=trial, repeat=0),),
        workload=Workload(num_prompts=4, max_tokens=max_tokens, concurrency=[1]),
        prompts=small_prompts(),
        gpu_ids=slot.gpu_ids,
        slot=slot.name,
        owner_pid=os.getpid(),
        nodes=slot.nodes,
    )


async def joined(pool: RayPool) -> Slot:
    """A slot of two CPUs, as soon as the node that has them is there."""
    while True:
        try:
            return await pool.acquire(2)
        except PreflightError:
            await asyncio.sleep(0.5)


async def run(pool: RayPool, slot: Slot, job: GroupJob, *, kill_rank: int | None = None) -> list[GroupEvent]:
    events = []
    async for event in pool.run(slot, job):
        events.append(event)
        if kill_rank is not None and isinstance(event, PhaseChanged) and event.phase == "measuring":
            os.kill(server_pid(kill_rank), signal.SIGKILL)
    return events


def server_pid(rank: int) -> int:
    entry = next(one for one in ledger.read_entries() if one.launch_id.endswith(f"-r{rank}") == (rank > 0))
    assert entry.server is not None
    return entry.server.pid


async def test_a_server_larger_than_a_node_spans_two_and_both_ranks_are_gone_afterwards(
    cluster: Cluster, tmp_path: Path
) -> None:
    pool = RayPool(real_tools, device="cpu", exclusive=True, address=cluster.address)
    slot = await pool.acquire(2)
    assert slot.nodes == len(set(await pool.node_ids(slot))) == 2
    events = await run(pool, slot, job_of(slot, tmp_path / "results"))
    await pool.close()
    assert len([event for event in events if isinstance(event, Measured)]) == 1, events
    assert isinstance(events[-1], StartEnded)
    info = next(event.server_info for event in events if isinstance(event, ServerReady))
    assert (info["nnodes"], info["node_rank"], info["tp_size"]) == (2, 0, 2)
    folder = tmp_path / "results" / "groups" / "two" / "start-0"
    assert "fired up" in (folder / "server.log").read_text()
    assert "Load weight end" in (folder / "server-rank1.log").read_text()
    assert ledger.read_entries() == ()


@pytest.mark.parametrize("rank", [0, 1])
async def test_the_death_of_any_rank_under_load_fails_the_group_and_ends_the_other(
    cluster: Cluster, tmp_path: Path, rank: int
) -> None:
    pool = RayPool(real_tools, device="cpu", exclusive=True, address=cluster.address)
    slot = await pool.acquire(2)
    events = await run(pool, slot, job_of(slot, tmp_path / "results", max_tokens=ENDLESS), kill_rank=rank)
    failed = events[-1]
    assert isinstance(failed, StartFailed)
    assert failed.failure.failure_class in ("crash_load", "crash_start", "nccl"), failed.failure
    assert ledger.read_entries() == ()
    again = await run(pool, slot, job_of(slot, tmp_path / "results"))
    await pool.close()
    assert isinstance(again[-1], StartEnded), "the slot can be used again"


@pytest.mark.timeout(500)
async def test_the_real_engine_speculates_over_two_nodes(cluster: Cluster, tmp_path: Path) -> None:
    pool = RayPool(real_tools, device="cpu", exclusive=True, address=cluster.address)
    slot = await pool.acquire(2)
    events = await run(pool, slot, job_of(slot, tmp_path / "results", real_server(tmp_path / "toy")))
    await pool.close()
    (measured,) = [event for event in events if isinstance(event, Measured)]
    assert measured.measurement.metrics.spec is not None
    assert measured.measurement.metrics.spec.accept_length > 1.2
    assert measured.measurement.effective.tp_size == 2
    assert ledger.read_entries() == ()


async def test_a_disk_that_is_full_on_the_other_node_is_told_as_that_nodes_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ledger.STATE_DIR_VARIABLE, str(tmp_path / "state"))
    (tmp_path / "file").write_text("no folder can be made here")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        made.add_node(num_cpus=1, env_vars={ledger.STATE_DIR_VARIABLE: str(tmp_path / "file" / "state")})
        made.wait_for_nodes()
        pool = RayPool(real_tools, device="cpu", exclusive=True, address=made.address)
        slot = await pool.acquire(2)
        events = await run(pool, slot, job_of(slot, tmp_path / "results"))
        await pool.close()
    finally:
        made.shutdown()
    failed = events[-1]
    assert isinstance(failed, StartFailed)
    assert failed.failure.failure_class == "disk"
    assert failed.failure.message.startswith(f"{tmp_path}/file/state: the ledger cannot be kept here: Not a directory")


async def test_a_size_that_no_number_of_nodes_shares_equally_is_refused(cluster: Cluster) -> None:
    pool = RayPool(real_tools, device="cpu", exclusive=True, address=cluster.address)
    with pytest.raises(PreflightError, match="a server of 3 CPUs does not fit equally on several of 2 nodes"):
        await pool.acquire(3)
    await pool.close()


@pytest.fixture
def blind_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster whose only node with room sees an empty results folder."""
    results = tmp_path / "results"
    results.mkdir()
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(results)]
    if subprocess.run([*hidden, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    monkeypatch.setenv(ledger.STATE_DIR_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setenv("SWEEPER_FAKE_SERVER", "--step-ms 2")
    head = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    ray = str(Path(sys.executable).with_name("ray"))
    join = [ray, "start", f"--address={head.address}", "--num-cpus=2", "--block"]
    with (tmp_path / "ray.log").open("wb") as log:
        node = subprocess.Popen([*hidden, *join], stdout=log, stderr=log, start_new_session=True)
    try:
        yield head.address
    finally:
        os.killpg(node.pid, signal.SIGTERM)
        node.wait(timeout=30)
        head.shutdown()


@pytest.mark.parametrize("dies", [False, True])
async def test_the_log_of_a_node_without_the_results_folder_is_fetched(
    blind_node: str, tmp_path: Path, dies: bool
) -> None:
    pool = RayPool(real_tools, device="cpu", exclusive=True, address=blind_node)
    slot = await joined(pool)
    assert slot.nodes == 1
    job = job_of(slot, tmp_path / "results", max_tokens=ENDLESS if dies else 40)
    events = await run(pool, slot, job, kill_rank=0 if dies else None)
    await pool.close()
    assert isinstance(events[-1], StartFailed if dies else StartEnded)
    log = (tmp_path / "results" / "groups" / "two" / "start-0" / "server.log").read_text()
    assert "fired up" in log
