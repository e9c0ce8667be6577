"""Runs a list of named experiments on this machine's GPUs, within a time budget, and writes down what they showed.

    python scripts/gpu_evidence.py --results results --evidence docs/evidence --budget-s 540
    python scripts/gpu_evidence.py … --only tp2,toy+llama8b --large results/llama8b --archive evidence.tar.gz

Each experiment is an ordinary `sweeper run` of a file in experiments/: what the budget cuts goes on at the next visit
(`--archive` brings the results of the last one in, and takes all of them out). The most telling ones come first.
`a+b`: two `sweeper run` at once on this host. `nvidia-smi` writes its own record of the GPUs beside the results.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SWEEPS = {
    "first": "gpu/first.yaml",
    "starts": "gpu/starts.yaml",
    "toy": "gpu/toy.yaml",
    "llama8b": "gpu/llama8b.yaml",
    "tp2": "gpu/tp2.yaml",
    "interference": "interference.yaml",
    "interference-alone": "interference.yaml",
    "eight-gpus": "eight_gpus.yaml",
    "eight-gpus-alone": "eight_gpus.yaml",
}
ORDER = ("first", "cleanup", "foreign", "toy")
STOP_S = 30.0
"""An interrupted run stops its server and writes its journal in less."""
STAGGER_S = 5.0
"""Of runs started at once the first named finds the GPUs free."""
SMI_FIELDS = "timestamp,index,power.draw,clocks.sm,clocks.mem,clocks_event_reasons.active,memory.used,temperature.gpu"


def sweeper(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sweeper", *arguments]


def read(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(sweeper(*arguments), capture_output=True, text=True, check=False, cwd=ROOT)
    return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr


def gpu_query(fields: str) -> list[list[str]]:
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]


def used_mib() -> int:
    return int(gpu_query("memory.used")[0][0])


def until(condition: object, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if callable(condition) and condition():
            return True
        time.sleep(0.1)
    return False


def latest(results: Path, experiment: str) -> Path | None:
    runs = sorted((results / experiment).glob("*/plan.json"))
    return runs[-1].parent if runs else None


class Visit:
    """One stay on a machine."""

    def __init__(self, results: Path, evidence: Path, budget_s: float, large: Path | None) -> None:
        self.results = results
        self.large = large
        self.evidence = evidence
        self.deadline = time.monotonic() + budget_s

    @property
    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    def sweep(self, names: Sequence[str]) -> None:
        """Run or go on with these experiments, all at once; interrupted in order when the time is up."""
        names = [name for name in names if not self._complete(name)]
        began: dict[str, float] = {}
        running = []
        for place, name in enumerate(names):
            time.sleep(STAGGER_S if place else 0)
            command = sweeper("run", str(self._file(name)), "--out", str(self.results))
            began[name] = time.monotonic()
            with (self.results / f"{name}.log").open("ab") as log:
                running.append((name, command, subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)))
        walls: dict[str, float] = {}
        while len(walls) < len(running) and self.left_s > STOP_S:
            for name, _, process in running:
                if process.poll() is not None:
                    walls.setdefault(name, time.monotonic() - began[name])
            time.sleep(0.1)
        for _, _, process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for name, command, process in running:
            ended = in_time(process, STOP_S - 5)
            walls.setdefault(name, time.monotonic() - began[name])
            visit = {"at": now(), "exit_code": process.returncode, "wall_s": round(walls[name], 2)}
            visit |= {} if ended else {"killed": True}
            visit |= {"at_once_with": [other for other in names if other != name]} if len(names) > 1 else {}
            self._report(name, {"command": " ".join(command[1:]), "visits": [*self._visits(name), visit]})

    def _visits(self, name: str) -> list[dict[str, object]]:
        """How often this experiment was worked on, and how long each time."""
        file = self.evidence / f"{name}-run.json"
        visits: list[dict[str, object]] = json.loads(file.read_text()).get("visits", []) if file.exists() else []
        return visits

    def _complete(self, name: str) -> bool:
        return any(visit["exit_code"] == 0 for visit in self._visits(name))

    def _file(self, name: str) -> Path:
        """The experiment; with the model of `--large`, or one server at a time, written anew under its own name."""
        written = ROOT / "experiments" / SWEEPS[name]
        text = written.read_text()
        if name == "llama8b" and self.large is not None:
            changed = text.replace("../../results/llama8b", str(self.large))
        elif name.endswith("-alone"):
            packed = f"name: {name.removesuffix('-alone')}"
            changed = text.replace("packed", "exclusive").replace(packed, f"name: {name}")
        else:
            return written
        file = self.results / f"{name}.yaml"
        file.write_text(changed)
        return file

    def _report(self, name: str, facts: dict[str, object]) -> None:
        run = latest(self.results, f"gpu-{name}") or latest(self.results, name)
        if run is None:
            self.note(f"{name}-run", facts | {"log": tail(self.results / f"{name}.log")})
            return
        for form in ("md", "json"):
            code, text = read("report", str(run), "--format", form)
            (self.evidence / f"{name}.{form}").write_text(text if code == 0 else f"sweeper report failed: {text}")
        self.note(f"{name}-run", facts | {"run": run.name})

    def cleanup(self) -> None:
        """Controller, keeper and launcher killed −9 while the server holds memory; then `sweeper clean`."""
        before = used_mib()
        ready, owner = self._serve()
        held = used_mib()
        victims = [owner.pid, *session_pids("sweeper.effects.keeper")]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        owner.wait()
        _, listed = read("clean", "--dry-run", "--json")
        began = time.monotonic()
        code, cleaned = read("clean", "--json")
        free = until(lambda: used_mib() <= before + 200, 60)
        self.note(
            "cleanup",
            {
                "server_was_ready": ready,
                "memory_mib": {"before": before, "held": held, "after": used_mib()},
                "killed": victims,
                "clean_exit_code": code,
                "clean_dry_run": parsed(listed),
                "clean": parsed(cleaned),
                "memory_fell": free,
                "seconds_from_clean_to_free": round(time.monotonic() - began, 2),
            },
        )

    def foreign(self) -> None:
        """A CUDA process that is not ours holds memory: refused, and left alone."""
        hold = "import torch, time; x = torch.zeros(2**30, device='cuda'); print('up', flush=True); time.sleep(300)"
        stranger = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True)
        try:
            assert stranger.stdout is not None
            stranger.stdout.readline()
            command = sweeper("run", "experiments/gpu/first.yaml", "--fresh", "--out", str(self.results / "foreign"))
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=150)
            self.note(
                "foreign",
                {
                    "stranger_pid": stranger.pid,
                    "exit_code": done.returncode,
                    "said": (done.stdout + done.stderr).splitlines()[-12:],
                    "gpus": parsed(read("gpus", "--json")[1]),
                    "stranger_alive": stranger.poll() is None,
                },
            )
        finally:
            stranger.kill()
            stranger.wait()

    def _serve(self) -> tuple[bool, subprocess.Popen[bytes]]:
        """A run whose first server is up."""
        out = self.results / "cleanup"
        command = sweeper("run", "experiments/gpu/first.yaml", "--fresh", "--out", str(out))
        owner = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)

        def measuring() -> bool:
            run = latest(out, "gpu-first")
            journal = run / "events.jsonl" if run else None
            return journal is not None and journal.exists() and '"server_ready"' in journal.read_text()

        return until(measuring, max(10.0, min(180.0, self.left_s - STOP_S))), owner

    def note(self, name: str, facts: dict[str, object]) -> None:
        (self.evidence / f"{name}.json").write_text(json.dumps(facts, indent=1, default=str) + "\n")
        print(f"{name}: {json.dumps(facts, default=str)[:400]}", flush=True)


def in_time(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ended by itself; if not, it is killed, and its keeper ends its server."""
    try:
        process.wait(timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


@contextlib.contextmanager
def smi_record(folder: Path) -> Iterator[None]:
    """nvidia-smi's own readings five times a second, in a file of this visit."""
    command = ["nvidia-smi", f"--query-gpu={SMI_FIELDS}", "--format=csv,noheader,nounits", "-lms", "200"]
    with (folder / f"nvidia-smi-{int(time.time())}.csv").open("wb") as file:
        process = subprocess.Popen(command, stdout=file)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def session_pids(module: str) -> list[int]:
    """Pids whose command line runs this module of ours; only for planting the fault."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if module.encode() in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def tail(path: Path, lines: int = 20) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-lines:] if path.exists() else []


def environment() -> dict[str, object]:
    name, driver, memory = gpu_query("name,driver_version,memory.total")[0]
    return {
        "gpu": name,
        "gpus": len(gpu_query("index")),
        "driver": driver,
        "memory_mib": memory,
        "python": sys.version.split()[0],
        "sweeper": read("--version")[1].strip(),
        "at": now(),
        "command": " ".join(sys.argv),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--evidence", type=Path, default=ROOT / "docs" / "evidence")
    parser.add_argument("--budget-s", type=float, default=3600)
    parser.add_argument("--only", default=",".join(ORDER))
    parser.add_argument("--large", type=Path, help="folder of make_random_llama.py, for llama8b")
    parser.add_argument("--archive", type=Path, help="results of earlier visits: unpacked first, written last")
    options = parser.parse_args()
    if options.archive and options.archive.exists():
        with tarfile.open(options.archive) as archive:
            archive.extractall(options.results, filter="data")
    options.results.mkdir(parents=True, exist_ok=True)
    facts = environment()
    folder = options.evidence / f"{str(facts['at'])[:10]}-{str(facts['gpu']).lower().replace(' ', '-')}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "environment.json").write_text(json.dumps(facts, indent=1) + "\n")
    large = options.large.resolve() if options.large else None
    visit = Visit(options.results.resolve(), folder, options.budget_s, large)
    try:
        with smi_record(visit.results):
            for name in options.only.split(","):
                if visit.left_s < 2 * STOP_S:
                    print(f"{name}: no time left", flush=True)
                    continue
                visit.sweep(name.split("+")) if set(name.split("+")) <= set(SWEEPS) else getattr(visit, name)()
    finally:
        if options.archive:
            with tarfile.open(options.archive, "w:gz") as archive:
                archive.add(options.results, arcname=".")


if __name__ == "__main__":
    main()
