"""Where groups run: slots of a machine or a cluster. Implementations: LocalPool here, RayPool in ray_pool."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from sweeper.core.events import GroupEvent
from sweeper.core.run import GroupJob
from sweeper.errors import PreflightError
from sweeper.execution.runner import Tools, run_group
from sweeper.planning.placement import Node, Place, Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A place for one server at a time."""

    slot_id: str
    name: str
    """For people: `node-1 GPU 0,1`, `cpu`."""
    gpu_ids: tuple[int, ...]
    """Physical ids; empty on the CPU engine. Of the first node, where a server spans several."""
    place: Place | None = None
    """What it takes of the pool's room; None: it spans nodes."""
    nodes: int = 1


class Pool(Protocol):
    async def room(self) -> Room:
        """The nodes as they are now, with all that is taken. Raises ClusterLost."""

    async def acquire(self, gpus: int, at: Place | None = None, *, nodes: int | None = None) -> Slot:
        """Waits for room for a server of `gpus` GPUs (or CPU slots), if possible at a wanted place.

        `nodes`: how many nodes it shall span; None: as few as possible. Raises PreflightError when it can never fit,
        ClusterLost when nothing can any more.
        """

    def run(self, slot: Slot, job: GroupJob) -> AsyncGenerator[GroupEvent, None]:
        """The events of the group. A lost worker raises ServerError(node_lost); closing early stops the server."""

    async def stop(self) -> None:
        """Ask every running group to stop its server and end; their iterators then end."""

    async def release(self, slot: Slot) -> None: ...

    async def close(self) -> None:
        """Give back everything that was taken."""


class LocalPool:
    """Runs groups in this process, one per slot. No GPUs are reserved: for the CPU engine and for fake servers."""

    def __init__(self, tools: Tools, *, slots: int = 1) -> None:
        self._tools = tools
        self._free = asyncio.Semaphore(slots)
        self._slots = slots
        self._numbers = list(range(slots))
        self._running: set[asyncio.Task[None]] = set()

    async def room(self) -> Room:
        return Room(nodes=(Node(name="local", units=tuple(range(self._slots))),))

    async def acquire(self, gpus: int, at: Place | None = None, *, nodes: int | None = None) -> Slot:
        if gpus > 1 or (nodes or 1) > 1:
            raise PreflightError(f"a server of {gpus} slots does not fit in a local slot; use a Ray pool")
        await self._free.acquire()
        number = at.units[0] if at is not None and at.units[0] in self._numbers else self._numbers[0]
        self._numbers.remove(number)
        name = f"local {number}"
        return Slot(slot_id=name, name=name, gpu_ids=(), place=Place(node="local", units=(number,)))

    async def run(self, slot: Slot, job: GroupJob) -> AsyncGenerator[GroupEvent, None]:
        events: asyncio.Queue[GroupEvent | None] = asyncio.Queue()
        task = asyncio.create_task(pump(job, self._tools, events))
        self._running.add(task)
        try:
            while (event := await events.get()) is not None:
                yield event
        finally:
            self._running.discard(task)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()

    async def release(self, slot: Slot) -> None:
        self._numbers.append(int(slot.name.removeprefix("local ")))
        self._free.release()

    async def close(self) -> None:
        await self.stop()


async def pump(job: GroupJob, tools: Tools, events: "asyncio.Queue[GroupEvent | None]") -> None:
    """Run a group into a queue, so that cancelling this task ends it wherever it stands; None is the end."""
    stream = run_group(job, tools)
    try:
        async for event in stream:
            events.put_nowait(event)
    finally:
        await stream.aclose()
        events.put_nowait(None)
