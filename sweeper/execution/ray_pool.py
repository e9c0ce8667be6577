"""Slots on a Ray cluster: a placement group and an actor each.

Ray reads its environment when it is imported: the module that sets it stands before it.
"""

from sweeper.execution.ray_cluster import (
    WORKER_ENV,
    ClusterNode,
    Whereabouts,
    connect,
    nodes_with,
    own_name,
    python_path,
)

# isort: split
import asyncio
import atexit
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import ray.exceptions
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from sweeper.core.events import GroupEvent
from sweeper.core.run import GroupJob
from sweeper.errors import ClusterLost, PreflightError, ServerError, SweeperError
from sweeper.execution.pool import Slot
from sweeper.execution.ray_address import HEAD_GONE, first_line, last_line, until_gone, while_it_answers
from sweeper.execution.ray_worker import Worker
from sweeper.execution.runner import Tools
from sweeper.planning.placement import Node, Place, Room

STOP_TIMEOUT_S = 120.0
"""A worker that has not stopped its server by then is killed; the keeper ends the server."""
PATIENCE_S = 5.0
SHUTDOWN_TIMEOUT_S = 15.0
"""Leaving a healthy Ray takes 1.4 s."""


@dataclass(slots=True, kw_only=True)
class _Reserved:
    slot: Slot
    nodes: tuple[ClusterNode, ...]
    """More than one: the server spans them, an equal share on each."""
    gpus: int
    group: PlacementGroup
    workers: tuple[Any, ...]
    """One a node; the first runs the group."""
    places: tuple[Place, ...]
    """What each holds of its node."""

    @property
    def share(self) -> int:
        return self.gpus // len(self.nodes)


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
        connect(address)
        self._head: str = ray.get_runtime_context().gcs_address

    async def room(self) -> Room:
        found = [Node(name=node.node_id, units=self._units(node)) for node in await self._nodes()]
        return Room(nodes=tuple(found), exclusive=self._exclusive)

    async def acquire(self, gpus: int, at: Place | None = None, *, nodes: int | None = None) -> Slot:
        async with self._changed:
            while True:
                if (kept := self._take_idle(gpus, at, nodes)) is not None:
                    return kept.slot
                chosen = self._nodes_with_room(await self._nodes(), gpus, at, nodes)
                if chosen is None:
                    await self._changed.wait()
                elif (reserved := await self._reserve_unless_lost(chosen, gpus, at)) is not None:
                    self._reserved[reserved.slot.slot_id] = reserved
                    return reserved.slot

    async def run(self, slot: Slot, job: GroupJob) -> AsyncGenerator[GroupEvent, None]:
        reserved = self._reserved[slot.slot_id]
        stream = reserved.workers[0].run.options(num_returns="streaming").remote(job, reserved.workers[1:])
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
            if slot.slot_id in self._reserved:
                for worker in reserved.workers:
                    await fetch(worker, job.run_dir)

    async def _while_ray_lives(self, stream: Any) -> AsyncGenerator[GroupEvent, None]:
        head = asyncio.create_task(until_gone(self._head))
        try:
            while True:
                following = asyncio.ensure_future(_following(stream))
                await asyncio.wait([following, head], return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    raise ClusterLost(HEAD_GONE)
                event = following.result()
                if event is None:
                    return
                yield event
        finally:
            head.cancel()

    async def worker_pid(self, slot: Slot) -> int:
        """Of the process that runs the slot's groups, on its own node."""
        pid: int = await self._reserved[slot.slot_id].workers[0].pid.remote()
        return pid

    async def node_ids(self, slot: Slot) -> tuple[str, ...]:
        """One, or those that the server spans, the first one first."""
        return tuple(node.node_id for node in self._reserved[slot.slot_id].nodes)

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

    async def _nodes(self) -> list[ClusterNode]:
        return await while_it_answers(self._head, lambda: nodes_with(self._resource))

    def _take_idle(self, gpus: int, at: Place | None, nodes: int | None) -> _Reserved | None:
        for slot_id in self._idle:
            one = self._reserved[slot_id]
            if one.gpus == gpus and at in (None, one.slot.place) and nodes in (None, len(one.nodes)):
                self._idle.remove(slot_id)
                return one
        return None

    def _units(self, node: ClusterNode) -> tuple[int, ...]:
        """Physical GPUs (or CPU slots) of a node."""
        visible = self._visible.get(node.node_id, ())
        return visible if len(visible) == node.room else tuple(range(node.room))

    def _free_units(self, node: ClusterNode) -> tuple[int, ...]:
        """Those that no worker of ours holds, idle or not."""
        places = [place for one in self._reserved.values() for place in one.places]
        held = {unit for place in places if place.node == node.node_id for unit in place.units}
        return tuple(unit for unit in self._units(node) if unit not in held)

    def _nodes_with_room(
        self, nodes: Sequence[ClusterNode], gpus: int, at: Place | None, asked: int | None
    ) -> tuple[ClusterNode, ...] | None:
        """As few nodes as the server fits on; None: it must wait for them. PreflightError: it never fits."""
        known = sorted(nodes, key=lambda node: at is not None and node.node_id != at.node)
        for count in [asked] if asked else range(1, len(known) + 1):
            share, rest = divmod(gpus, count)
            fitting = [node for node in known if node.room >= share]
            if rest == 0 and len(fitting) >= count:
                free = [node for node in fitting if self._has_room(node, share)]
                return tuple(free[:count]) if len(free) >= count else None
        largest = max((node.room for node in known), default=0)
        if largest == 0:
            raise ClusterLost(
                f"no node of the Ray cluster has a {self._resource}; see `ray status` there, then run the same command "
                "again: what was measured is kept"
            )
        shared = f" equally on {asked or 'several'} of {len(known)} nodes" if len(known) > 1 or asked else ""
        raise PreflightError(
            f"a server of {gpus} {self._resource}s does not fit{shared}: the largest node has {largest}; "
            "lower tp_size or join a cluster with --ray-address"
        )

    def _has_room(self, node: ClusterNode, gpus: int) -> bool:
        taken = [
            one.share
            for slot_id, one in self._reserved.items()
            if node.node_id in {taken.node_id for taken in one.nodes} and slot_id not in self._idle
        ]
        return not taken if self._exclusive else sum(taken) + gpus <= node.room

    def _drop_idle(self, node: ClusterNode, at: Place | None) -> None:
        """Those in the way of a place, or all of the node."""
        for slot_id in list(self._idle):
            one = self._reserved[slot_id]
            held = {unit for place in one.places if place.node == node.node_id for unit in place.units}
            if held and (at is None or held & set(at.units)):
                self._discard(one)

    async def _reserve_unless_lost(
        self, chosen: tuple[ClusterNode, ...], gpus: int, at: Place | None
    ) -> _Reserved | None:
        """None: a node went away meanwhile; Ray would wait for it for ever."""
        here = at if at is not None and [at.node] == [node.node_id for node in chosen] else None
        for node in chosen:
            self._drop_idle(node, here)
        self._count += 1
        reserving = asyncio.ensure_future(self._reserve_at(f"slot-{self._count}", chosen, gpus, here))
        try:
            while not reserving.done():
                await asyncio.wait([reserving], timeout=PATIENCE_S)
                if not set(chosen) <= set(await self._nodes()):
                    return None
            return reserving.result()
        finally:
            reserving.cancel()
            await asyncio.gather(reserving, return_exceptions=True)

    async def _reserve_at(
        self, slot_id: str, chosen: tuple[ClusterNode, ...], gpus: int, at: Place | None
    ) -> _Reserved:
        """Ray gives the lowest GPUs that are free: those below the wanted ones are held until they are taken."""
        below = sum(unit < at.units[0] for unit in self._free_units(chosen[0])) if at is not None else 0
        if below == 0 or self._resource == "CPU":
            return await self._reserve(slot_id, chosen, gpus)
        held = placement_group(
            [{"GPU": float(below)}],
            name=own_name(f"{slot_id}-held"),
            bundle_label_selector=[{"ray.io/node-id": chosen[0].node_id}],
        )
        try:
            await asyncio.to_thread(held.wait, PATIENCE_S)
            return await self._reserve(slot_id, chosen, gpus)
        finally:
            remove_placement_group(held)

    async def _reserve(self, slot_id: str, chosen: tuple[ClusterNode, ...], gpus: int) -> _Reserved:
        share = gpus // len(chosen)
        bundle = {"CPU": 1.0, "GPU": float(share)} if self._resource == "GPU" else {"CPU": float(share)}
        group = placement_group(
            [bundle] * len(chosen),
            strategy="STRICT_PACK" if len(chosen) == 1 else "STRICT_SPREAD",
            name=own_name(slot_id),
            bundle_label_selector=[{"ray.io/node-id": node.node_id} for node in chosen],
        )
        try:
            await group.ready()
            names = [slot_id, *(f"{slot_id}-rank{rank}" for rank in range(1, len(chosen)))]
            workers = tuple(self._worker(group, index, name, bundle) for index, name in enumerate(names))
            seen = [await worker.place.remote() for worker in workers]
        except SweeperError as error:  # of the worker; Ray's wrapper is one of these too, its text a trace
            remove_placement_group(group)
            raise getattr(error, "cause", error) from None
        except ray.exceptions.RayError as error:
            remove_placement_group(group)
            where = ", ".join(node.name for node in chosen)
            raise PreflightError(
                f"no worker starts on {where}: {last_line(error)}; install the same Sweeper and Python there"
            ) from error
        except BaseException:
            remove_placement_group(group)
            raise
        places = tuple(self._place(node, share, at) for node, at in zip(chosen, seen, strict=True))
        slot = Slot(
            slot_id=slot_id,
            name=" + ".join(map(_name, seen)),
            gpu_ids=seen[0].gpu_ids,
            place=places[0] if len(chosen) == 1 else None,
            nodes=len(chosen),
        )
        return _Reserved(slot=slot, nodes=chosen, gpus=gpus, group=group, workers=workers, places=places)

    def _place(self, node: ClusterNode, share: int, at: Whereabouts) -> Place:
        self._visible[node.node_id] = at.visible or ()
        return Place(node=node.node_id, units=at.gpu_ids or self._free_units(node)[:share])

    def _worker(self, group: PlacementGroup, index: int, name: str, bundle: Mapping[str, float]) -> Any:
        options: dict[str, Any] = {
            "name": own_name(name),
            "num_cpus": bundle["CPU"],
            "num_gpus": bundle.get("GPU", 0),
            "max_concurrency": 8,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        }
        if not self._own_cluster:
            options["runtime_env"] = {"env_vars": {"PYTHONPATH": python_path(), **WORKER_ENV}}
        return _remote(Worker).options(**options).remote(self._tools, ray.get_runtime_context().get_node_id())

    async def _stop_worker(self, reserved: _Reserved) -> None:
        try:
            await asyncio.wait_for(_await(reserved.workers[0].stop.remote()), STOP_TIMEOUT_S)
        except (TimeoutError, ray.exceptions.RayError):
            self._discard(reserved)

    def _discard(self, reserved: _Reserved) -> None:
        self._reserved.pop(reserved.slot.slot_id, None)
        if reserved.slot.slot_id in self._idle:
            self._idle.remove(reserved.slot.slot_id)
        try:
            for worker in reserved.workers:
                ray.kill(worker)
            remove_placement_group(reserved.group)
        except (ray.exceptions.RayError, ValueError):
            pass  # the cluster itself is gone, and with it what was to be given back


async def fetch(worker: Any, run_dir: Path) -> None:
    """Brings what a node without this folder kept for itself: the server's log. A lost worker's is lost with it."""
    stream = worker.fetched.options(num_returns="streaming").remote()
    try:
        while (piece := await _following(stream)) is not None:
            name, data = piece
            path = run_dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(data)
    except (ray.exceptions.RayError, OSError):
        return


def _name(place: Whereabouts) -> str:
    return f"{place.host} GPU {','.join(map(str, place.gpu_ids))}" if place.gpu_ids else f"{place.host} CPU"


async def _following(stream: Any) -> Any:
    """The next thing a worker sent; None at the end."""
    try:
        reference = await anext(stream)
    except StopAsyncIteration:
        return None
    return await reference


async def _await(reference: Any) -> Any:
    return await reference


def _remote(kind: Any) -> Any:
    return ray.remote(kind)
