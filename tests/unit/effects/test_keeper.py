"""A server whose controller or launcher dies is ended by its keeper, and by nobody's name."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from sweeper.core.launch import ServerFailure
from sweeper.effects import keeper, ledger
from sweeper.effects.cleaning import clean_leftovers, find_leftovers, named_holder
from sweeper.effects.process import identify, session_members
from sweeper.effects.spawning import _start_keeper, dismiss
from sweeper.effects.startup import error_of

STUB = str(Path(__file__).parent / "stub_engine.py")
LAUNCHER = """
import asyncio, os, signal, sys
from pathlib import Path
from sweeper.core.launch import LaunchPlan
from sweeper.effects.ports import reserve_port
from sweeper.effects.server import SglangLauncher

async def main() -> None:
    owner = int(sys.argv[2]) or os.getpid()
    with reserve_port(holder="test") as port:
        plan = LaunchPlan(
            launch_id=f"kept-{os.getpid()}",
            argv=(sys.executable, sys.argv[1], "good", "--port", str(port), "--served-model-name", "s"),
            env={}, gpu_ids=(), host="127.0.0.1", port=port, base_url=f"http://127.0.0.1:{port}",
            served_model_name="s", ready_timeout_s=60, log_path=Path(sys.argv[3]),
        )
        async with SglangLauncher().launch(plan, run_id="r", owner_pid=owner, on_phase=lambda *a: None):
            print("ready", flush=True)
            await asyncio.sleep(1000)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background hands down that it is ignored
