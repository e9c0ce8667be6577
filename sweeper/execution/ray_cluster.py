"""A Ray of our own or a cluster that is joined: its environment, its nodes, and what of it is ours."""

import atexit
import logging
import os
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

WORKER_ENV = {
    "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
    "RAY_kill_child_processes_on_worker_exit": "false",
}
"""Workers keep CUDA_VISIBLE_DEVICES as the node has it: a slot's GPUs reach the server by its launch plan alone. And a
worker that ends must not take the keeper along, which is there to end the server with all that belongs to it."""
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
"""Read when ray is imported: nothing is sent anywhere, no notices, no second environment beside the one we run in."""
_PRIORITY = {"RAY_worker_niceness": "0"}
"""Ray starts its workers at niceness 15, and servers inherit it: a neighbour's work would slow what is measured."""
for _name, _value in {**_QUIET, **WORKER_ENV, **_PRIORITY}.items():
    os.environ.setdefault(_name, _value)

import ray  # noqa: E402  after its environment
import ray.exceptions  # noqa: E402
from ray._private import state  # noqa: E402  the job table; the public way to it needs Ray's dashboard
from ray._private.authentication.authentication_token_setup import (  # noqa: E402
    ensure_token_if_auth_enabled as check_token,
)
from ray._raylet import GcsClient  # type: ignore[attr-defined]  # noqa: E402
from ray.util import get_node_ip_address, get_placement_group, list_named_actors, placement_group_table  # noqa: E402
from ray.util.placement_group import remove_placement_group  # noqa: E402

from sweeper.effects.gpu import NvmlGpus  # noqa: E402
from sweeper.engine.devices import physical_ids  # noqa: E402
from sweeper.errors import PreflightError  # noqa: E402
from sweeper.execution.ray_address import probe, short_temp_dir, why_not  # noqa: E402

ClusterError = ray.exceptions.RayError
NAMESPACE = "sweeper"
MARK = "sweeper"
OBJECT_STORE_BYTES = 256 * 2**20
"""Events are small; Ray's default is a third of the memory."""
CONNECT_TIMEOUT_S = 180.0
"""A Ray of our own takes 3 s to start on an idle machine, half a minute on a busy one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    node_id: str
    name: str
    room: int
    """GPUs, or CPUs for the CPU engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Of the worker that asks."""

    node_id: str
    host: str
    address: str
    """As other nodes reach it."""
    gpu_ids: tuple[int, ...]
    """Physical ids of the slot's GPUs (Ray's ids are)."""
    visible: tuple[int, ...] | None
    """Of the GPUs the node was given; None: all of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An actor or a placement group of ours in a cluster."""

    kind: Literal["actor", "placement group"]
    name: str
    owner: str
    """`pid 4711 on node-1`: the controller it belongs to."""
    stale: bool
    """Ray itself saw that controller end."""


@contextmanager
def joined(address: str) -> Iterator[None]:
    """For a look at a cluster; nothing of it is used."""
    connect(address)
    try:
        yield
    finally:
        ray.shutdown()


def whereabouts() -> Whereabouts:
    context = ray.get_runtime_context()
    ours = context.get_accelerator_ids().get("GPU", [])
    given = [word for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if (word := part.strip())]
    uuids = cache(lambda: NvmlGpus().read().uuids())
    own_address: Any = get_node_ip_address  # untyped in Ray
    return Whereabouts(
        node_id=context.get_node_id(),
        host=socket.gethostname(),
        address=own_address(),
        gpu_ids=physical_ids(ours, uuids),
        visible=physical_ids(given, uuids) if ours and given else None,
    )


def own_name(slot_id: str) -> str:
    """The name of a slot's actor and placement group: whose they are can be read from it on any node."""
    job_id: str = ray.get_runtime_context().get_job_id()
    return ":".join((MARK, job_id, socket.gethostname(), str(os.getpid()), slot_id))


