"""A run whose output goes nowhere measures on: a full disk behind it, a pipe whose reader is gone, a lost terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.place import Place, wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.mark.parametrize("lost", ["full disk", "closed pipe", "terminal"])
def test_a_run_goes_on_to_its_end_and_writes_its_report(lost: str, tmp_path: Path) -> None:
    place = Place.made(tmp_path / "place")
    reading, writing = (-1, os.open("/dev/full", os.O_WRONLY)) if lost == "full disk" else os.pipe()
    if lost == "terminal":
        os.close(reading)
        os.close(writing)
        reading, writing = pty.openpty()
    command = [sys.executable, "-m", "sweeper", "run", str(place.folder / "chaos.yaml"), "--out", str(place.results)]
    env = {**os.environ, "SWEEPER_STATE_DIR": str(place.state), "SWEEPER_FAKE_SERVER": "--step-ms 2", "TERM": "xterm"}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=writing, start_new_session=True)
    os.close(writing)
    if reading >= 0:
        assert wait_until(lambda: any(event["kind"] == "server_ready" for event in place.journal()), process, 120)
        os.close(reading)
    assert process.wait(180) == 0
    assert len(place.measured()) == 4
    run_dir = place.run_dir()
    assert run_dir is not None and (run_dir / "report.html").exists()