asyncio.run(main())
"""


def start(tmp_path: Path, owner: int = 0) -> "subprocess.Popen[str]":
    """A launcher in a process of its own, with a ready server."""
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, STUB, str(owner), str(tmp_path / "server.log")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def only_entry() -> ledger.Entry:
    (entry,) = ledger.read_entries()
    assert entry.sid is not None
    return entry


def test_killing_the_launcher_ends_the_server_although_the_terminal_signalled_the_keeper(
    state: Path, tmp_path: Path
) -> None:
    launcher = start(tmp_path)
    entry = only_entry()
    assert entry.keeper is not None and entry.sid is not None
    assert os.getsid(entry.keeper.pid) not in (os.getsid(0), entry.sid)
    os.kill(entry.keeper.pid, signal.SIGHUP)
    os.kill(entry.keeper.pid, signal.SIGINT)
    launcher.kill()
    launcher.wait()
    wait_until(lambda: not session_members(entry.sid or 0) and ledger.read_entries() == ())


def test_killing_the_whole_tree_of_the_launcher_leaves_the_keeper_which_clears_the_ledger(
    state: Path, tmp_path: Path
) -> None:
    launcher = start(tmp_path)
    entry = only_entry()
    tree = psutil.Process(launcher.pid).children(recursive=True)
    assert entry.sid in {process.pid for process in tree}
    assert entry.keeper is not None
    assert entry.keeper.pid not in {process.pid for process in tree}
    for pid in (launcher.pid, *(process.pid for process in tree)):
        os.kill(pid, signal.SIGKILL)
    launcher.wait()
    wait_until(lambda: ledger.read_entries() == ())
    assert not session_members(entry.sid or 0)


def test_killing_the_controller_ends_the_server_although_the_launcher_lives(state: Path, tmp_path: Path) -> None:
    controller = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    launcher = start(tmp_path, owner=controller.pid)
    sid = only_entry().sid or 0
    controller.kill()
    controller.wait()
    wait_until(lambda: not session_members(sid))
    launcher.kill()
    launcher.wait()


@pytest.mark.parametrize("harm", ["emptied", "unusable"])
def test_a_ledger_lost_under_a_living_server_ends_no_watch(state: Path, tmp_path: Path, harm: str) -> None:
    """A cleaner of temporary folders, or a disk that is full or gone: the keeper knows what it watches."""
    launcher = start(tmp_path)
    entry = only_entry()
    assert entry.keeper is not None
    shutil.rmtree(state / "ledger")
    if harm == "unusable":
        (state / "ledger").write_text("no folder can be made here")
    launcher.kill()
    launcher.wait()
    wait_until(lambda: not session_members(entry.sid or 0))
    wait_until(lambda: entry.keeper is not None and identify(entry.keeper.pid) is None)


def test_an_emptied_ledger_is_written_again(state: Path) -> None:
    """So that the next run, and `sweeper clean`, know of the server."""
    own = identify(os.getpid())
    assert own is not None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as server:
        known = ledger.Entry(
            launch_id="lost", run_id="r", state="launched", owner=own, launcher=own, gpu_uuids=(), gpu_ids=(),
            port=1, log_path="", server=identify(server.pid),
        )  # fmt: skip
        assert (seen := keeper.recorded(known)) is not None and seen.members
        assert ledger.read_entries() == (seen,)
        server.kill()
        server.wait()
        ledger.remove_entry("lost")
        assert keeper.recorded(known) is None, "ended, and removed by whoever ended it"


def test_a_file_of_the_current_folder_with_a_modules_name_keeps_no_keeper_from_watching(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uuid.py").write_text("raise SystemExit('no module of Sweeper')")
    monkeypatch.chdir(tmp_path)
    own = identify(os.getpid())
    assert own is not None
    entry = ledger.Entry(
        launch_id="here", run_id="r", state="launching", owner=own, launcher=own, gpu_uuids=(), gpu_ids=(), port=1,
        log_path="",
    )  # fmt: skip
    ledger.write_entry(entry)
    watcher = _start_keeper("here", ())
    dismiss(watcher)
    wait_until(lambda: identify(watcher.identity.pid) is None)


def test_with_keeper_and_launcher_dead_the_next_cleaning_finds_the_server(state: Path, tmp_path: Path) -> None:
    launcher = start(tmp_path)
    entry = only_entry()
    assert entry.keeper is not None and entry.sid is not None
    os.kill(entry.keeper.pid, signal.SIGKILL)
    wait_until(lambda: entry.keeper is not None and identify(entry.keeper.pid) is None)
    launcher.kill()
    launcher.wait()
    assert session_members(entry.sid), "without its keeper the server outlives its launcher"
    (leftover,) = find_leftovers()
    assert leftover.orphan and leftover.members
    told = named_holder(f"12 GiB held by pid {entry.sid}, which is not this server")
    ends = "`sweeper clean` ends it, and so does the next start"
    assert told == (f"12 GiB held by pid {entry.sid}, a leftover of run r", ends)
    foreign = "`sweeper clean` if it is a leftover of ours; if not, choose another GPU"
    failure = ServerFailure(failure_class="gpu_busy", message=f"12 GiB held by pid {entry.sid}", remedy=foreign)
    assert error_of(failure).remedy == ends, "what is known is not asked of the reader"
    assert error_of(replace(failure, message="held by pid 1")).remedy == foreign
    (cleaned,) = clean_leftovers()
    assert cleaned.ended and not cleaned.remaining
    assert session_members(entry.sid) == () and ledger.read_entries() == ()


def test_a_server_of_a_run_going_on_is_named_and_left_alone_and_ends_in_order_without_its_keeper(
    state: Path, tmp_path: Path
) -> None:
    launcher = start(tmp_path)
    entry = only_entry()
    assert clean_leftovers() == ()
    assert entry.sid is not None and session_members(entry.sid)
    told, remedy = named_holder(f"out of GPU memory on GPU 3; 61 GiB held by pid {entry.sid}, which is not this server")
    assert told == f"out of GPU memory on GPU 3; 61 GiB held by pid {entry.sid}, a server of run r, which is going on"
    assert remedy == "start again when it is gone; `sweeper gpus` shows it"
    told, _ = named_holder(f"rpc_port is in use by pid {entry.sid}")
    assert told == f"rpc_port is in use by pid {entry.sid}, a server of run r, which is going on"
    assert named_holder("held by pid 1, which") == ("held by pid 1, which", None)
    assert entry.keeper is not None
    os.kill(entry.keeper.pid, signal.SIGKILL)
    launcher.send_signal(signal.SIGINT)
    launcher.wait(30)
    assert session_members(entry.sid) == () and ledger.read_entries() == ()


def test_a_neighbours_server_of_the_same_name_outlives_all_our_endings(state: Path, tmp_path: Path) -> None:
    title = ["bash", "-c", "exec -a sglang::scheduler sleep 1000"]
    neighbour = subprocess.Popen(title, start_new_session=True)
    try:
        launcher = start(tmp_path)
        entry = only_entry()
        launcher.kill()
        launcher.wait()
        wait_until(lambda: not session_members(entry.sid or 0))
        clean_leftovers()
        assert neighbour.poll() is None
    finally:
        neighbour.kill()
        neighbour.wait()
