"""Every way a server start fails that can be had on a CPU, on the real engine: class, speed, and nothing left behind.

About three minutes on two idle cores; each test is one engine start or none.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import sweeper
from sweeper.core.launch import Phase, ServerFailure
from sweeper.core.trial import ServerConfig, SpecConfig
from sweeper.effects import ledger
from sweeper.effects.overlay import draft_overlay
from sweeper.effects.ports import reserve_port
from sweeper.effects.process import ProcessInfo, process_table, session_members
from sweeper.effects.running import RunningServer
from sweeper.effects.server import SglangLauncher
from sweeper.effects.startup import Patience
from sweeper.engine.argv import launch_plan
from sweeper.engine.audit import differences
from sweeper.errors import ServerError
from sweeper.toy import ToyPair, unpack

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("sglang") is None, reason="SGLang is not installed in this interpreter"),
]

CPU_ENGINE = Path(sweeper.__file__).parent / "data" / "cpu_engine"
START_S = 600.0


class Bench:
    """One server start after the other, in a ledger of the test's own."""

    def __init__(self, pair: ToyPair, folder: Path) -> None:
        self.pair = pair
        self.folder = folder
        self.phases: list[Phase] = []
        self.phase_hooks: dict[Phase, Any] = {}

    def config(self, *, draft: Path | None = None, tokens: int = 4, **args: Any) -> ServerConfig:
        spec = SpecConfig(
            algorithm="EAGLE3",
            draft_model_path=str(draft or self.pair.draft),
            num_steps=3,
            eagle_topk=1,
            num_draft_tokens=tokens,
        )
        return ServerConfig(
            model_path=str(self.pair.target),
            device="cpu",
            args={"context_length": 1024, **args},
            env={},
            spec=spec,
            ready_timeout_s=START_S,
        )

    @asynccontextmanager
    async def launch(
        self, config: ServerConfig, patience: Patience | None = None
    ) -> AsyncIterator[tuple[RunningServer, ledger.Entry]]:
        launch_id = uuid.uuid4().hex[:10]
        with reserve_port(holder="test of failures") as port:
            plan = launch_plan(
                config,
                launch_id=launch_id,
                gpu_ids=(),
                port=port,
                log_path=self.folder / f"{launch_id}.log",
                python=sys.executable,
                cpu_engine_dir=CPU_ENGINE,
            )
            self.port = port
            launcher = SglangLauncher(patience=patience)
            async with launcher.launch(plan, run_id="f", owner_pid=os.getpid(), on_phase=self._on_phase) as server:
                (entry,) = ledger.read_entries()
                yield server, entry

    async def fails(self, config: ServerConfig, patience: Patience | None = None) -> ServerError:
        before = {info.pid for info in process_table()}
        with pytest.raises(ServerError) as caught:
            async with self.launch(config, patience):
                pytest.fail("it must not become ready")
        assert ledger.read_entries() == ()
        assert left_behind(before) == []
        return caught.value

    def _on_phase(self, phase: Phase, detail: str) -> None:
        self.phases.append(phase)
        hook = self.phase_hooks.pop(phase, None)
        if hook is not None:
            hook()


