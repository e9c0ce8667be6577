"""From the results of a GPU visit to evidence that can be published: reports, times, readings, without machine paths.

    python scripts/gpu_digest.py results docs/evidence/2026-11-30-2x-nvidia-h200

For every run found: `<name>.md` (its report), `<name>.json` (where the time went, the GPUs by NVML beside nvidia-smi's
record of the same seconds, how long memory took to fall) and the journal's sittings. `readings.json`: all windows.
"""

import argparse
import csv
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sweeper.analysis.timeline import timeline_of
from sweeper.core.result import Measurement
from sweeper.core.run import RunData
from sweeper.store.reader import read_run

MOST_MIB = 100
"""Under this much only the contexts of processes that are ending are left."""
PATHS = re.compile(r"(?:/[\w.+-]+)+/(?=(?:sweeper/data/toy|experiments|results|llama8b|python3|\.cache)\b)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One line of nvidia-smi."""

    at_s: float
    gpu: int
    power_w: float
    sm_clock_mhz: float
    power_capped: bool
    memory_mib: float


def smi_readings(folder: Path) -> list[Reading]:
    """Of all `nvidia-smi-*.csv` (see SMI_FIELDS in gpu_evidence.py), in time; its clock must be UTC."""
    found = []
    for file in sorted(folder.glob("nvidia-smi-*.csv")):
        for row in csv.reader(file.read_text().splitlines(), skipinitialspace=True):
            if len(row) < 8:  # cut by the end
                continue
            at = datetime.strptime(row[0], "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp()
            capped = bool(int(row[5], 16) & 0x4)
            found.append(
                Reading(
                    at_s=at,
                    gpu=int(row[1]),
                    power_w=float(row[2]),
                    sm_clock_mhz=float(row[3]),
                    power_capped=capped,
                    memory_mib=float(row[6]),
                )
            )
    return sorted(found, key=lambda reading: reading.at_s)


def beside(entry: Measurement, gpus: Sequence[int], readings: Sequence[Reading]) -> dict[str, object] | None:
    """Our conditions of a window beside nvidia-smi's of the same seconds; None: fewer than three readings a GPU."""
    begin = datetime.fromisoformat(entry.started_at).timestamp()
    inside = [one for one in readings if one.gpu in gpus and begin <= one.at_s <= begin + entry.metrics.window_s]
    if len(inside) < 3 * len(gpus) or entry.conditions.power_w_mean is None:
        return None
    power = sum(statistics.fmean(one.power_w for one in inside if one.gpu == gpu) for gpu in gpus)
    memory = sum(max(one.memory_mib for one in inside if one.gpu == gpu) for gpu in gpus)
    ours = entry.conditions
    return {
        "trial": entry.trial_id,
        "start": entry.start,
        "repeat": entry.repeat,
        "window_s": round(entry.metrics.window_s, 2),
        "power_w": [round(ours.power_w_mean or 0, 1), round(power, 1)],
        "energy_j": [round(ours.energy_j or 0, 1), round(power * entry.metrics.window_s, 1)],
        "sm_clock_mhz": [ours.sm_clock_mhz_mean, round(statistics.fmean(one.sm_clock_mhz for one in inside), 1)],
        "memory_mib": [round((ours.memory_used_bytes_max or 0) / 2**20), memory],
        "power_cap": [bool(ours.throttle_reasons), any(one.power_capped for one in inside)],
        "power_cap_share_of_smi": round(statistics.fmean(one.power_capped for one in inside), 3),
    }


def summed_up(pairs: Sequence[dict[str, object]]) -> dict[str, object]:
    """Ratio ours / nvidia-smi of each quantity over the windows: median, and the smallest and largest."""
    found: dict[str, object] = {"windows": len(pairs)}
    for key in ("power_w", "energy_j", "sm_clock_mhz", "memory_mib"):
        values = [pair[key] for pair in pairs]
        ratios = [value[0] / value[1] for value in values if isinstance(value, list) and value[0] and value[1]]
        if ratios:
            low, high = round(min(ratios), 3), round(max(ratios), 3)
            found[key] = {"median": round(statistics.median(ratios), 3), "lowest": low, "highest": high}
    flags = [pair["power_cap"] for pair in pairs]
    for name, flag in (("both", [True, True]), ("ours_only", [True, False]), ("smi_only", [False, True])):
        found[f"power_cap_{name}"] = flags.count(flag)
    return found


def memory_falls(run: RunData, readings: Sequence[Reading]) -> list[dict[str, object]]:
    """From `stopping` to the first reading of the server's GPUs with next to nothing in use, and with nothing."""
    gpus = {(start.group_id, start.start): start.gpu_ids for start in run.starts}
    found = []
    for event in run.events:
        if event.get("kind") != "phase_changed" or event.get("phase") != "stopping":
            continue
        began = datetime.fromisoformat(str(event["at"])).timestamp()
        key = (str(event["group_id"]), int(event["start"]))
        label = next(arm.label for arm in run.plan.arms if arm.arm_id == event["arm_id"])
        most, whole = (_below(mib, gpus.get(key, ()), began, readings) for mib in (MOST_MIB, 1))
        found.append({"arm": label, "start": key[1], "below_100_mib_s": most, "empty_s": whole})
    return found


def _below(mib: float, gpus: Sequence[int], began: float, readings: Sequence[Reading]) -> float | None:
    after = [one for one in readings if one.gpu in gpus and one.at_s > began and one.memory_mib < mib]
    firsts = [next((one.at_s - began for one in after if one.gpu == gpu), None) for gpu in gpus]
    known = [first for first in firsts if first is not None]
    return round(max(known), 1) if known and len(known) == len(firsts) else None


def times(run: RunData) -> dict[str, object]:
    """Seconds by phase of every server start, and Sweeper's own share."""
    told = timeline_of(run)
    labels = {arm.arm_id: arm.label for arm in run.plan.arms}
    share = told.orchestration_share
    return {
        "orchestration_share": None if share is None else round(share, 4),
        "orchestration_s": round(told.orchestration_s, 2),
        "starts": [
            {"arm": labels[start.arm_id], "start": start.start}
            | {phase: round(seconds, 2) for phase, seconds in start.phases.items()}
            | {"other": round(start.other_s, 2)}
            for start in told.starts
        ],
    }


def sittings(run: RunData) -> list[dict[str, object]]:
    """Each `sweeper run` on this run: when, what it kept from before, how it ended."""
    keep = ("at", "trials", "starts", "resumed", "completed", "failed", "skipped", "interrupted")
    kinds = ("run_started", "run_ended", "run_finished", "interrupted")
    return [
        {"kind": event["kind"]} | {key: event[key] for key in keep if key in event}
        for event in run.events
        if event.get("kind") in kinds
    ]


def without_paths(text: str) -> str:
    """Absolute paths up to the part that means something, and what containers put into the environment, left out."""
    text = re.sub(r", NVIDIA\\?_REQUIRE\\?_CUDA .*?(?=, \w+\\?_|\s·|</sub>)", "", text, flags=re.DOTALL)
    text = PATHS.sub("", text)
    return re.sub(r"(?:/tmp|/root|/opt)/[\w./+-]*/", "", text)


def digest(run_dir: Path, name: str, out: Path, readings: Sequence[Reading]) -> list[dict[str, object]]:
    run = read_run(run_dir)
    gpus = {(start.group_id, start.start): start.gpu_ids for start in run.starts}
    pairs = [
        found
        for entry in run.measurements
        if (found := beside(entry, gpus.get((entry.group_id, entry.start), ()), readings))
    ]
    command = [sys.executable, "-m", "sweeper", "report", str(run_dir), "--format", "md"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (out / f"{name}.md").write_text(without_paths(report))
    facts = {
        "run": run.run_id,
        "sittings": sittings(run),
        "gpus": {f"{key[0]} start {key[1]}": list(ids) for key, ids in gpus.items()},
        "times": times(run),
        "stop_to_free_memory": memory_falls(run, readings),
        "nvml_to_nvidia_smi": summed_up(pairs),
    }
    (out / f"{name}.json").write_text(without_paths(json.dumps(facts, indent=1)) + "\n")
    return [{"run": name} | pair for pair in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    readings = smi_readings(options.results)
    windows: list[dict[str, object]] = []
    for plan in sorted(options.results.glob("*/*/plan.json")):
        windows += digest(plan.parent, plan.parent.parent.name.removeprefix("gpu-"), options.out, readings)
    (options.out / "readings.json").write_text(
        json.dumps({"pairs_are": "[ours (NVML), nvidia-smi]", "all": summed_up(windows)}, indent=1)[:-2]
        + ',\n "windows": [\n  '
        + ",\n  ".join(map(json.dumps, windows))
        + "\n ]\n}\n"
    )


if __name__ == "__main__":
    main()
