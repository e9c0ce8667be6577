"""`sweeper run` on the real engine, cut in every way that loses a process; then it completes, and nothing is left.

One story, because server starts are what costs time: about three minutes on two idle cores.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from sweeper.store.reader import find_runs, half_written, read_run, read_samples

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]

EXPERIMENT = """\
name: cut
engine: {device: cpu, ready_timeout_s: 600}
server: {model_path: "toy:target"}
speculative: {draft_model_path: "toy:draft", configs: [3-1-4]}
workload: {prompts: "toy:all", num_prompts: 8, max_tokens: 48, concurrency: [1]}
run: {starts: 1, repeats: 3, order: given}
"""
START_S = 600.0
"""A server start on a machine that does other things beside."""
END_S = 60.0

Process: TypeAlias = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Place:
    """An experiment, its results and its own ledger: processes are told from others' by the ledger's folder."""

    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def experiment(self) -> Path:
        path = self.folder / "cut.yaml"
        path.write_text(EXPERIMENT)
        return path

    def run_dir(self) -> Path | None:
        runs = find_runs(self.folder / "results") if (self.folder / "results").exists() else ()
        assert len(runs) <= 1
        return runs[0] if runs else None

    def journal(self) -> list[dict[str, Any]]:
        run_dir = self.run_dir()
        if run_dir is None or not (run_dir / "events.jsonl").exists():
            return []
        return [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines() if line.endswith("}")]

    def count(self, kind: str) -> int:
        return sum(event["kind"] == kind for event in self.journal())

    def ledger(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in (self.state / "ledger").glob("*.json")]

    def processes(self) -> list[int]:
        """Everything that inherited this place's ledger folder: Ray, workers, servers, keepers."""
        mark = f"SWEEPER_STATE_DIR={self.state}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return [pid for pid in found if pid != os.getpid()]


