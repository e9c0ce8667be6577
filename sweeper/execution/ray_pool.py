"""Slots on a Ray cluster: a placement group and an actor each. The only module that knows Ray."""

import asyncio
import atexit
import logging
import os
import queue
import socket
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_WORKER_ENV = {
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
for _name, _value in {**_QUIET, **_WORKER_ENV, **_PRIORITY}.items():
    os.environ.setdefault(_name, _value)

import ray  # noqa: E402  after its environment
import ray.exceptions  # noqa: E402
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group  # noqa: E402
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: E402

from sweeper.core.events import GroupEvent  # noqa: E402
from sweeper.core.run import GroupJob  # noqa: E402
from sweeper.errors import PreflightError, ServerError  # noqa: E402
from sweeper.execution.pool import Slot, pump  # noqa: E402
from sweeper.execution.ray_address import first_line, last_line, probe, until_gone, why_not  # noqa: E402
from sweeper.execution.runner import Tools  # noqa: E402
from sweeper.planning.placement import Node, Place, Room  # noqa: E402

OBJECT_STORE_BYTES = 256 * 2**20
"""Events are small; Ray's default is a third of the memory."""
STOP_TIMEOUT_S = 120.0
"""A worker that has not stopped its server by then is killed; the keeper ends the server."""
CONNECT_TIMEOUT_S = 180.0
"""A Ray of our own takes 3 s to start on an idle machine, half a minute on a busy one."""
HOLD_TIMEOUT_S = 5.0
"""GPUs that are free are given within milliseconds."""
SHUTDOWN_TIMEOUT_S = 15.0
"""Leaving a healthy Ray takes 1.4 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    node_id: str
    name: str
    room: int
    """GPUs, or CPUs for the CPU engine."""


@dataclass(slots=True, kw_only=True)
class _Reserved:
    slot: Slot
    node: _Node
    gpus: int
    group: PlacementGroup
    worker: Any


class Worker:
    """Runs in the slot, on whatever node that is."""

    def __init__(self, tools: Callable[[], Tools], controller_node: str) -> None:
        self._tools = tools()
        self._controller_node = controller_node
        self._task: asyncio.Task[None] | None = None

    async def place(self) -> tuple[str, tuple[int, ...], tuple[int, ...] | None]:
        """Host name, the physical ids of the slot's GPUs (Ray's ids are), and of those the node has; None: all."""
        ids = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        given = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
        visible = tuple(sorted(int(word) for word in given)) if all(word.isdigit() for word in given) else None
        return socket.gethostname(), tuple(sorted(int(one) for one in ids)), visible

    async def pid(self) -> int:
        return os.getpid()

    async def run(self, job: GroupJob) -> AsyncGenerator[GroupEvent, None]:
        # Elsewhere the controller's pid means nothing; Ray ends this process when the controller is gone.
        near = ray.get_runtime_context().get_node_id() == self._controller_node
        here = job if near else replace(job, owner_pid=os.getpid())
        events: asyncio.Queue[GroupEvent | None] = asyncio.Queue()
        self._task = asyncio.create_task(pump(here, self._tools, events))
        while (event := await events.get()) is not None:
            yield event
        self._task = None

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class RayPool:
    """A Pool on a Ray started here, or on the cluster at `address`."""

    def __init__(self, tools: Callable[[], Tools], *, device: str, exclusive: bool, address: str | None = None) -> None:
        """`exclusive`: one server at a time on a node, so that none disturbs the measurements of another."""
        self._tools = tools
        self._resource = "GPU" if device == "cuda" else "CPU"
        self._exclusive = exclusive
        self._own_cluster = address is None
        self._reserved: dict[str, _Reserved] = {}
        self._idle: list[str] = []
        self._changed = asyncio.Condition()
        self._count = 0
        self._visible: dict[str, tuple[int, ...]] = {}
        """Physical GPU ids of nodes that were given only some of theirs."""
        self.abandoned = False
        """Ray could not be left in order: this process must end by os._exit, or Ray's threads crash it at its end."""
        _connect(address)

    def room(self) -> Room:
        nodes = [Node(name=node.node_id, units=self._units(node)) for node in _nodes(self._resource)]
        return Room(nodes=tuple(nodes), exclusive=self._exclusive)

    async def acquire(self, gpus: int, at: Place | None = None) -> Slot:
        async with self._changed:
            while True:
                if (kept := self._take_idle(gpus, at)) is not None:
                    return kept.slot
                node = self._node_with_room(gpus, at)
                if node is not None:
                    break
                await self._changed.wait()
            here = at if at is not None and at.node == node.node_id else None
            self._drop_idle(node, here)
            self._count += 1
            slot_id = f"slot-{self._count}"
            reserved = await self._reserve_at(slot_id, node, gpus, here)
            self._reserved[slot_id] = reserved
            return reserved.slot

    async def run(self, slot: Slot, job: GroupJob) -> AsyncGenerator[GroupEvent, None]:
        reserved = self._reserved[slot.slot_id]
        stream = reserved.worker.run.options(num_returns="streaming").remote(job)
        ended = False
        try:
            async for event in self._while_ray_lives(stream):
                yield event
            ended = True
        except PreflightError:
            ended = True
            raise
        except ray.exceptions.RayError as error:
            ended = True
            self._discard(reserved)
            raise ServerError(
                f"the worker on {slot.name} was lost: {first_line(error)}", failure_class="node_lost"
            ) from error
        finally:
            if not ended:
                await self._stop_worker(reserved)

    async def _while_ray_lives(self, stream: Any) -> AsyncGenerator[GroupEvent, None]:
        """Ray itself would wait a minute for its dead head, and then abort this process."""
        head = asyncio.create_task(until_gone(ray.get_runtime_context().gcs_address))
        try:
            while True:
                following = asyncio.ensure_future(_following(stream))
                await asyncio.wait([following, head], return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    raise PreflightError("Ray's head is gone; run the same command again: what was measured is kept")
                event = following.result()
                if event is None:
                    return
                yield event
        finally:
            head.cancel()

    async def worker_pid(self, slot: Slot) -> int:
        """Of the process that runs the slot's groups, on its own node."""
        pid: int = await self._reserved[slot.slot_id].worker.pid.remote()
        return pid

    async def node_id(self, slot: Slot) -> str:
        return self._reserved[slot.slot_id].node.node_id

    async def stop(self) -> None:
        running = [one for slot_id, one in self._reserved.items() if slot_id not in self._idle]
        await asyncio.gather(*(self._stop_worker(one) for one in running))

    async def release(self, slot: Slot) -> None:
        async with self._changed:
            if slot.slot_id in self._reserved:
                self._idle.append(slot.slot_id)
            self._changed.notify_all()

    async def close(self) -> None:
        leaving = threading.Thread(target=self._leave, daemon=True)
        leaving.start()
        await asyncio.to_thread(leaving.join, SHUTDOWN_TIMEOUT_S)
        if leaving.is_alive():
            # Its daemons are dead (a signal to the whole process group): Ray would wait a minute and abort us.
            atexit.unregister(ray.shutdown)
            self.abandoned = True

    def _leave(self) -> None:
        for reserved in list(self._reserved.values()):
            self._discard(reserved)
        ray.shutdown()

    def _take_idle(self, gpus: int, at: Place | None) -> _Reserved | None:
        for slot_id in self._idle:
            one = self._reserved[slot_id]
            if one.gpus == gpus and at in (None, one.slot.place):
                self._idle.remove(slot_id)
                return one
        return None

    def _units(self, node: _Node) -> tuple[int, ...]:
        """Physical GPUs (or CPU slots) of a node."""
        visible = self._visible.get(node.node_id, ())
        return visible if len(visible) == node.room else tuple(range(node.room))

    def _free_units(self, node: _Node) -> tuple[int, ...]:
        """Those that no worker of ours holds, idle or not."""
        places = [one.slot.place for one in self._reserved.values()]
        held = {unit for place in places if place and place.node == node.node_id for unit in place.units}
        return tuple(unit for unit in self._units(node) if unit not in held)

    def _node_with_room(self, gpus: int, at: Place | None) -> _Node | None:
        nodes = _nodes(self._resource)
        fitting = [node for node in nodes if node.room >= gpus]
        if not fitting:
            largest = max((node.room for node in nodes), default=0)
            raise PreflightError(
                f"a server of {gpus} {self._resource}s does not fit: the largest node has {largest}; "
                "lower tp_size or join a cluster with --ray-address"
            )
        wanted_first = sorted(fitting, key=lambda node: at is not None and node.node_id != at.node)
        return next((node for node in wanted_first if self._has_room(node, gpus)), None)

    def _has_room(self, node: _Node, gpus: int) -> bool:
        taken = [
            one.gpus
            for slot_id, one in self._reserved.items()
            if one.node.node_id == node.node_id and slot_id not in self._idle
        ]
        return not taken if self._exclusive else sum(taken) + gpus <= node.room

    def _drop_idle(self, node: _Node, at: Place | None) -> None:
        """Those in the way of a place, or all of the node."""
        for slot_id in list(self._idle):
            one = self._reserved[slot_id]
            apart = at is not None and one.slot.place is not None and not set(at.units) & set(one.slot.place.units)
            if one.node.node_id == node.node_id and not apart:
                self._discard(one)

    async def _reserve_at(self, slot_id: str, node: _Node, gpus: int, at: Place | None) -> _Reserved:
        """Ray gives the lowest GPUs that are free: those below the wanted ones are held until they are taken."""
        below = sum(unit < at.units[0] for unit in self._free_units(node)) if at is not None else 0
        if below == 0 or self._resource == "CPU":
            return await self._reserve(slot_id, node, gpus)
        held = placement_group([{"GPU": float(below)}], bundle_label_selector=[{"ray.io/node-id": node.node_id}])
        try:
            await asyncio.to_thread(held.wait, HOLD_TIMEOUT_S)
            return await self._reserve(slot_id, node, gpus)
        finally:
            remove_placement_group(held)

    async def _reserve(self, slot_id: str, node: _Node, gpus: int) -> _Reserved:
        bundle = {"CPU": 1.0, "GPU": float(gpus)} if self._resource == "GPU" else {"CPU": float(gpus)}
        group = placement_group(
            [bundle], strategy="STRICT_PACK", bundle_label_selector=[{"ray.io/node-id": node.node_id}]
        )
        try:
            await group.ready()
            options: dict[str, Any] = {
                "num_cpus": bundle["CPU"],
                "num_gpus": bundle.get("GPU", 0),
                "max_concurrency": 4,
                "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0),
            }
            if not self._own_cluster:
                options["runtime_env"] = {"env_vars": {"PYTHONPATH": _python_path(), **_WORKER_ENV}}
            controller_node = ray.get_runtime_context().get_node_id()
            worker = _remote(Worker).options(**options).remote(self._tools, controller_node)
            host, gpu_ids, visible = await worker.place.remote()
        except ray.exceptions.RayError as error:
            remove_placement_group(group)
            raise PreflightError(
                f"no worker starts on {node.name}: {last_line(error)}; install the same Sweeper and Python there"
            ) from error
        except BaseException:
            remove_placement_group(group)
            raise
        name = f"{host} GPU {','.join(map(str, gpu_ids))}" if gpu_ids else f"{host} CPU"
        if visible is not None:
            self._visible[node.node_id] = visible
        units = gpu_ids or self._free_units(node)[:gpus]
        slot = Slot(slot_id=slot_id, name=name, gpu_ids=gpu_ids, place=Place(node=node.node_id, units=units))
        return _Reserved(slot=slot, node=node, gpus=gpus, group=group, worker=worker)

    async def _stop_worker(self, reserved: _Reserved) -> None:
        try:
            await asyncio.wait_for(_await(reserved.worker.stop.remote()), STOP_TIMEOUT_S)
        except (TimeoutError, ray.exceptions.RayError):
            self._discard(reserved)

    def _discard(self, reserved: _Reserved) -> None:
        self._reserved.pop(reserved.slot.slot_id, None)
        if reserved.slot.slot_id in self._idle:
            self._idle.remove(reserved.slot.slot_id)
        try:
            ray.kill(reserved.worker)
            remove_placement_group(reserved.group)
        except (ray.exceptions.RayError, ValueError):
            pass  # the cluster itself is gone, and with it what was to be given back


async def _following(stream: Any) -> GroupEvent | None:
    """The next event; None at the end."""
    try:
        reference = await anext(stream)
    except StopAsyncIteration:
        return None
    event: GroupEvent = await reference
    return event


async def _await(reference: Any) -> Any:
    return await reference


def _connect(address: str | None) -> None:
    """Starts a Ray of our own, or joins one; every way to fail is one line."""
    options: dict[str, Any] = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    if address is None:  # workers of our own Ray inherit this; a checkout is found whatever the current folder is
        os.environ["PYTHONPATH"] = _python_path()
    else:
        probe(address)
    outcome: queue.Queue[Exception | None] = queue.Queue()

    def connect() -> None:
        try:
            ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level=logging.CRITICAL,  # what fails is raised to us as well, and told in our words
                **(options if address is None else {}),
            )
        except Exception as error:  # noqa: BLE001  told to the user below, whatever Ray raises
            outcome.put(error)
            return
        outcome.put(None)
        threading.Event().wait()  # the kernel ends Ray's daemons with the thread that started them

    threading.Thread(target=connect, daemon=True).start()  # it never returns where something else listens
    try:
        error = outcome.get(timeout=CONNECT_TIMEOUT_S)
    except queue.Empty:
        atexit.unregister(ray.shutdown)
        waited = f"did not answer within {CONNECT_TIMEOUT_S:.0f} s"
        raise PreflightError(f"{address or 'Ray'}: {waited}; see `ray status` there") from None
    if error is not None:
        raise PreflightError(why_not(address, error, version=ray.__version__)) from error


def _remote(kind: Any) -> Any:
    return ray.remote(kind)


def _all_nodes() -> list[dict[str, Any]]:
    listed: Any = ray.nodes  # untyped in Ray
    nodes: list[dict[str, Any]] = listed()
    return nodes


def _nodes(resource: str) -> list[_Node]:
    return [
        _Node(node_id=node["NodeID"], name=node["NodeManagerHostname"], room=int(node["Resources"].get(resource, 0)))
        for node in _all_nodes()
        if node["Alive"]
    ]


def _python_path() -> str:
    """So that a checkout that is not installed is found by the workers too."""
    import sweeper

    root = str(Path(sweeper.__file__).parent.parent)
    return os.pathsep.join(dict.fromkeys([root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))
