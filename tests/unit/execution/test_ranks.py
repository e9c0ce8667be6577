"""A server that spans nodes, with a fake first rank and scripted further ones."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from sweeper.core.launch import LaunchPlan, ServerFailure
from sweeper.engine.argv import Seat
from sweeper.errors import ServerError
from sweeper.execution.ranks import SpanningLauncher
from sweeper.testing.launcher import FakeLauncher, Script

PLAN = LaunchPlan(
    launch_id="abc",
    argv=("python", "-m", "sglang.launch_server", "--port", "31000"),
    env={},
    gpu_ids=(0, 1),
    host="127.0.0.1",
    port=31000,
    base_url="http://127.0.0.1:31000",
    served_model_name="sweeper-abc",
    ready_timeout_s=1,
    log_path=Path("/r/server.log"),
)
OUT_OF_MEMORY = ServerFailure(failure_class="oom_load", message="no memory for the weights", remedy="more GPUs")


class ScriptedRank:
    """Ends when it is told to."""

    def __init__(self, *, refuses: ServerError | None = None) -> None:
        self.plan: LaunchPlan | None = None
        self.stopped = 0
        self._refuses = refuses
        self._told: asyncio.Future[ServerFailure] = asyncio.get_running_loop().create_future()

    def end(self, failure: ServerFailure) -> None:
        self._told.set_result(failure)

    async def seat(self) -> Seat:
        if self._refuses is not None:
            raise self._refuses
        return Seat(gpu_ids=(4, 5), host="far", port=32000, log_path=Path("/r/server-rank1.log"))

    async def start(self, plan: LaunchPlan) -> None:
        self.plan = plan

    async def ended(self) -> ServerFailure:
        return await self._told

    async def stop(self) -> None:
        self.stopped += 1


class NeverReady:
    """A first rank that waits for the others for ever."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.left = False

    def launch(self, plan: LaunchPlan, **_: object) -> "NeverReady":
        return self

    async def __aenter__(self) -> None:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left = True

    async def __aexit__(self, *_: object) -> None: ...


def launched(first: object, rank: ScriptedRank, seen: Callable[[object], None]) -> "asyncio.Task[None]":
    launcher = SpanningLauncher(first, [rank], host="near")  # type: ignore[arg-type]

    async def life() -> None:
        async with launcher.launch(PLAN, run_id="r", owner_pid=1, on_phase=lambda phase, text: None) as server:
            seen(server)

    return asyncio.create_task(life())


async def test_every_rank_gets_its_plan_and_all_end_together() -> None:
    first, rank = FakeLauncher(), ScriptedRank()
    await launched(first, rank, lambda server: None)
    near, far = first.servers[0].plan, rank.plan
    assert far is not None
    assert near.argv[-6:-2] == ("--nnodes", "2", "--node-rank", "0")
    assert far.argv[-6:-2] == ("--nnodes", "2", "--node-rank", "1")
    assert near.argv[-1] == far.argv[-1] and near.argv[-1].startswith("near:")
    assert far.argv[4] == "32000" and far.gpu_ids == (4, 5)
    assert first.servers[0].stopped and rank.stopped == 1


async def test_a_rank_that_dies_while_the_server_starts_ends_the_wait_and_is_named() -> None:
    first, rank = NeverReady(), ScriptedRank()
    life = launched(first, rank, lambda server: None)
    await first.entered.wait()
    rank.end(OUT_OF_MEMORY)
    with pytest.raises(ServerError, match="rank 1 on far: no memory for the weights") as caught:
        await life
    assert caught.value.failure_class == "oom_load"
    assert first.left and rank.stopped == 1


async def test_what_another_rank_says_goes_before_a_broken_connection() -> None:
    broken = ServerError("connection closed by peer", failure_class="nccl", log_lines=(), remedy="")
    rank = ScriptedRank()
    rank.end(OUT_OF_MEMORY)
    with pytest.raises(ServerError) as caught:
        await launched(FakeLauncher(lambda plan: Script(fails=broken)), rank, lambda server: None)
    assert caught.value.failure_class == "oom_load"


async def test_a_cause_of_the_first_rank_is_not_hidden_by_the_end_of_the_others() -> None:
    refused = ServerError("unrecognized arguments: --x", failure_class="bad_argument", log_lines=(), remedy="")
    rank = ScriptedRank()
    with pytest.raises(ServerError) as caught:
        await launched(FakeLauncher(lambda plan: Script(fails=refused)), rank, lambda server: None)
    assert caught.value.failure_class == "bad_argument"
    assert rank.stopped == 1


async def test_a_rank_that_dies_under_load_fails_the_server() -> None:
    rank = ScriptedRank()
    launcher = SpanningLauncher(FakeLauncher(), [rank], host="near")
    async with launcher.launch(PLAN, run_id="r", owner_pid=1, on_phase=lambda phase, text: None) as server:
        assert await server.failure() is None
        rank.end(OUT_OF_MEMORY)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        failure = await server.failure()
    assert failure is not None and failure.message == "rank 1 on far: no memory for the weights"


async def test_a_node_without_room_for_its_rank_starts_nothing_and_keeps_nothing() -> None:
    first = FakeLauncher()
    rank = ScriptedRank(refuses=ServerError("no port", failure_class="port", log_lines=(), remedy=""))
    with pytest.raises(ServerError, match="no port"):
        await launched(first, rank, lambda server: None)
    assert first.servers == [] and rank.stopped == 1


async def test_being_stopped_while_starting_ends_the_first_rank_and_the_others() -> None:
    first, rank = NeverReady(), ScriptedRank()
    life = launched(first, rank, lambda server: None)
    await first.entered.wait()
    life.cancel()
    with suppress(asyncio.CancelledError):
        await life
    assert first.left and rank.stopped == 1
