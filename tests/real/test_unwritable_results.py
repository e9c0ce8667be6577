"""Results folders that cannot be written, made so by the kernel: root ignores modes, but no mount."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.place import Place

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
SMALL = 'mount -t tmpfs -o size=24k none "$0" && exec "$@"'


def run(place: Place, mounted: str | None = None) -> "subprocess.CompletedProcess[str]":
    """`sweeper run` where the results folder was mounted anew, for this process and its children only."""
    place.results.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "sweeper", "run", str(place.folder / "chaos.yaml"), "--out", str(place.results)]
    hidden = ["unshare", "--mount", "sh", "-c", mounted, str(place.results)] if mounted else []
    env = {**os.environ, "SWEEPER_STATE_DIR": str(place.state), "SWEEPER_FAKE_SERVER": "--step-ms 2"}
    return subprocess.run([*hidden, *command], env=env, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    probe = ["unshare", "--mount", "sh", "-c", READ_ONLY, str(tmp_path), "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount")
    return Place.made(tmp_path / "place")


def told(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """What was said of the failure: lines of `sweeper: …`."""
    assert "Traceback" not in done.stderr, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("sweeper: ")]


def test_a_read_only_results_folder_is_one_line_before_anything_starts_and_a_writable_one_goes_on(place: Place) -> None:
    refused = run(place, READ_ONLY)
    assert refused.returncode == 2, refused
    (line,) = told(refused)
    assert str(place.results) in line
    assert "Read-only file system" in line
    assert place.entries() == []
    assert run(place).returncode == 0
    assert len(place.measured()) == 4


def test_a_finished_run_in_a_read_only_folder_can_still_be_looked_at(place: Place) -> None:
    assert run(place).returncode == 0
    before = place.measured()
    again = run(place, READ_ONLY)
    assert "Traceback" not in again.stderr
    assert again.returncode in (0, 2), again
    assert place.measured() == before


def test_a_full_disk_ends_the_run_in_one_line_and_leaves_no_process(place: Place) -> None:
    full = run(place, SMALL)
    assert full.returncode == 2, full
    (line,) = told(full)
    assert "No space left on device" in line
    assert place.entries() == []