def find_ours() -> tuple[Held, ...]:
    """Whatever Sweeper holds in the cluster that was joined; nothing is released."""
    jobs: Any = state.jobs  # untyped in Ray
    dead_jobs = {job["JobID"] for job in jobs() if job["IsDead"]}
    listed: Any = list_named_actors(all_namespaces=True)
    actors = [one["name"] for one in listed if one["namespace"] == NAMESPACE]
    table: Any = placement_group_table()
    groups = [one["name"] for one in table.values() if one["state"] != "REMOVED"]
    return (
        *(_held("actor", name, dead_jobs) for name in actors if _is_ours(name)),
        *(_held("placement group", name, dead_jobs) for name in groups if _is_ours(name)),
    )


def release(held: Held) -> bool:
    """Give back one of them; False: it was gone already."""
    try:
        if held.kind == "actor":
            ray.kill(ray.get_actor(held.name, namespace=NAMESPACE))
        else:
            remove_placement_group(get_placement_group(held.name))
    except (ValueError, ray.exceptions.RayError):
        return False
    return True


def _is_ours(name: str) -> bool:
    return name.startswith(f"{MARK}:") and name.count(":") == 4


def _held(kind: Literal["actor", "placement group"], name: str, dead_jobs: set[str]) -> Held:
    _, job_id, host, pid, _ = name.split(":")
    return Held(kind=kind, name=name, owner=f"pid {pid} on {host}", stale=job_id in dead_jobs)


def connect(address: str | None) -> None:
    """Starts a Ray of our own, or joins one; every way to fail is one line."""
    options: dict[str, Any] = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    if address is None:  # workers of our own Ray inherit this; a checkout is found whatever the current folder is
        os.environ["PYTHONPATH"] = python_path()
        if (folder := short_temp_dir(os.environ)) is not None:
            options["_temp_dir"] = folder
    else:
        probe(address)
    outcome: queue.Queue[Exception | None] = queue.Queue()

    def start() -> None:
        try:
            if address is not None and "://" not in address and ":" in address:
                check_token(None, create_token_if_missing=False)  # without any, the next would end this process
                with _native_silence():  # this says at once that the token is wrong; ray.init, that nobody answers
                    GcsClient(address=address)
            ray.init(
                address=address or "local",
                namespace=NAMESPACE,
                log_to_driver=False,
                logging_level=logging.CRITICAL,  # what fails is raised to us as well, and told in our words
                **(options if address is None else {}),
            )
        except Exception as error:  # noqa: BLE001  told to the user below, whatever Ray raises
            outcome.put(error)
            return
        outcome.put(None)
        threading.Event().wait()  # the kernel ends Ray's daemons with the thread that started them

    threading.Thread(target=start, daemon=True).start()  # it never returns where something else listens
    try:
        error = outcome.get(timeout=CONNECT_TIMEOUT_S)
    except queue.Empty:
        atexit.unregister(ray.shutdown)
        waited = f"did not answer within {CONNECT_TIMEOUT_S:.0f} s"
        raise PreflightError(f"{address or 'Ray'}: {waited}; see `ray status` there") from None
    if error is not None:
        raise PreflightError(why_not(address, error, version=ray.__version__)) from error


@contextmanager
def _native_silence() -> Iterator[None]:
    """Ray's native part writes warnings to the terminal, past Python; what fails is raised as well."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def _all_nodes() -> list[dict[str, Any]]:
    listed: Any = ray.nodes  # untyped in Ray
    found: list[dict[str, Any]] = listed()
    return found


def nodes_with(resource: str) -> list[ClusterNode]:
    return [
        ClusterNode(
            node_id=node["NodeID"], name=node["NodeManagerHostname"], room=int(node["Resources"].get(resource, 0))
        )
        for node in _all_nodes()
        if node["Alive"]
    ]


def python_path() -> str:
    """So that a checkout that is not installed is found by the workers too."""
    import sweeper

    root = str(Path(sweeper.__file__).parent.parent)
    return os.pathsep.join(dict.fromkeys([root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))
