"""What runs in a slot, on whatever node that is: a group's runner, or a further rank of a server that spans nodes."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweeper.core.events import GroupEvent
from sweeper.core.launch import LaunchPlan, ServerFailure
from sweeper.core.run import GroupJob
from sweeper.engine.argv import Seat
from sweeper.errors import PreflightError, ServerError, SweeperError
from sweeper.execution.pool import pump
from sweeper.execution.ranks import NodeRank, SpanningLauncher
from sweeper.execution.ray_address import first_line
from sweeper.execution.ray_cluster import ClusterError, Whereabouts, whereabouts
from sweeper.execution.runner import Tools
from sweeper.store import layout

PIECE_BYTES = 4 << 20


class Worker:
    """A process of the cluster; lives as long as its slot."""

    def __init__(self, tools: Callable[[], Tools], controller_node: str) -> None:
        self._tools = tools()
        self._controller_node = controller_node
        self._task: asyncio.Task[None] | None = None
        self._rank: NodeRank | None = None
        self._own_folder: Path | None = None
        """Stands in for the run's folder where that is not to be seen; what it holds is fetched at the end."""

    async def place(self) -> Whereabouts:
        return whereabouts()

    async def pid(self) -> int:
        return os.getpid()

    async def run(self, job: GroupJob, others: Sequence[Any] = ()) -> AsyncGenerator[GroupEvent, None]:
        """`others`: the workers of the further nodes that the server spans."""
        here = self._here(job)
        tools = self._tools
        if others:
            ranks = [FarRank(worker=worker, rank=rank, job=job) for rank, worker in enumerate(others, start=1)]
            tools = replace(tools, launcher=SpanningLauncher(tools.launcher, ranks, host=whereabouts().address))
        events: asyncio.Queue[GroupEvent | None] = asyncio.Queue()
        self._task = asyncio.create_task(pump(here, tools, events))
        while (event := await events.get()) is not None:
            yield event
        self._task = None

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def seat(self, rank: int, job: GroupJob) -> Seat:
        """The first of the steps of a further rank; see ranks.Rank."""
        if self._tools.accompany is None:
            raise PreflightError("this server cannot span nodes; lower tp_size")
        at = whereabouts()
        here = replace(self._here(job), gpu_ids=at.gpu_ids)
        self._rank = NodeRank(self._tools.accompany, rank, here, host=at.address)
        return await self._rank.seat()

    async def start_rank(self, plan: LaunchPlan) -> None:
        assert self._rank is not None
        await self._rank.start(plan)

    async def rank_ended(self) -> ServerFailure:
        assert self._rank is not None
        return await self._rank.ended()

    async def stop_rank(self) -> None:
        if self._rank is not None:
            await self._rank.stop()

    async def fetched(self) -> AsyncGenerator[tuple[str, bytes], None]:
        """(path below the run's folder, next bytes) of the files that the controller cannot see, each once."""
        folder, self._own_folder = self._own_folder, None
        if folder is None:
            return
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            with path.open("rb") as file:
                while data := file.read(PIECE_BYTES):
                    yield str(path.relative_to(folder)), data
        shutil.rmtree(folder, ignore_errors=True)

    def _here(self, job: GroupJob) -> GroupJob:
        """The job as this node sees it: the controller's pid and perhaps its folder mean nothing on another.

        There Ray ends this process when the controller is gone, and the keeper looks at this process.
        """
        if whereabouts().node_id == self._controller_node:
            return job
        run_dir = job.run_dir
        if not (run_dir / layout.PLAN).exists():
            self._own_folder = run_dir = self._own_folder or Path(tempfile.mkdtemp(prefix=f"sweeper-{job.run_id}-"))
        return replace(job, owner_pid=os.getpid(), run_dir=run_dir)


@dataclass(frozen=True, slots=True, kw_only=True)
class FarRank:
    """Implements ranks.Rank by the worker of another node."""

    worker: Any
    rank: int
    job: GroupJob

    async def seat(self) -> Seat:
        seat: Seat = await self._asked(self.worker.seat, self.rank, self.job)
        return seat

    async def start(self, plan: LaunchPlan) -> None:
        await self._asked(self.worker.start_rank, plan)

    async def ended(self) -> ServerFailure:
        try:
            failure: ServerFailure = await self._asked(self.worker.rank_ended)
        except ServerError as error:
            return ServerFailure(
                failure_class=error.failure_class,
                message=str(error),
                remedy="run again with --retry-failed: finished measurements are kept",
            )
        return failure

    async def stop(self) -> None:
        with suppress(ServerError):  # its node is lost; the keeper there ends what it can
            await self._asked(self.worker.stop_rank)

    async def _asked(self, method: Any, *arguments: Any) -> Any:
        try:
            return await method.remote(*arguments)
        except SweeperError as error:  # of the far node; Ray's wrapper is one of these too, its text a trace
            raise getattr(error, "cause", error) from None
        except ClusterError as error:
            raise ServerError(
                f"the worker of rank {self.rank} was lost: {first_line(error)}", failure_class="node_lost"
            ) from error
