"""A small part of the campaign of faults, and the campaign itself: a fault planted in Sweeper must be caught."""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.chaos.campaign import Outcome, run_fault
from tests.chaos.faults import Fault, every_fault
from tests.chaos.journal import Journal
from tests.chaos.place import Place, wait_until
from tests.chaos.tied import PREFIX, campaign_folder

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


def fault(name: str) -> Fault:
    return next(one for one in every_fault() if one.name == name)


def test_the_list_holds_at_least_forty_distinct_faults() -> None:
    names = [one.name for one in every_fault()]
    assert len(names) == len(set(names)) >= 40


@pytest.mark.parametrize(
    "name",
    [
        "controller SIGKILL at measuring",
        "keeper and controller SIGKILL",
        "death in the middle of writing measurement.json",
        "disk full at a write",
        "killed, then measurement cut in half",
    ],
)
def test_nothing_is_lost_or_left_and_the_run_goes_on(name: str, tmp_path: Path) -> None:
    outcome = run_fault(fault(name), tmp_path / "place", seed=1)
    assert outcome.fine, outcome


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        ("plain-write", "death in the middle of writing measurement.json"),
        ("kill-by-name", "controller SIGKILL at run_started"),
        ("late-ledger", "controller SIGKILL at launching"),
    ],
)
def test_a_fault_planted_in_sweeper_is_caught(plant: str, name: str, tmp_path: Path) -> None:
    outcome = run_fault(fault(name), tmp_path / "place", seed=1, plant=plant)
    assert not outcome.fine, outcome


def outcome_of(one: Fault) -> Outcome:
    return Outcome(one.name, exit_code=-9, lost=0, leaked=("a keeper",), foreign=0, resumed=True, seconds=1.0)


def test_a_campaign_that_was_cut_goes_on_where_it_stopped(tmp_path: Path) -> None:
    faults = every_fault()[:3]
    Journal(tmp_path / "journal", faults).add(1, outcome_of(faults[1]))
    again = Journal(tmp_path / "journal", faults)
    assert again.left() == [0, 2]
    assert again.ordered() == [outcome_of(faults[1])]


def test_a_journal_of_another_list_of_faults_is_refused(tmp_path: Path) -> None:
    faults = every_fault()[:3]
    Journal(tmp_path / "journal", faults).add(1, outcome_of(faults[1]))
    with pytest.raises(ValueError, match="number 2 is another fault now"):
        Journal(tmp_path / "journal", faults[1:])


def processes_of(place: Path) -> list[psutil.Process]:
    """The foreign server beside the run, the run itself, and all that they started."""
    found = []
    for process in psutil.process_iter():
        try:
            env = process.environ()
            dead = process.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if not dead and (env.get("CHAOS_PLACE") == str(place) or env.get("SWEEPER_STATE_DIR") == str(place / "state")):
            found.append(process)
    return found


def test_a_campaign_that_is_killed_leaves_no_process_and_the_next_one_removes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = [sys.executable, "-m", "tests.chaos", "--each", "--match", "engine hangs under load"]
    campaign = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL)

    def serving() -> bool:
        return any(entry.get("server") for path in tmp_path.glob(f"{PREFIX}*/0") for entry in Place(path).entries())

    try:
        assert wait_until(serving, campaign, 60)
        (place,) = tmp_path.glob(f"{PREFIX}*/0")
        running = processes_of(place)
        names = " ".join(" ".join(process.cmdline()) for process in running)
        assert "tests.chaos.victim" in names
        assert sum("sweeper.testing.server" in " ".join(process.cmdline()) for process in running) >= 2, names
    finally:
        campaign.kill()
        campaign.wait()
    psutil.wait_procs(running, timeout=30)
    assert processes_of(place) == []
    assert place.exists()
    with campaign_folder() as folder:
        assert list(tmp_path.glob(f"{PREFIX}*")) == [folder]
    assert list(tmp_path.glob(f"{PREFIX}*")) == []


def test_what_a_killed_campaign_left_running_is_ended_by_the_next_one_and_a_living_campaign_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, living = tmp_path / f"{PREFIX}dead", tmp_path / f"{PREFIX}living"
    runs = []
    for folder in (dead, living):
        (folder / "0").mkdir(parents=True)
        env = {**os.environ, "SWEEPER_STATE_DIR": str(folder / "0" / "state")}
        runs.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=env))
    lock = os.open(living, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with campaign_folder():
            assert runs[0].wait(timeout=30) == -9
            assert not dead.exists()
            assert living.exists()
            assert runs[1].poll() is None
    finally:
        os.close(lock)
        for run in runs:
            run.kill()
            run.communicate()