@contextmanager
def sweeper_run(place: Place, *options: str) -> Iterator[Process]:
    command = [sys.executable, "-m", "sweeper", "run", str(place.experiment()), "--out", str(place.folder / "results")]
    log = (place.folder / "sweeper.log").open("ab")
    env = {**os.environ, "SWEEPER_STATE_DIR": str(place.state)}
    process = subprocess.Popen([*command, *options], env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        log.close()


def wait_until(true: Callable[[], bool], process: Process | None, timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        if process is not None and process.poll() is not None:
            assert true(), f"sweeper ended with {process.returncode} before: {what}"
            return
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.2)


def wait_until_nothing_is_left(place: Place, *, but: bytes = b"\0") -> None:
    """No process of this place; `but`: names that may stay a while."""
    deadline = time.monotonic() + END_S
    while left := [name for name in map(command_of, place.processes()) if but not in name]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")[:200]
    except OSError:
        return b"gone"


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def server_pids(place: Place) -> list[int]:
    (entry,) = place.ledger()
    leader = int(entry["server"]["pid"])
    return [pid for pid in place.processes() if os.getsid(pid) == leader]


def scheduler_pid(place: Place) -> int:
    return next(
        pid for pid in server_pids(place) if b"scheduler" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    )


def test_a_run_that_is_cut_in_every_way_completes_without_repeating_or_leaving_anything(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.state).mkdir(mode=0o700)
    controller_killed(place)
    first = read_run_of(place)
    worker_and_keeper_killed_then_server_killed(place)
    failed_trial_retried(place)
    complete_run_is_printed(place)
    wait_until_nothing_is_left(place)
    whole = read_run_of(place)
    assert {one.started_at for one in first.measurements} <= {one.started_at for one in whole.measurements}
    found = sorted((one.arm_id, one.start, one.repeat) for one in whole.measurements)
    assert len(found) == len(set(found)) == 2 * 3
    assert half_written(whole.path) == () and whole.problems == ()
    assert all(len(read_samples(whole.path, one)) == 8 for one in whole.measurements)
    speculative = [one for one in whole.measurements if one.effective.algorithm == "EAGLE3"]
    assert len(speculative) == 3
    assert all(one.metrics.spec is not None and (one.metrics.spec.accept_length or 0) > 1.5 for one in speculative)


def read_run_of(place: Place) -> Any:
    run_dir = place.run_dir()
    assert run_dir is not None
    return read_run(run_dir)


def controller_killed(place: Place) -> None:
    """kill −9 of the controller after the first measurement: its keeper ends the server, Ray ends with it."""
    with sweeper_run(place) as process:
        wait_until(lambda: place.count("measured") >= 1, process, START_S, "the first measurement")
        kill(process.pid)
    wait_until_nothing_is_left(place, but=b"Agent")  # Ray's agents look for its dead head for a minute
    assert place.ledger() == []


def worker_and_keeper_killed_then_server_killed(place: Place) -> None:
    """The worker and the only keeper die: the next start ends the orphan. Later a scheduler dies under load."""
    with sweeper_run(place) as process:
        begun = place.count("server_ready")
        wait_until(
            lambda: place.count("server_ready") == begun + 1, process, START_S, "the server of the second session"
        )
        (entry,) = place.ledger()
        kill(entry["keeper"]["pid"])
        kill(entry["launcher"]["pid"])
        wait_until(lambda: place.count("server_ready") == begun + 2, process, START_S, "the same start once more")
        assert entry["server"]["pid"] not in place.processes()
        wait_until(lambda: place.count("server_ready") == begun + 3, process, START_S, "the speculative server")
        kill(scheduler_pid(place))
        process.wait(timeout=START_S)
    assert process.returncode in (0, 1)
    assert place.ledger() == []
    failures = [event["failure"] for event in place.journal() if event["kind"] == "start_failed"]
    assert failures[0]["failure_class"] == "node_lost"
    assert failures[-1]["failure_class"] in ("scheduler_dead", "crash_load")


def failed_trial_retried(place: Place) -> None:
    before = {one.started_at for one in read_run_of(place).measurements}
    with sweeper_run(place, "--retry-failed") as process:
        process.wait(timeout=START_S)
    assert process.returncode == 0
    run = read_run_of(place)
    assert run.finished
    assert before <= {one.started_at for one in run.measurements}
    assert place.processes() == [] and place.ledger() == []
    assert (run.path / "report.html").stat().st_size > 10_000


def complete_run_is_printed(place: Place) -> None:
    lines = len(place.journal())
    with sweeper_run(place) as process:
        process.wait(timeout=END_S)
    assert process.returncode == 0
    assert len(place.journal()) == lines


def test_interrupting_once_ends_in_order_and_the_run_can_go_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.state.mkdir(mode=0o700)
    with sweeper_run(place) as process:
        wait_until(lambda: place.ledger() != [], process, START_S, "a server in the ledger")
        os.kill(process.pid, signal.SIGINT)
        process.wait(timeout=END_S)
    assert process.returncode == 130
    assert place.processes() == [] and place.ledger() == []
    assert place.journal()[-1]["kind"] == "run_ended" and place.journal()[-1]["interrupted"]


def test_interrupting_twice_ends_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.state.mkdir(mode=0o700)
    with sweeper_run(place) as process:
        wait_until(lambda: place.ledger() != [], process, START_S, "a server in the ledger")
        os.kill(process.pid, signal.SIGINT)
        wait_until(lambda: "once more to kill" in log_of(place), process, END_S, "the first one was heard")
        os.kill(process.pid, signal.SIGINT)
        process.wait(timeout=END_S)
    assert process.returncode == 130
    wait_until_nothing_is_left(place, but=b"Agent")  # as after kill -9: nobody was left to end Ray in order
    assert place.ledger() == []


def log_of(place: Place) -> str:
    return (place.folder / "sweeper.log").read_text(errors="replace")
