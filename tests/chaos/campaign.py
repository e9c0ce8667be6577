"""Strikes a run, lets it be run again, and counts what was lost, what was left and who was hurt."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sweeper.effects.ports import port_free
from sweeper.store.reader import half_written, read_run
from sweeper.testing.server import FIRED_UP

from .faults import SESSION_S, Fault, reached
from .place import Place, Process, send, wait_until
from .tied import tied

AGAIN = 3
"""Sessions after the fault; each is a plain `sweeper run` of the same experiment."""
GRACE_S = 30.0
RAY_GRACE_S = 100.0
"""Ray's own agents look for a killed head for a minute before they end."""
MEASUREMENTS = 4
LONGEST_S = 5 * SESSION_S


@dataclass(frozen=True)
class Outcome:
    fault: str
    exit_code: int | None
    """Of the struck session; negative: ended by that signal; None: it had to be killed for hanging."""
    lost: int
    """Finished measurements that are gone or were made again, and files torn under their final name."""
    leaked: tuple[str, ...]
    foreign: int
    """Processes of others that were ended."""
    resumed: bool
    seconds: float

    @property
    def fine(self) -> bool:
        return self.lost == 0 and not self.leaked and self.foreign == 0 and self.resumed and self.exit_code is not None


@contextmanager
def bystander(folder: Path) -> Iterator[Process]:
    """A foreign server that looks like one of ours and sits on a port that would be ours next."""
    process = next(filter(None, (_listening(folder, port) for port in range(30000, 31000) if port_free(port))))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _listening(folder: Path, port: int) -> Process | None:
    """The server once it listens; None when somebody else was faster."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SWEEPER_")}
    env["CHAOS_PLACE"] = str(folder)
    log_path = folder / f"bystander-{port}.log"
    command = [sys.executable, "-m", "sweeper.testing.server", "--port", str(port)]
    with log_path.open("wb") as log:
        process = subprocess.Popen(tied(command), env=env, stdout=log, stderr=log, start_new_session=True)
    if wait_until(lambda: FIRED_UP in log_path.read_text(), process, SESSION_S):
        return process
    process.kill()
    process.wait()
    return None


def run_fault(fault: Fault, folder: Path, *, seed: int, plant: str | None = None) -> Outcome:
    """One fault in a fresh place; `plant` puts a fault into Sweeper itself."""
    begun = time.monotonic()
    rng = random.Random(seed)
    place = Place.made(folder)
    planted = ("--plant", plant) if plant else ()
    with bystander(folder) as other:
        exit_code = _strike(fault, place, rng, planted)
        torn = place.torn()
        run_dir = place.run_dir()
        if fault.spoil is not None and run_dir is not None:
            fault.spoil(run_dir)
        before = place.measured() if not fault.name.endswith("another engine") else set()
        resumed = _go_on(place, planted)
        lost = len(before - place.measured()) + torn
        leaked = _leaked(place, RAY_GRACE_S if fault.ray else GRACE_S)
        foreign = int(other.poll() is not None)
    return Outcome(fault.name, exit_code, lost, leaked, foreign, resumed, time.monotonic() - begun)


def _strike(fault: Fault, place: Place, rng: random.Random, planted: tuple[str, ...]) -> int | None:
    options = fault.options(rng) if fault.ray else (*fault.options(rng), *planted)
    with place.session(*options, engine=fault.engine, ray=fault.ray) as process:
        if fault.strike is not None and wait_until(lambda: reached(place, fault.moment), process, SESSION_S):
            time.sleep(rng.random() * 0.2)
            fault.strike(place, process, rng)
        return process.returncode if _ended(process, place) else None


def _ended(process: Process, place: Place) -> bool:
    """False: it hangs, which is to tell nothing new for SESSION_S, or to go on telling for far too long."""
    begun = told_at = time.monotonic()
    told = 0
    while process.poll() is None:
        now, latest = time.monotonic(), len(place.journal())
        if latest != told:
            told, told_at = latest, now
        if now - told_at > SESSION_S or now - begun > LONGEST_S:
            return False
        time.sleep(0.2)
    return True


def _go_on(place: Place, planted: tuple[str, ...]) -> bool:
    """Run again until everything is measured; True when that was so, with nothing half-written left."""
    for _ in range(AGAIN):
        with place.session("--retry-failed", *planted) as process, suppress(subprocess.TimeoutExpired):
            process.wait(timeout=2 * SESSION_S)
        if process.returncode == 0:
            break
    run_dir = place.run_dir()
    if run_dir is None:
        return False
    run = read_run(run_dir)
    return run.finished and len(place.measured()) == MEASUREMENTS and half_written(run_dir) == ()


def _leaked(place: Place, grace_s: float) -> tuple[str, ...]:
    """Names of what still runs; it is then killed, so that the next fault starts clean."""
    deadline = time.monotonic() + grace_s
    while (left := place.processes()) and time.monotonic() < deadline:
        time.sleep(0.2)
    names = []
    for pid in left:
        with suppress(OSError):
            names.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:100])
        send(pid, signal.SIGKILL)
    return tuple(names)
