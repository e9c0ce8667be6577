"""A server that spans several nodes: a process on each, of which the first answers; they live and die together."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sweeper.core.launch import (
    Affinity,
    EffectiveConfig,
    EngineFingerprint,
    Launcher,
    LaunchPlan,
    Phase,
    Server,
    ServerFailure,
    StartupTimes,
)
from sweeper.core.run import GroupJob
from sweeper.effects.overlay import overlay_for
from sweeper.effects.ports import reserve_port
from sweeper.engine.argv import Seat, rank_plans
from sweeper.engine.ports import meeting_block
from sweeper.engine.request import attention_dp
from sweeper.errors import ServerError, StoreError
from sweeper.store import layout

CONSEQUENCES = frozenset({"nccl", "crash_start", "crash_load", "scheduler_dead", "hang_start", "hang_load", "unknown"})
"""How the death of one rank looks from another."""
AFTERTHOUGHT_S = 5.0
"""So long another rank is given to say why the first one failed."""


class Ended(Protocol):
    async def ended(self) -> ServerFailure:
        """Waits until the process cannot go on, and says why."""


class Accompany(Protocol):
    """Starts a further rank on this node; see SglangLauncher.accompany."""

    def __call__(self, plan: LaunchPlan, *, run_id: str, owner_pid: int) -> AbstractAsyncContextManager[Ended]: ...


class Rank(Protocol):
    """One of the further nodes. Every method may raise SweeperError."""

    async def seat(self) -> Seat:
        """Reserves what the process there will need."""

    async def start(self, plan: LaunchPlan) -> None: ...

    async def ended(self) -> ServerFailure:
        """Waits until the process there cannot go on, or its node is lost."""

    async def stop(self) -> None:
        """Ends the process there and gives the seat back; also when it was never started."""


class NodeRank:
    """A Rank on this very node."""

    def __init__(self, accompany: Accompany, rank: int, job: GroupJob, *, host: str) -> None:
        """`job.gpu_ids`: the GPUs of this node."""
        self._accompany = accompany
        self._rank = rank
        self._job = job
        self._host = host
        self._held = AsyncExitStack()
        self._process: Ended | None = None

    async def seat(self) -> Seat:
        job = self._job
        folder = layout.start_dir(job.run_dir, job.group_id, job.start)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be made on {self._host}: {error.strerror}") from error
        overlay_for(job.arm.server)
        holder = f"run {job.run_id}, rank {self._rank}"
        port = self._held.enter_context(reserve_port(holder=holder, dp_attention=attention_dp(job.arm.server.args)))
        log_path = folder / layout.rank_log(self._rank)
        return Seat(gpu_ids=job.gpu_ids, host=self._host, port=port, log_path=log_path)

    async def start(self, plan: LaunchPlan) -> None:
        job = self._job
        self._process = await self._held.enter_async_context(
            self._accompany(plan, run_id=job.run_id, owner_pid=job.owner_pid)
        )

    async def ended(self) -> ServerFailure:
        assert self._process is not None
        return await self._process.ended()

    async def stop(self) -> None:
        await self._held.aclose()


class SpanningLauncher:
    """Implements core.launch.Launcher: rank 0 by another launcher on this node, the others by their nodes."""

    def __init__(self, first: Launcher, others: Sequence[Rank], *, host: str) -> None:
        """`host`: this node's address, as the others reach it."""
        self._first = first
        self._others = others
        self._host = host

    @asynccontextmanager
    async def launch(
        self, plan: LaunchPlan, *, run_id: str, owner_pid: int, on_phase: Callable[[Phase, str], None]
    ) -> AsyncIterator[Server]:
        async with AsyncExitStack() as stack:
            for rank in self._others:
                stack.push_async_callback(rank.stop)
            seat = Seat(gpu_ids=plan.gpu_ids, host=self._host, port=plan.port, log_path=plan.log_path)
            seats = [seat, *[await rank.seat() for rank in self._others]]
            dist_port = stack.enter_context(reserve_port(holder=f"run {run_id}, ranks", block=meeting_block))
            plans = rank_plans(plan, seats, dist_port=dist_port)
            for rank, its in zip(self._others, plans[1:], strict=True):
                await rank.start(its)
            watch = stack.enter_context(_Watch(self._others, seats[1:]))
            launching = self._first.launch(plans[0], run_id=run_id, owner_pid=owner_pid, on_phase=on_phase)
            server = await watch.unless_one_ends(launching)
            stack.push_async_exit(launching)
            yield _Spanning(server=server, watch=watch)


