"""What dead controllers leave in a cluster that outlives them, and `sweeper clean --ray-address`."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from ray.cluster_utils import Cluster

from sweeper.cli.clean import command

pytestmark = pytest.mark.real

CONTROLLER = """
import asyncio, os, signal, sys, time
from sweeper.execution.ray_cluster import connect, own_name
from sweeper.execution.ray_pool import RayPool
import ray
from ray.util.placement_group import placement_group

@ray.remote
class Sleeper:
    pass

def tools():
    return None

async def main():
    pool = RayPool(tools, device="cpu", exclusive=True, address=sys.argv[1])
    await pool.acquire(1)
    if "detached" in sys.argv:
        group = placement_group([{"CPU": 1}], name=own_name("slot-9"), lifetime="detached")
        await group.ready()
        foreign = placement_group([{"CPU": 1}], name="somebody", lifetime="detached")
        await foreign.ready()
        actor = Sleeper.options(name=own_name("slot-9"), lifetime="detached", num_cpus=0).remote()
        await actor.__ray_ready__.remote()
    if "closes" in sys.argv:
        await pool.close()
    print("holds", flush=True)
    time.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False})
    yield made
    made.shutdown()


def controller(cluster: Cluster, *words: str) -> "subprocess.Popen[str]":
    """A process with a slot of the cluster, once it has it."""
    process = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, cluster.address, *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    return process


def cleaned(cluster: Cluster, *options: str) -> list[dict[str, object]]:
    done = CliRunner().invoke(
        command, ["--json", "--ray-address", cluster.address, *options], standalone_mode=False, catch_exceptions=False
    )
    held: list[dict[str, object]] = json.loads(done.output)["ray"]
    return held


def test_a_living_run_keeps_its_slots_and_a_killed_one_is_released(cluster: Cluster) -> None:
    process = controller(cluster)
    assert {(one["kind"], one["stale"]) for one in cleaned(cluster)} == {("actor", False), ("placement group", False)}
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while cleaned(cluster) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert cleaned(cluster) == []


def test_a_run_that_ends_gives_back_all_it_held_in_a_cluster(cluster: Cluster) -> None:
    process = controller(cluster, "closes")
    deadline = time.monotonic() + 30
    while cleaned(cluster, "--dry-run") and time.monotonic() < deadline:
        time.sleep(0.5)
    assert cleaned(cluster, "--dry-run") == []
    assert process.poll() is None, "it was the end of the run, not of its process"
    process.kill()
    process.wait()


def test_what_outlives_a_dead_controller_is_listed_then_released_and_foreign_ones_stay(cluster: Cluster) -> None:
    process = controller(cluster, "detached")
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while not all(one["stale"] for one in cleaned(cluster, "--dry-run")) and time.monotonic() < deadline:
        time.sleep(0.5)
    listed = cleaned(cluster, "--dry-run")
    assert {one["kind"] for one in listed} == {"actor", "placement group"}
    assert not any(one["released"] for one in listed)
    assert all(str(one["name"]).endswith("slot-9") for one in listed)

    released = cleaned(cluster)
    assert len(released) == len(listed)
    assert all(one["released"] for one in released)
    deadline = time.monotonic() + 30
    while cleaned(cluster) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert cleaned(cluster) == []
    check = (
        "import ray, sys; from ray.util import placement_group_table as table; "
        "ray.init(address=sys.argv[1], logging_level='CRITICAL'); "
        "print([one['name'] for one in table().values() if one['state'] == 'CREATED'])"
    )
    left = subprocess.run([sys.executable, "-c", check, cluster.address], capture_output=True, text=True, check=True)
    assert left.stdout.splitlines()[-1] == "['somebody']"
