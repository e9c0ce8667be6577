import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.effects import ledger
from sweeper.effects.ledger import Entry
from sweeper.effects.process import (
    ProcessId,
    ProcessInfo,
    boot_id,
    identify,
    processes_with_launch_id,
    session_members,
    spawn,
)
from sweeper.errors import DiskError, PreflightError

BOOT = boot_id()


def entry(sid: int | None = 500, *, started: int = 1000, **more: object) -> Entry:
    owner = ProcessId(pid=400, start_ticks=900, boot_id=BOOT)
    server = ProcessId(pid=sid, start_ticks=started, boot_id=BOOT) if sid else None
    given = Entry(
        launch_id="abc",
        run_id="night-7",
        state="launched",
        owner=owner,
        launcher=owner,
        gpu_uuids=(),
        gpu_ids=(0, 1),
        port=30000,
        log_path="/l",
        server=server,
    )
    return replace(given, **more)  # type: ignore[arg-type]


def process(pid: int, *, sid: int, ppid: int = 1, started: int = 1010) -> ProcessInfo:
    return ProcessInfo(
        pid=pid, ppid=ppid, pgid=sid, sid=sid, state="S", start_ticks=started, cpu_ticks=0, major_faults=0
    )


ORPHANS = (process(511, sid=500), process(512, sid=500), process(513, sid=500))
NEIGHBOUR = (process(800, sid=800, started=5000), process(810, sid=800, ppid=800, started=5010))


def pids(found: tuple[ProcessInfo, ...]) -> list[int]:
    return [info.pid for info in found]


def test_schedulers_of_a_dead_launcher_are_ours_and_a_neighbours_are_not() -> None:
    table = (*ORPHANS, *NEIGHBOUR)
    found = ledger.proven_members(entry(), table, {511: {"SWEEPER_LAUNCH_ID": "abc"}, 512: None, 513: None})
    assert pids(found) == [511, 512, 513]


def test_processes_whose_titles_overwrote_their_environment_are_ours_by_session_and_age() -> None:
    assert pids(ledger.proven_members(entry(), ORPHANS, dict.fromkeys((511, 512, 513)))) == [511, 512, 513]


def test_members_recorded_by_the_keeper_prove_the_session() -> None:
    recorded = entry(members=((512, 1010),))
    other = {pid: {"HOME": "/root"} for pid in (511, 512, 513)}
    assert pids(ledger.proven_members(recorded, ORPHANS, other)) == [511, 512, 513]


def test_a_session_number_that_was_given_to_somebody_else_is_not_ours() -> None:
    stranger = (process(500, sid=500, started=7777), process(501, sid=500, started=7778))
    assert ledger.proven_members(entry(), stranger, {500: {}, 501: {}}) == ()


def test_a_leaderless_session_with_another_environment_is_not_ours() -> None:
    other = {pid: {"HOME": "/home/x"} for pid in (511, 512, 513)}
    assert ledger.proven_members(entry(), ORPHANS, other) == ()


def test_a_leaderless_session_older_than_our_server_is_not_ours() -> None:
    older = tuple(replace(info, start_ticks=10) for info in ORPHANS)
    assert ledger.proven_members(entry(), older, dict.fromkeys((511, 512, 513))) == ()


def test_an_entry_is_whole_after_writing_and_gone_after_removal(state: Path) -> None:
    ledger.write_entry(entry(members=((511, 1010),)))
    assert ledger.read_entries() == (entry(members=((511, 1010),)),)
    ledger.remove_entry("abc")
    assert ledger.read_entries() == ()


def test_entries_of_an_earlier_boot_are_forgotten(state: Path) -> None:
    before = ProcessId(pid=1, start_ticks=1, boot_id="an-earlier-boot")
    ledger.write_entry(entry(owner=before, launcher=before))
    assert ledger.read_entries() == ()
    assert list((state / "ledger").iterdir()) == []


def test_half_an_entry_is_shown_and_never_guessed_at(state: Path) -> None:
    ledger.write_entry(entry())
    path = state / "ledger" / "abc.json"
    path.write_text(path.read_text()[:40])
    assert ledger.read_entries() == ()
    assert ledger.unreadable_entries() == (path,)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden"])
def test_a_launch_id_never_leaves_the_ledger(state: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a launch id"):
        ledger.write_entry(entry(launch_id=name))


def test_the_state_folder_is_its_owners_alone(state: Path) -> None:
    assert ledger.state_dir().stat().st_mode & 0o777 == 0o700


LOST = f"lost-{os.getpid()}"
"""Processes are found by it: the tests running beside this one have others."""


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[int]:
    child = spawn(["sleep", "1000"], env={"SWEEPER_LAUNCH_ID": LOST, "PATH": "/usr/bin:/bin"}, log_path=tmp_path / "l")
    try:
        yield child.pid
    finally:
        child.kill()
        child.wait()


def test_a_server_spawned_just_before_the_kill_is_found_by_its_nonce(state: Path, sleeper: int) -> None:
    assert pids(processes_with_launch_id(LOST)) == [sleeper]
    lost = entry(None, launch_id=LOST, state="launching")
    ledger.write_entry(lost)
    assert pids(ledger.proven_members(lost)) == [sleeper]
    assert ledger.end_entry(lost, term_wait_s=5).ended == (sleeper,)
    assert identify(sleeper) is None and session_members(sleeper) == ()
    assert ledger.read_entries() == ()


def test_a_stray_of_a_server_that_is_gone_is_ended_without_its_neighbours(state: Path, tmp_path: Path) -> None:
    """It carries the nonce in a session whose leader does not."""
    mark = f"stray-{os.getpid()}"
    command = f"sleep 1000 & echo $!; SWEEPER_LAUNCH_ID={mark} sleep 1000 & echo $!; wait"
    shell = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, start_new_session=True)
    assert shell.stdout is not None
    stranger, stray = (int(shell.stdout.readline()) for _ in range(2))
    try:
        while pids(processes_with_launch_id(mark)) != [stray]:  # between fork and exec
            os.sched_yield()
        gone = entry(2**22 + 1, launch_id=mark)
        ledger.write_entry(gone)
        assert ledger.end_entry(gone, term_wait_s=5).ended == (stray,)
        assert identify(stray) is None and identify(stranger) is not None and ledger.read_entries() == ()
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        shell.stdout.close()


def test_a_state_folder_that_is_a_link_or_cannot_be_made_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_text("")
    for bad, words in (("link", "is not a folder of this user"), ("file/x", "cannot be kept here")):
        monkeypatch.setenv(ledger.STATE_DIR_VARIABLE, str(tmp_path / bad))
        with pytest.raises(PreflightError, match=words):
            ledger.read_entries()


def test_a_state_folder_that_others_could_write_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv(ledger.STATE_DIR_VARIABLE, str(tmp_path / "open"))
    assert ledger.state_dir().stat().st_mode & 0o777 == 0o700


def test_a_ledger_that_cannot_be_written_is_one_clear_line_and_leaves_the_old_entry(state: Path) -> None:
    ledger.write_entry(entry())
    (state / "ledger" / "full.json").mkdir()  # renaming a file over a folder fails as a full disk does: after the write
    with pytest.raises(DiskError, match="the ledger cannot be written"):
        ledger.write_entry(entry(launch_id="full"))
    assert [item.launch_id for item in ledger.read_entries()] == ["abc"]
    assert not list((state / "ledger").glob(".*.tmp"))
