"""The launcher killed between any two steps of a launch: nothing of ours lives on, and the ledger knows all of it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweeper.effects import ledger
from sweeper.effects.cleaning import clean_leftovers
from sweeper.effects.process import processes_with_launch_id

STUB = str(Path(__file__).parent / "stub_engine.py")
KILLED_LAUNCH = """
import asyncio, os, signal, sys
from pathlib import Path
from sweeper.core.launch import LaunchPlan
from sweeper.effects import ledger, spawning
from sweeper.effects.ports import reserve_port
from sweeper.effects.server import SglangLauncher

cut, launch_id, seen = sys.argv[2], sys.argv[4], []

def killed_after(module, name, count=1):
    whole = getattr(module, name)
    def step(*args, **more):
        result = whole(*args, **more)
        seen.append(name)
        if seen.count(name) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(module, name, step)

if cut == "entry": killed_after(ledger, "write_entry")
if cut == "keeper": killed_after(spawning, "_start_keeper")
if cut == "spawn": killed_after(spawning, "spawn")
if cut == "launched": killed_after(ledger, "write_entry", 2)

def on_phase(phase, detail):
    if phase == cut:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    with reserve_port(holder="test") as port:
        plan = LaunchPlan(
            launch_id=launch_id,
            argv=(sys.executable, sys.argv[1], "good", "--port", str(port), "--served-model-name", "s"),
            env={}, gpu_ids=(), host="127.0.0.1", port=port, base_url=f"http://127.0.0.1:{port}",
            served_model_name="s", ready_timeout_s=60, log_path=Path(sys.argv[3]),
        )
        async with SglangLauncher().launch(plan, run_id="r", owner_pid=os.getpid(), on_phase=on_phase):
            pass

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "cut", ["waiting", "launching", "entry", "keeper", "spawn", "launched", "loading", "ready", "stopping"]
)
def test_a_launcher_killed_at_any_step_leaves_nothing(state: Path, tmp_path: Path, cut: str) -> None:
    launch_id = f"{cut}-{os.getpid()}"
    done = subprocess.run(
        [sys.executable, "-c", KILLED_LAUNCH, STUB, cut, str(tmp_path / "server.log"), launch_id],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        timeout=60,
        check=False,
    )
    if cut not in ("loading",):  # a fast start may never be seen loading
        assert done.returncode == -9, done.stderr.decode()
    deadline = time.monotonic() + 30
    while processes_with_launch_id(launch_id):
        assert time.monotonic() < deadline, "the keeper did not end the server"
        time.sleep(0.05)
    if cut == "entry":  # no keeper yet, and no server either: the next run clears the entry
        assert [entry.state for entry in ledger.read_entries()] == ["launching"]
        clean_leftovers()
    while ledger.read_entries():
        assert time.monotonic() < deadline, "the ledger still holds the entry"
        time.sleep(0.05)