class _Watch:
    """Over the further ranks while the server lives."""

    def __init__(self, ranks: Sequence[Rank], seats: Sequence[Seat]) -> None:
        self._ranks = ranks
        self._seats = seats
        self._tasks: list[asyncio.Task[ServerFailure]] = []

    def __enter__(self) -> "_Watch":
        self._tasks = [asyncio.create_task(rank.ended()) for rank in self._ranks]
        return self

    def __exit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()

    async def unless_one_ends(self, launching: AbstractAsyncContextManager[Server]) -> Server:
        """The first rank, entered and ready. Raises ServerError: its own, or that of the rank that brought it down."""
        first = asyncio.ensure_future(_entered(launching))
        try:
            await asyncio.wait([first, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                raise self._error()
            return first.result()
        except BaseException as error:
            first.cancel()
            (left,) = await asyncio.gather(first, return_exceptions=True)
            if not isinstance(left, BaseException):
                await launching.__aexit__(None, None, None)
            if isinstance(error, ServerError) and error.failure_class in CONSEQUENCES and await self._speaks():
                raise self._error() from error
            raise

    async def _speaks(self) -> bool:
        """Has another rank failed of a cause of its own?"""
        await asyncio.wait(self._tasks, timeout=AFTERTHOUGHT_S, return_when=asyncio.FIRST_COMPLETED)
        failure = self.failure()
        return failure is not None and failure.failure_class not in CONSEQUENCES

    def _error(self) -> ServerError:
        failure = self.failure()
        assert failure is not None
        return ServerError(
            failure.message,
            failure_class=failure.failure_class,
            log_lines=failure.log_lines,
            remedy=failure.remedy,
        )

    def failure(self) -> ServerFailure | None:
        """Of the ranks that ended, the one that names a cause, else the first; None: all live."""
        ended = [
            replace(task.result(), message=f"rank {rank} on {seat.host}: {task.result().message}")
            for rank, (task, seat) in enumerate(zip(self._tasks, self._seats, strict=True), start=1)
            if task.done() and not task.cancelled()
        ]
        return min(ended, key=lambda one: one.failure_class in CONSEQUENCES, default=None)


async def _entered(launching: AbstractAsyncContextManager[Server]) -> Server:
    return await launching.__aenter__()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spanning:
    """Implements core.launch.Server: the first rank, as long as all the others live."""

    server: Server
    watch: _Watch

    @property
    def plan(self) -> LaunchPlan:
        return self.server.plan

    @property
    def info(self) -> Mapping[str, Any]:
        return self.server.info

    @property
    def effective(self) -> EffectiveConfig:
        return self.server.effective

    @property
    def times(self) -> StartupTimes:
        return self.server.times

    @property
    def engine(self) -> EngineFingerprint:
        return self.server.engine

    @property
    def affinity(self) -> Affinity:
        return self.server.affinity

    async def flush(self) -> str:
        return await self.server.flush()

    async def failure(self) -> ServerFailure | None:
        """A cause named by any rank before a mere consequence; of consequences, the first rank's."""
        own = await self.server.failure()
        if own is not None and own.failure_class not in CONSEQUENCES:
            return own
        other = self.watch.failure()
        if other is None or (own is not None and other.failure_class in CONSEQUENCES):
            return own
        return replace(other, failure_class="crash_load") if other.failure_class == "crash_start" else other
