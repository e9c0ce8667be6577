"""Names inside results/: the only place that knows where what is kept. Pure.

results/<experiment>/<run_id>/
  plan.json environment.json events.jsonl report.html
  groups/<group_id>/reference.json      a baseline's greedy answers with log-probabilities
  groups/<group_id>/start-<k>/{launch.json, server_info.json, server.log, partial-<trial_id>-repeat-<r>.parquet}
  groups/<group_id>/start-<k>/server-rank<n>.log   of the further nodes of a server that spans several
  trials/<trial_id>/{trial.json, result.json}
  trials/<trial_id>/start-<k>-repeat-<r>/{samples.parquet, measurement.json, lossless.json}
  aside/<when>/…                        what was found half-written or no longer belongs
"""

import re
from datetime import datetime
from pathlib import Path

PLAN = "plan.json"
ENVIRONMENT = "environment.json"
EVENTS = "events.jsonl"
REPORT = "report.html"
LOCK = ".lock"
TRIAL = "trial.json"
RESULT = "result.json"
SAMPLES = "samples.parquet"
MEASUREMENT = "measurement.json"
"""Written last: a measurement folder without it is not one."""
LOSSLESS = "lossless.json"
"""Made from a measurement's samples and its baseline's reference, whenever both are there."""
REFERENCE = "reference.json"
LAUNCH = "launch.json"
SERVER_INFO = "server_info.json"
SERVER_LOG = "server.log"

GROUPS = "groups"
TRIALS = "trials"
ASIDE = "aside"

_MEASUREMENT_FOLDER = re.compile(r"start-(\d+)-repeat-(\d+)")
_START_FOLDER = re.compile(r"start-(\d+)")


def run_id(now: datetime, nonce: str) -> str:
    """Sorts by time: `20261129-195711-3fa2`; `nonce` tells two runs of one second apart."""
    return f"{now:%Y%m%d-%H%M%S}-{nonce}"


def aside_name(now: datetime, nonce: str) -> str:
    return f"{now:%Y%m%d-%H%M%S}-{nonce}"


def run_dir(results_dir: Path, experiment: str, run: str) -> Path:
    return results_dir / experiment / run


def start_dir(run_dir: Path, group_id: str, start: int) -> Path:
    return run_dir / GROUPS / group_id / f"start-{start}"


def reference_file(run_dir: Path, group_id: str) -> Path:
    """Beside the starts of the baseline's group: it outlives a start that is set aside."""
    return run_dir / GROUPS / group_id / REFERENCE


def rank_log(rank: int) -> str:
    """Of a further rank of a server that spans nodes, beside the first one's."""
    return SERVER_LOG if rank == 0 else f"server-rank{rank}.log"


def trial_dir(run_dir: Path, trial_id: str) -> Path:
    return run_dir / TRIALS / trial_id


def partial_samples(run_dir: Path, group_id: str, start: int, trial_id: str, repeat: int) -> Path:
    """The requests of a load whose server died: beside the server's log, where nobody takes them for a measurement."""
    return start_dir(run_dir, group_id, start) / f"partial-{trial_id}-repeat-{repeat}.parquet"


def measurement_dir(run_dir: Path, trial_id: str, start: int, repeat: int) -> Path:
    return trial_dir(run_dir, trial_id) / f"start-{start}-repeat-{repeat}"


def parse_measurement_dir(name: str) -> tuple[int, int] | None:
    """(start, repeat), or None when the name is not that of a measurement folder."""
    match = _MEASUREMENT_FOLDER.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def parse_start_dir(name: str) -> int | None:
    match = _START_FOLDER.fullmatch(name)
    return int(match[1]) if match else None


def temporary_name(name: str, pid: int) -> str:
    """Beside its target, so that the rename stays on one file system; hidden, so that nobody takes it for a result."""
    return f".{name}.{pid}.tmp"


def is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")
