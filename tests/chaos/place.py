"""A folder with an experiment, its results and its own ledger, and the processes that belong to it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from sweeper.errors import StoreError
from sweeper.store.reader import find_runs, read_plan, read_run, read_samples, unreadable
from sweeper.testing.server import stand_in_python

from .tied import tied

Process: TypeAlias = subprocess.Popen[bytes]
Key: TypeAlias = tuple[str, int, int, str]
"""Trial, start, repeat, and when it was measured."""

EXPERIMENT = """\
name: chaos
engine: {{device: cpu, python: {python}, ready_timeout_s: 8}}
server: {{model_path: "toy:target"}}
speculative: {{draft_model_path: "toy:draft", configs: [3-1-4]}}
workload: {{prompts: "toy:all", num_prompts: 4, max_tokens: 40, concurrency: [1], stall_timeout_s: 3,
  request_timeout_s: 10}}
run: {{starts: 1, repeats: 2, order: given}}
"""


@dataclass(frozen=True)
class Place:
    folder: Path

    @classmethod
    def made(cls, folder: Path) -> "Place":
        (folder / "state").mkdir(parents=True, mode=0o700)
        python = stand_in_python(folder / "python")
        (folder / "chaos.yaml").write_text(EXPERIMENT.format(python=python))
        return cls(folder)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def run_dir(self) -> Path | None:
        """The run that can be read; a folder whose plan was never written is none."""
        for path in reversed(find_runs(self.results) if self.results.exists() else ()):
            with suppress(StoreError):
                read_plan(path)
                return path
        return None

    def journal(self) -> list[dict[str, Any]]:
        run_dir = self.run_dir()
        if run_dir is None or not (run_dir / "events.jsonl").exists():
            return []
        lines = (run_dir / "events.jsonl").read_bytes().splitlines()
        return [json.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"}")]

    def entries(self) -> list[dict[str, Any]]:
        """The ledger."""
        found = []
        for path in (self.state / "ledger").glob("*.json"):
            with suppress(OSError, ValueError):
                found.append(json.loads(path.read_text()))
        return found

    def processes(self) -> list[int]:
        """All that inherited this place's ledger folder: servers, keepers, Ray and its workers."""
        mark = f"SWEEPER_STATE_DIR={self.state}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return [pid for pid in found if pid != os.getpid()]

    def measured(self) -> set[Key]:
        """Measurements that are whole: marker and samples can be read."""
        run_dir = self.run_dir()
        if run_dir is None:
            return set()
        whole = set()
        for one in read_run(run_dir).measurements:
            with suppress(StoreError):
                read_samples(run_dir, one)
                whole.add((one.trial_id, one.start, one.repeat, one.started_at))
        return whole

    def torn(self) -> int:
        """Files under their final name that cannot be read: no death may leave one."""
        run_dir = self.run_dir()
        if run_dir is None:
            return 0
        marked = read_run(run_dir).measurements
        whole = {key[:3] for key in self.measured()}
        cut = [one for one in marked if (one.trial_id, one.start, one.repeat) not in whole]
        return len(cut) + len(unreadable(run_dir))

    @contextmanager
    def session(self, *options: str, engine: str = "", ray: bool = False) -> Iterator[Process]:
        """A run in a process group of its own; whatever of it still lives at the end is killed."""
        module = ["sweeper", "run"] if ray else ["tests.chaos.victim"]
        command = [sys.executable, "-m", *module, str(self.folder / "chaos.yaml"), "--out", str(self.results)]
        env = {**os.environ, "SWEEPER_STATE_DIR": str(self.state), "SWEEPER_FAKE_SERVER": f"--step-ms 2 {engine}"}
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                tied([*command, *options]), env=env, stdout=log, stderr=log, start_new_session=True
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()


def wait_until(true: Callable[[], bool], process: Process, timeout_s: float) -> bool:
    """Whether it came true before the process ended and the time was up."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if true():
            return True
        if process.poll() is not None:
            return true()
        time.sleep(0.02)
    return False


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
