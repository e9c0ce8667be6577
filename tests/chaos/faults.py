"""What can go wrong: each a moment to wait for, something to do, and what is put in order afterwards."""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from signal import SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGSEGV, SIGSTOP, SIGTERM, Signals

from .place import Place, Process

Strike = Callable[[Place, Process, random.Random], None]
SESSION_S = 60.0
HANGS_S = 1.0


@dataclass(frozen=True)
class Fault:
    name: str
    moment: str = ""
    """Kind or phase of the journal line that is waited for; empty: nothing is waited for."""
    strike: Strike | None = None
    options: Callable[[random.Random], tuple[str, ...]] = lambda rng: ()
    engine: str = ""
    spoil: Callable[[Path], None] | None = None
    """Damage to the run folder between two sessions."""
    ray: bool = False


def reached(place: Place, moment: str) -> bool:
    return any(moment in (event["kind"], event.get("phase")) for event in place.journal())


def to_controller(*signals: Signals) -> Strike:
    def strike(place: Place, process: Process, rng: random.Random) -> None:
        for number in signals:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
            time.sleep(HANGS_S if number is SIGSTOP else 0.1)

    return strike


def to_group(number: Signals) -> Strike:
    def strike(place: Place, process: Process, rng: random.Random) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    return strike


def to_entry(number: Signals, *who: str, controller: bool = False) -> Strike:
    """Sends to processes named in the ledger: server, keeper, launcher."""

    def strike(place: Place, process: Process, rng: random.Random) -> None:
        for entry in place.entries():
            for name in who:
                if entry.get(name):
                    with suppress(ProcessLookupError):
                        os.kill(entry[name]["pid"], number)
        if controller:
            process.kill()

    return strike


def empty_ledger(*, kill: bool) -> Strike:
    """As a cleaner of temporary folders does it, under a server that lives."""

    def strike(place: Place, process: Process, rng: random.Random) -> None:
        shutil.rmtree(place.state / "ledger", ignore_errors=True)
        if kill:
            process.kill()

    return strike


def ledger_refused(place: Place, process: Process, rng: random.Random) -> None:
    """As a full or read-only disk does it: nothing can be made in there any more."""
    shutil.rmtree(place.state / "ledger", ignore_errors=True)
    (place.state / "ledger").write_text("no folder can be made here")


def ledger_allowed(run_dir: Path) -> None:
    (run_dir.parents[2] / "state" / "ledger").unlink(missing_ok=True)


def to_named(number: Signals, name: bytes) -> Strike:
    """Sends to this place's processes of that name: Ray's daemons."""

    def strike(place: Place, process: Process, rng: random.Random) -> None:
        for pid in place.processes():
            with suppress(OSError):
                if name in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, number)

    return strike


def disk(kind: str, errno: int | None = None) -> Callable[[random.Random], tuple[str, ...]]:
    def options(rng: random.Random) -> tuple[str, ...]:
        chosen = ("--disk", f"{kind}:{rng.randint(1, 30 if kind != 'mkdir' else 8)}")
        return chosen if errno is None else (*chosen, "--errno", str(errno))

    return options


def first(run_dir: Path, pattern: str) -> Path | None:
    return next(iter(sorted(run_dir.glob(pattern))), None)


def damage(pattern: str, how: Callable[[Path], object]) -> Callable[[Path], None]:
    def spoil(run_dir: Path) -> None:
        if (path := first(run_dir, pattern)) is not None:
            how(path)

    return spoil


