"""The launcher against a stand-in process that behaves like the engine; the real engine is tested in tests/real."""

import asyncio
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.core.launch import LaunchPlan, Phase
from sweeper.effects import ledger
from sweeper.effects.gpu import Inventory
from sweeper.effects.ports import reserve_port
from sweeper.effects.process import processes_with_launch_id, session_members
from sweeper.effects.server import SglangLauncher, server_environment
from sweeper.effects.startup import Patience
from sweeper.errors import DiskError, GpuBusy, PreflightError, ServerError, StoreError
from sweeper.testing.gpus import FakeGpus, fake_node

STUB = str(Path(__file__).parent / "stub_engine.py")
QUICK = Patience(poll_s=0.05, stall_s=20.0, doomed_s=0.1, port_check_s=0.1, term_wait_s=1.0, memory_wait_s=0.5)


@pytest.fixture
def port(state: Path) -> Iterator[int]:
    with reserve_port(holder="test") as free:
        yield free


def plan_of(
    behaviour: str, port: int, tmp_path: Path, *, timeout_s: float = 20.0, gpus: tuple[int, ...] = ()
) -> LaunchPlan:
    return LaunchPlan(
        launch_id=f"id-{port}",
        argv=(sys.executable, STUB, behaviour, "--port", str(port), "--served-model-name", f"sweeper-{port}"),
        env={},
        gpu_ids=gpus,
        host="127.0.0.1",
        port=port,
        base_url=f"http://127.0.0.1:{port}",
        served_model_name=f"sweeper-{port}",
        ready_timeout_s=timeout_s,
        log_path=tmp_path / "server.log",
    )


async def launch_fails(
    behaviour: str, port: int, tmp_path: Path, *, timeout_s: float = 20.0, patience: Patience = QUICK
) -> ServerError:
    plan = plan_of(behaviour, port, tmp_path, timeout_s=timeout_s)
    with pytest.raises(ServerError) as caught:
        async with SglangLauncher(patience=patience).launch(plan, run_id="r", owner_pid=os.getpid(), on_phase=ignore):
            pytest.fail("it must not become ready")
    assert ledger.read_entries() == ()
    return caught.value


def ignore(phase: Phase, detail: str) -> None:
    pass


async def test_a_server_is_ready_after_a_real_generation_and_leaves_nothing_behind(port: int, tmp_path: Path) -> None:
    phases: list[Phase] = []
    plan = plan_of("good", port, tmp_path)
    launcher = SglangLauncher(patience=QUICK)
    async with launcher.launch(
        plan, run_id="r", owner_pid=os.getpid(), on_phase=lambda p, _: phases.append(p)
    ) as server:
        (entry,) = ledger.read_entries()
        assert entry.state == "launched" and entry.server is not None
        sid = entry.server.pid
        assert sid != os.getsid(0)
        assert server.times.ready_s is not None and server.times.ready_s > 0
        assert await server.failure() is None
        assert await server.flush() == "flushed after 2 waits"
    assert session_members(sid) == ()
    assert ledger.read_entries() == ()
    told = list(dict.fromkeys(phases))
    assert told[:3] == ["waiting", "cleaning", "launching"]
    assert told[-3:] == ["ready", "stopping", "done"]


async def test_secrets_of_server_info_are_hidden(port: int, tmp_path: Path) -> None:
    launcher = SglangLauncher(patience=QUICK)
    async with launcher.launch(
        plan_of("good", port, tmp_path), run_id="r", owner_pid=os.getpid(), on_phase=ignore
    ) as server:
        assert server.info["api_key"] == "***"
        assert "very-secret" not in str(server.effective)


async def test_a_refused_argument_fails_as_soon_as_the_process_ends(port: int, tmp_path: Path) -> None:
    error = await launch_fails("bad-flag", port, tmp_path)
    assert error.failure_class == "bad_argument"
    assert "--no-such-flag" in str(error)
    assert error.log_lines == ("sglang serve: error: unrecognized arguments: --no-such-flag 3",)


async def test_out_of_memory_at_load_is_named_with_its_traceback(port: int, tmp_path: Path) -> None:
    error = await launch_fails("oom", port, tmp_path)
    assert error.failure_class == "oom_load"
    assert error.log_lines[0].startswith("Traceback")


async def test_silence_without_cpu_time_is_a_hang(port: int, tmp_path: Path) -> None:
    error = await launch_fails("hang", port, tmp_path, patience=replace(QUICK, stall_s=1.0))
    assert (error.failure_class, "no progress" in str(error)) == ("hang_start", True)


