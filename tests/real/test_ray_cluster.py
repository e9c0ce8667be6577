"""Two nodes of a real Ray cluster on this machine, fake servers in their workers."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from sweeper.core.events import Measured, PhaseChanged, StartEnded
from sweeper.errors import PreflightError, ServerError
from sweeper.execution.ray_pool import RayPool

sys.path.insert(0, str(Path(__file__).parent))
from test_ray_pool import fake_tools, job_of

pytestmark = pytest.mark.real
ray.cloudpickle.register_pickle_by_value(sys.modules["test_ray_pool"])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    made.shutdown()


async def test_groups_spread_over_the_nodes_and_a_lost_node_is_told(cluster: Cluster, tmp_path: Path) -> None:
    pool = RayPool(fake_tools, device="cpu", exclusive=True, address=cluster.address)
    first, second = await pool.acquire(1), await pool.acquire(1)
    waiting = asyncio.create_task(pool.acquire(1))
    done, _ = await asyncio.wait([waiting], timeout=0.5)
    assert not done, "an exclusive node takes one server at a time"
    waiting.cancel()
    assert first.place is not None and second.place is not None
    nodes = {first.place.node, second.place.node}
    assert len(nodes) == 2

    lost = next(node for node in cluster.worker_nodes)
    far = first if first.place.node == lost.node_id else second
    near = second if far is first else first
    with pytest.raises(ServerError, match="was lost") as caught:
        async for event in pool.run(far, job_of(1, far, tmp_path)):
            if isinstance(event, PhaseChanged) and event.phase == "warming":
                cluster.remove_node(lost, allow_graceful=False)
    assert caught.value.failure_class == "node_lost"
    await pool.release(far)
    await pool.release(near)

    again = await pool.acquire(1)
    events = [event async for event in pool.run(again, job_of(0, again, tmp_path))]
    assert len([event for event in events if isinstance(event, Measured)]) == 2
    assert isinstance(events[-1], StartEnded)
    await pool.release(again)
    await pool.close()


async def test_slots_name_physical_gpus_also_where_the_node_was_given_some_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 4, "include_dashboard": False})
    try:
        pool = RayPool(fake_tools, device="cuda", exclusive=False, address=made.address)
        first, second = await pool.acquire(2), await pool.acquire(2)
        assert sorted([*first.gpu_ids, *second.gpu_ids]) == [4, 5, 6, 7]
        assert f"GPU {','.join(map(str, first.gpu_ids))}" in first.name
        with pytest.raises(PreflightError, match="a server of 8 GPUs does not fit: the largest node has 4"):
            await pool.acquire(8)
        await pool.release(first)
        await pool.release(second)
        wider = await pool.acquire(4)
        assert wider.gpu_ids == (4, 5, 6, 7)
        await pool.close()
    finally:
        made.shutdown()


def test_an_address_where_nobody_answers_is_one_line() -> None:
    with pytest.raises(PreflightError, match="no Ray cluster answers there") as caught:
        RayPool(fake_tools, device="cpu", exclusive=True, address="127.0.0.1:1")
    assert "\n" not in str(caught.value)