def cut_in_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\x00{")


def stray(path: Path) -> None:
    (path.parent / f".{path.name}.1.tmp").write_bytes(b"half")


def of_another_engine(path: Path) -> None:
    value = json.loads(path.read_text())
    value["fingerprint"]["engine"]["files_sha256"] = "0" * 64
    path.write_text(json.dumps(value))


def every_fault() -> tuple[Fault, ...]:
    return (*_signals(), *_disks(), *_spoilt(), *_engines(), *_clocks(), *_ray())


def _signals() -> Iterator[Fault]:
    moments = (
        "run_started",
        "launching",
        "loading",
        "server_ready",
        "measuring",
        "measured",
        "stopping",
        "start_ended",
    )
    for moment in moments:
        slow = "--ready-after-s 2" if moment == "loading" else ""
        yield Fault(f"controller SIGKILL at {moment}", moment, to_controller(SIGKILL), engine=slow)
    for moment, number in product(("launching", "measuring"), (SIGTERM, SIGINT, SIGHUP)):
        yield Fault(f"controller {number.name} at {moment}", moment, to_controller(number))
    yield Fault("controller interrupted twice at measuring", "measuring", to_controller(SIGINT, SIGINT))
    yield Fault("controller interrupted twice at launching", "launching", to_controller(SIGINT, SIGINT))
    yield Fault("controller stopped for a second", "measuring", to_controller(SIGSTOP, SIGCONT))
    yield Fault("process group SIGKILL at measuring", "measuring", to_group(SIGKILL))
    yield Fault("process group SIGTERM at measuring", "measuring", to_group(SIGTERM))
    for moment, number in product(("launching", "measuring"), (SIGKILL, SIGTERM, SIGSEGV)):
        yield Fault(f"server {number.name} at {moment}", moment, to_entry(number, "server"))
    yield Fault("server stopped, so that it hangs", "measuring", to_entry(SIGSTOP, "server"))
    yield Fault("keeper SIGKILL at measuring", "measuring", to_entry(SIGKILL, "keeper"))
    yield Fault("keeper and controller SIGKILL", "measuring", to_entry(SIGKILL, "keeper", controller=True))
    yield Fault("ledger emptied", "measuring", empty_ledger(kill=False))
    yield Fault("ledger emptied, then controller SIGKILL", "measuring", empty_ledger(kill=True))
    for moment in ("run_started", "measuring"):
        yield Fault(f"ledger refused at {moment}", moment, ledger_refused, spoil=ledger_allowed)
    yield Fault("keeper and server SIGKILL", "measuring", to_entry(SIGKILL, "keeper", "server"))
    yield Fault("server and controller SIGKILL", "measuring", to_entry(SIGKILL, "server", controller=True))


def _disks() -> Iterator[Fault]:
    for kind in ("write", "fsync", "rename", "mkdir"):
        yield Fault(f"death in the middle of a {kind}", options=disk(kind))
    for name in ("measurement.json", "samples.parquet", "launch.json", "plan.json", "result.json", "events.jsonl"):
        at = ("--disk", f"write@{name}:1")
        yield Fault(f"death in the middle of writing {name}", options=lambda rng, at=at: at)
    for kind, (name, errno) in product(
        ("write", "fsync", "rename", "mkdir"), (("disk full", 28), ("I/O error", 5), ("read-only", 30))
    ):
        yield Fault(f"{name} at a {kind}", options=disk(kind, errno))


def _spoilt() -> Iterator[Fault]:
    kill = to_controller(SIGKILL)
    for name, spoil in (
        ("journal cut in half", damage("events.jsonl", cut_in_half)),
        ("measurement cut in half", damage("trials/*/start-*/measurement.json", cut_in_half)),
        ("measurement garbage", damage("trials/*/start-*/measurement.json", garbage)),
        ("measurement marker gone", damage("trials/*/start-*/measurement.json", Path.unlink)),
        ("measurement of another engine", damage("trials/*/start-*/measurement.json", of_another_engine)),
        ("samples gone", damage("trials/*/start-*/samples.parquet", Path.unlink)),
        ("samples cut in half", damage("trials/*/start-*/samples.parquet", cut_in_half)),
        ("stray temporary file", damage("trials/*/start-*/measurement.json", stray)),
        ("environment gone", damage("environment.json", Path.unlink)),
        ("plan garbage", damage("plan.json", garbage)),
        ("trial description gone", damage("trials/*/trial.json", Path.unlink)),
        ("launch record garbage", damage("groups/*/start-*/launch.json", garbage)),
        ("lock file gone", damage(".lock", Path.unlink)),
    ):
        yield Fault(f"killed, then {name}", "measured", kill, spoil=spoil)


def _engines() -> Iterator[Fault]:
    for kind in ("bad_argument", "crash", "oom_capture", "oom_load"):
        yield Fault(f"engine start: {kind}", engine=f"--fail-start {kind}")
    yield Fault("engine start hangs", engine="--hang-start")
    yield Fault("engine dies under load", engine="--die-after 6")
    yield Fault("engine hangs under load", engine="--hang-after 6")
    yield Fault("engine ignores SIGTERM", engine="--ignore-term")
    yield Fault("engine leaves children, killed", "measuring", to_controller(SIGKILL), engine="--children 3")
    for kind in ("status", "stall", "drop", "cut", "error", "abort", "garbage", "endless", "no-done"):
        yield Fault(f"half of the answers: {kind}", engine=f"--fault {kind}:0.5")


def _clocks() -> Iterator[Fault]:
    for hours in (-24, 24):
        yield Fault(f"clock jumps by {hours} h", options=lambda rng, hours=hours: ("--clock-s", str(hours * 3600)))  # type: ignore[misc]


def _ray() -> Iterator[Fault]:
    yield Fault("Ray worker SIGKILL", "measuring", to_entry(SIGKILL, "launcher"), ray=True)
    yield Fault("Ray's raylet SIGKILL", "measuring", to_named(SIGKILL, b"raylet/raylet"), ray=True)
    yield Fault("Ray's head SIGKILL", "measuring", to_named(SIGKILL, b"gcs_server"), ray=True)
    yield Fault("Ray's head SIGKILL between two starts", "stopping", to_named(SIGKILL, b"gcs_server"), ray=True)
    yield Fault("controller with Ray SIGKILL", "measuring", to_controller(SIGKILL), ray=True)


def disarm(place: Place) -> None:
    """What was only stopped is continued, so that it can be ended."""
    for entry in place.entries():
        for name in ("server", "keeper"):
            if entry.get(name):
                with suppress(ProcessLookupError):
                    os.kill(entry[name]["pid"], signal.SIGCONT)