def install_py_spy(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tool = folder / "bin" / "py-spy"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")


async def test_a_hang_under_load_keeps_the_stacks_beside_the_log(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_py_spy(tmp_path, monkeypatch, "echo stack of $3")
    plan = plan_of("good", port, tmp_path)
    with pytest.raises(ServerError):
        async with SglangLauncher(patience=QUICK).launch(plan, run_id="r", owner_pid=os.getpid(), on_phase=ignore):
            (entry,) = ledger.read_entries()
            raise ServerError("no token for 120 s", failure_class="hang_load")
    assert f"stack of {entry.sid}" in (tmp_path / "server.stacks.txt").read_text()


async def test_stacks_that_cannot_be_written_do_not_hide_the_hang(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_py_spy(tmp_path, monkeypatch, "")
    (tmp_path / "server.stacks.txt").symlink_to("/dev/full")
    with pytest.raises(ServerError, match="no token"):
        async with SglangLauncher(patience=QUICK).launch(
            plan_of("good", port, tmp_path), run_id="r", owner_pid=os.getpid(), on_phase=ignore
        ):
            raise ServerError("no token for 120 s", failure_class="hang_load")


async def test_a_port_whose_lock_cannot_be_made_is_no_port_that_is_taken(
    port: int, state: Path, tmp_path: Path
) -> None:
    lock = state / "locks" / f"port-{port}.lock"
    lock.unlink()
    lock.mkdir()
    with pytest.raises(DiskError, match="cannot be made"):
        async with SglangLauncher(patience=QUICK).launch(
            plan_of("good", port, tmp_path), run_id="r", owner_pid=os.getpid(), on_phase=ignore
        ):
            pytest.fail("it must not become ready")


async def test_a_dead_scheduler_is_seen_although_its_launcher_waits_on(port: int, tmp_path: Path) -> None:
    error = await launch_fails("doomed", port, tmp_path)
    assert error.failure_class == "bad_argument"
    assert "draft tree" in str(error)


async def test_a_server_that_generates_too_few_tokens_is_never_ready(port: int, tmp_path: Path) -> None:
    error = await launch_fails("short", port, tmp_path, timeout_s=1.5)
    assert error.failure_class == "hang_start"
    assert "in vain: HTTP 200 without 8 tokens" in str(error)


@pytest.mark.parametrize(("timeout_s", "stall_s"), [(1.5, 20.0), (20.0, 1.5)])
async def test_a_server_that_answers_and_does_not_generate_says_so(
    port: int, tmp_path: Path, timeout_s: float, stall_s: float
) -> None:
    patience = replace(QUICK, stall_s=stall_s, poll_s=0.5)
    error = await launch_fails("refusing", port, tmp_path, timeout_s=timeout_s, patience=patience)
    assert 'a generation was asked for in vain: HTTP 500: {"error": {"message": "no draft worker"}}' in str(error)
    assert error.remedy == "see the log for why it does not generate"


async def test_a_server_whose_log_says_nothing_is_ready_once_it_generates(port: int, tmp_path: Path) -> None:
    plan = plan_of("silent", port, tmp_path)
    launcher = SglangLauncher(patience=QUICK)
    async with launcher.launch(plan, run_id="r", owner_pid=os.getpid(), on_phase=ignore) as server:
        assert server.times.ready_s is not None and server.times.capture_s is None
    assert plan.log_path.read_text() == ""


async def test_a_server_of_another_name_is_not_measured(port: int, tmp_path: Path) -> None:
    error = await launch_fails("impostor", port, tmp_path)
    assert error.failure_class == "wrong_server"
    assert "yesterday" in str(error)


async def test_a_taken_port_is_refused_before_anything_is_started(port: int, tmp_path: Path) -> None:
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        error = await launch_fails("good", port, tmp_path)
    assert error.failure_class == "port"
    assert f"pid {os.getpid()}" in str(error)
    assert not (tmp_path / "server.log").exists()


async def test_a_stranger_that_takes_the_port_while_loading_is_seen_before_the_load_is_over(
    port: int, tmp_path: Path
) -> None:
    with socket.socket() as stranger:

        def on_phase(phase: Phase, detail: str) -> None:
            if phase == "loading" and stranger.getsockname()[1] == 0:
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                stranger.bind(("127.0.0.1", port))
                stranger.listen()

        with pytest.raises(ServerError) as caught:
            async with SglangLauncher(patience=QUICK).launch(
                plan_of("hang", port, tmp_path), run_id="r", owner_pid=os.getpid(), on_phase=on_phase
            ):
                pass
    assert caught.value.failure_class == "port"
    assert f"pid {os.getpid()}" in str(caught.value)
    assert caught.value.remedy.startswith("run again: another port is taken"), "which one is not the user's to choose"


async def test_two_launches_on_one_gpu_follow_each_other(port: int, tmp_path: Path) -> None:
    story: list[str] = []

    async def measure(name: str, own_port: int) -> None:
        def on_phase(phase: Phase, detail: str) -> None:
            if phase in ("waiting", "launching", "done"):
                story.append(f"{name} {phase} {detail}".strip())

        launcher = SglangLauncher(gpus=FakeGpus([fake_node(2)]), patience=QUICK)
        plan = replace(plan_of("good", own_port, tmp_path, gpus=(1,)), log_path=tmp_path / f"{name}.log")
        async with launcher.launch(plan, run_id=name, owner_pid=os.getpid(), on_phase=on_phase):
            await asyncio.sleep(0.1)

    with reserve_port(holder="second", first=port + 1) as other:
        async with asyncio.timeout(60):
            await asyncio.gather(measure("a", port), measure("b", other))
    assert [line for line in story if "in use by run" in line], "the second was told whom it waits for"
    moments = [line.split()[:2] for line in story if line.split()[1] in ("launching", "done")]
    first = moments[0][0]
    second = "b" if first == "a" else "a"
    assert moments == [[first, "launching"], [first, "done"], [second, "launching"], [second, "done"]]


async def test_a_log_that_cannot_be_written_starts_nothing(port: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    plan = replace(plan_of("good", port, tmp_path), log_path=tmp_path / "file" / "server.log")
    with pytest.raises(StoreError, match="log cannot be written"):
        async with SglangLauncher(patience=QUICK).launch(plan, run_id="r", owner_pid=os.getpid(), on_phase=ignore):
            pass
    assert ledger.read_entries() == ()


async def test_a_server_that_the_ledger_cannot_record_is_ended_at_once(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ledger.write_entry

    def full_disk(entry: ledger.Entry) -> None:
        if entry.state == "launched":
            raise PreflightError("the ledger cannot be written: No space left on device")
        whole(entry)

    monkeypatch.setattr(ledger, "write_entry", full_disk)
    with pytest.raises(PreflightError, match="No space left"):
        async with SglangLauncher(patience=QUICK).launch(
            plan_of("good", port, tmp_path), run_id="r", owner_pid=os.getpid(), on_phase=ignore
        ):
            pass
    assert processes_with_launch_id(f"id-{port}") == ()
    assert ledger.read_entries() == ()


async def test_an_interpreter_that_is_not_there_is_an_engine_that_is_missing(port: int, tmp_path: Path) -> None:
    plan = plan_of("good", port, tmp_path)
    gone = replace(plan, argv=("/no/such/python",))
    with pytest.raises(ServerError) as caught:
        async with SglangLauncher(patience=QUICK).launch(gone, run_id="r", owner_pid=os.getpid(), on_phase=ignore):
            pass
    assert caught.value.failure_class == "engine_missing"
    assert ledger.read_entries() == ()


async def test_a_death_under_load_is_diagnosed_from_the_log(port: int, tmp_path: Path) -> None:
    launcher = SglangLauncher(patience=QUICK)
    plan = plan_of("dies-later", port, tmp_path)
    async with launcher.launch(plan, run_id="r", owner_pid=os.getpid(), on_phase=ignore) as server:
        async with asyncio.timeout(20):
            while (failure := await server.failure()) is None:  # noqa: ASYNC110  the runner polls likewise
                await asyncio.sleep(0.05)
    assert failure.failure_class == "illegal_memory"


async def test_a_server_that_ignores_term_is_killed_with_its_children(port: int, tmp_path: Path) -> None:
    launcher = SglangLauncher(patience=QUICK)
    plan = plan_of("stubborn", port, tmp_path)
    async with launcher.launch(plan, run_id="r", owner_pid=os.getpid(), on_phase=ignore):
        (entry,) = ledger.read_entries()
        assert entry.sid is not None
        assert len(session_members(entry.sid)) == 2
    assert session_members(entry.sid) == ()


async def test_what_left_the_servers_session_is_ended_with_it(port: int, tmp_path: Path) -> None:
    plan = plan_of("strays", port, tmp_path)
    async with SglangLauncher(patience=QUICK).launch(plan, run_id="r", owner_pid=os.getpid(), on_phase=ignore):
        (entry,) = ledger.read_entries()
        assert len({info.sid for info in processes_with_launch_id(plan.launch_id)}) == 2
        assert len(ledger.proven_members(entry)) == 2
    assert processes_with_launch_id(plan.launch_id) == () and ledger.read_entries() == ()


async def test_a_cancelled_start_leaves_nothing(port: int, tmp_path: Path) -> None:
    loading = asyncio.Event()

    async def start() -> None:
        def on_phase(phase: Phase, detail: str) -> None:
            if phase == "loading":
                loading.set()

        plan = plan_of("hang", port, tmp_path)
        async with SglangLauncher(patience=QUICK).launch(plan, run_id="r", owner_pid=os.getpid(), on_phase=on_phase):
            pass

    task = asyncio.create_task(start())
    await asyncio.wait_for(loading.wait(), 20)
    (entry,) = ledger.read_entries()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert entry.sid is not None and session_members(entry.sid) == ()
    assert ledger.read_entries() == ()


async def test_a_second_cancellation_kills_at_once_and_still_leaves_nothing(port: int, tmp_path: Path) -> None:
    ready, stopping = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        def on_phase(phase: Phase, detail: str) -> None:
            {"ready": ready, "stopping": stopping}.get(phase, asyncio.Event()).set()

        patience = replace(QUICK, term_wait_s=600.0)
        async with SglangLauncher(patience=patience).launch(
            plan_of("stubborn", port, tmp_path), run_id="r", owner_pid=os.getpid(), on_phase=on_phase
        ):
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    async with asyncio.timeout(60):
        await ready.wait()
        (entry,) = ledger.read_entries()
        task.cancel()
        await stopping.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert session_members(entry.sid or 0) == ()
    assert ledger.read_entries() == ()


async def test_a_gpu_held_by_an_unseen_process_refuses_the_launch(port: int, tmp_path: Path) -> None:
    launcher = SglangLauncher(gpus=FakeGpus([fake_node(gpu2=61440)]), patience=QUICK)
    with pytest.raises(GpuBusy, match="not visible here"):
        async with launcher.launch(
            plan_of("good", port, tmp_path, gpus=(2,)), run_id="r", owner_pid=os.getpid(), on_phase=ignore
        ):
            pass
    assert ledger.read_entries() == ()


async def test_a_gpu_whose_memory_falls_within_the_wait_is_used(port: int, tmp_path: Path) -> None:
    gpus = FakeGpus([fake_node(gpu6=58211), fake_node(gpu6=58211), fake_node()])
    async with SglangLauncher(gpus=gpus, patience=QUICK).launch(
        plan_of("good", port, tmp_path, gpus=(6,)), run_id="r", owner_pid=os.getpid(), on_phase=ignore
    ):
        (entry,) = ledger.read_entries()
        assert entry.gpu_ids == (6,)


async def test_a_cuda_launch_without_nvml_is_one_clear_line(port: int, tmp_path: Path) -> None:
    launcher = SglangLauncher(gpus=FakeGpus([Inventory(problem="no NVML: not found")]), patience=QUICK)
    with pytest.raises(PreflightError, match="device is cuda, but no NVML"):
        async with launcher.launch(
            plan_of("good", port, tmp_path, gpus=(0,)), run_id="r", owner_pid=os.getpid(), on_phase=ignore
        ):
            pass


def test_inherited_engine_switches_do_not_reach_the_server(tmp_path: Path) -> None:
    inherited = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0", "PATH": "/bin", "CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    plan = plan_of("good", 31999, tmp_path, gpus=(6, 7))
    env = server_environment(plan, inherited, fake_node())
    assert "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION" not in env
    assert (env["CUDA_VISIBLE_DEVICES"], env["PATH"], env["SWEEPER_LAUNCH_ID"]) == ("6,7", "/bin", "id-31999")


async def test_with_attention_dp_a_taken_derived_port_refuses_the_launch(port: int, tmp_path: Path) -> None:
    plan = plan_of("good", port, tmp_path)
    plan = replace(plan, argv=(*plan.argv, "--enable-dp-attention"))
    with socket.socket() as stale:
        stale.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stale.bind(("127.0.0.1", port + 233 + 3))
        stale.listen()
        with pytest.raises(ServerError, match=f"port {port + 236} is in use by pid") as caught:
            async with SglangLauncher(patience=QUICK).launch(plan, run_id="r", owner_pid=os.getpid(), on_phase=ignore):
                pass
    assert caught.value.failure_class == "port"


def test_an_allotment_of_gpus_is_not_overridden(tmp_path: Path) -> None:
    inherited = {"CUDA_VISIBLE_DEVICES": "2,3", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
    with pytest.raises(PreflightError, match="outside of what this job was given"):
        server_environment(plan_of("good", 31999, tmp_path, gpus=(0, 1)), inherited, fake_node())