def left_behind(before: set[int]) -> list[ProcessInfo]:
    """Engine processes of this test run that are still there, by our own session of the ledger's nonce."""
    marker = f"{ledger.STATE_DIR_VARIABLE}={os.environ[ledger.STATE_DIR_VARIABLE]}".encode()
    found = []
    for info in process_table():
        try:
            environ = Path(f"/proc/{info.pid}/environ").read_bytes()
        except OSError:
            continue
        if info.pid not in before and b"SWEEPER_LAUNCH_ID" in environ and marker in environ:
            found.append(info)
    return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ToyPair:
    return unpack(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def bench(pair: ToyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv(ledger.STATE_DIR_VARIABLE, str(tmp_path / "state"))
    yield Bench(pair, tmp_path)
    assert ledger.read_entries() == ()


async def death_of(server: RunningServer) -> ServerFailure:
    async with asyncio.timeout(60):
        while (failure := await server.failure()) is None:  # noqa: ASYNC110  the runner polls likewise
            await asyncio.sleep(0.1)
    return failure


async def test_a_refused_argument_is_one_line_and_no_wait(bench: Bench) -> None:
    error = await bench.fails(bench.config(no_such_flag_of_the_engine=3))
    assert error.failure_class == "bad_argument"
    assert "--no-such-flag-of-the-engine" in str(error)
    assert "loading" not in bench.phases


async def test_a_draft_that_is_not_there_is_named(bench: Bench) -> None:
    error = await bench.fails(bench.config(draft=bench.folder / "no-such-draft"))
    assert error.failure_class == "draft_not_found"
    assert "no-such-draft" in str(error)


async def test_layer_ids_that_are_never_reached_are_a_draft_mismatch_and_never_ready(bench: Bench) -> None:
    layers = int(json.loads((bench.pair.target / "config.json").read_text())["num_hidden_layers"])
    draft = draft_overlay(bench.pair.draft, (1, 2, layers - 1), bench.folder / "overlays")
    error = await bench.fails(bench.config(draft=draft))
    assert error.failure_class == "draft_mismatch"
    assert "aux_layer_ids" in error.remedy
    assert "ready" not in bench.phases


async def test_a_port_taken_before_the_launch_starts_nothing(bench: Bench) -> None:
    with socket.socket() as stranger:
        bench.phase_hooks["cleaning"] = lambda: listen(stranger, bench.port)
        error = await bench.fails(bench.config())
    assert error.failure_class == "port"
    assert f"pid {os.getpid()}" in str(error)
    assert "launching" not in bench.phases


async def test_a_port_taken_while_loading_is_seen_before_the_load_is_over(bench: Bench) -> None:
    with socket.socket() as stranger:
        bench.phase_hooks["launching"] = lambda: listen(stranger, bench.port)
        error = await bench.fails(bench.config(), replace(Patience(), port_check_s=0.5))
    assert error.failure_class == "port"
    assert "warming" not in bench.phases


async def test_a_server_that_stands_still_is_a_hang_and_can_still_be_ended(bench: Bench) -> None:
    def stop() -> None:
        (entry,) = ledger.read_entries()
        for info in session_members(entry.sid or 0):
            os.kill(info.pid, signal.SIGSTOP)

    bench.phase_hooks["loading"] = stop
    error = await bench.fails(bench.config(), replace(Patience(), stall_s=10.0, term_wait_s=5.0))
    assert error.failure_class == "hang_start"
    assert "no progress for" in str(error)


async def test_a_killed_scheduler_is_seen_behind_the_living_http_server(bench: Bench) -> None:
    config = bench.config(tokens=16)
    async with bench.launch(config) as (server, entry):
        assert server.effective.triple == "3-1-4"
        (difference,) = differences(config, server.effective, server.effective.version)
        assert (difference.requested, difference.effective) == (16, 4)
        assert difference.explained is not None
        assert await server.flush() == "flushed"
        scheduler = next(info for info in session_members(entry.sid or 0) if info.name.startswith("sglang::sched"))
        os.kill(scheduler.pid, signal.SIGSTOP)
        stopped = await death_of(server)
        assert (stopped.failure_class, str(scheduler.pid) in stopped.message) == ("hang_load", True)
        os.kill(scheduler.pid, signal.SIGCONT)
        os.kill(scheduler.pid, signal.SIGKILL)
        failure = await death_of(server)
        assert failure.failure_class == "scheduler_dead"
        assert failure.log_lines
    assert session_members(entry.sid or 0) == ()


async def test_schedulers_of_a_killed_launcher_are_ended_with_their_session(bench: Bench) -> None:
    async with bench.launch(bench.config()) as (server, entry):
        assert entry.sid is not None
        os.kill(entry.sid, signal.SIGKILL)
        failure = await death_of(server)
        assert failure.failure_class in ("crash_load", "scheduler_dead")
        assert "exit code -9" in failure.message or "dead" in failure.message
    assert session_members(entry.sid) == ()


def listen(stranger: socket.socket, port: int) -> None:
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    stranger.bind(("127.0.0.1", port))
    stranger.listen()
