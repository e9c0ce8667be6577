"""Tables about the machine: where the time of each server start went, and what the GPUs did under the loads."""

from sweeper.analysis.compare import Comparison
from sweeper.analysis.points import load_words
from sweeper.analysis.timeline import ENGINE_START, Timeline, timeline_of
from sweeper.core.run import RunData
from sweeper.present.numbers import ABSENT, fixed, percent
from sweeper.present.side_tables import SideTable


def machine_tables(run: RunData, comparison: Comparison) -> tuple[SideTable, ...]:
    """Those that this run has something for."""
    return tuple(table for table in (_times(run), _gpus(comparison)) if table.rows)


def _times(run: RunData) -> SideTable:
    told = timeline_of(run)
    labels = {arm.arm_id: arm.label for arm in run.plan.arms}
    rows = []
    for start in told.starts:
        phases = start.phases
        seconds = [phases.get(name) for name in ENGINE_START]
        seconds += [sum(value for value in seconds if value is not None)]
        seconds += [phases.get(name) for name in ("warm-up", "load", "reference", "stopping")]
        ours = phases.get("cleaning", 0.0) + start.other_s
        label = labels.get(start.arm_id, start.arm_id)
        which = f"start {start.start + 1}{', failed' if start.failed else ''}"
        rows.append((label, which, *(fixed(value, 1) for value in seconds), fixed(ours, 1)))
    return SideTable(
        key="time",
        short="Time",
        title="Where the time went",
        intro=_time_words(told),
        columns=(
            *("configuration", "start", "process and imports", "weights", "graphs", "engine warm-up", "until ready"),
            *("warm-up", "load", "log-probabilities", "stop", "Sweeper"),
        ),
        rows=tuple(rows),
    )


def _time_words(told: Timeline) -> str:
    words = (
        "Seconds of each server start that came to its end, waiting for GPUs left out; a start that captured no "
        "graphs has a dash. Log-probabilities: of the baseline's answers, once a run. Sweeper: cleaning, flushing "
        "caches, evaluating, writing."
    )
    if told.orchestration_share is None:
        return words
    return f"{words} With what lay between the starts Sweeper took {percent(told.orchestration_share)} of the time."


def _gpus(comparison: Comparison) -> SideTable:
    rows = []
    for entry in comparison.outcomes:
        numbers = entry.numbers
        if numbers is None or numbers.power_w is None:
            continue
        per_token = numbers.energy_j_per_token
        cells = (
            fixed(None if per_token is None else per_token * 1000, 1),
            fixed(numbers.power_w, 0),
            fixed(numbers.sm_clock_mhz, 0),
            fixed(numbers.sm_clock_mhz_min, 0),
            percent(numbers.throttled_share),
            fixed(None if numbers.memory_used_bytes is None else numbers.memory_used_bytes / 2**30, 1),
            percent(numbers.memory_free_share),
        )
        rows.append((entry.arm.label, load_words(entry.trial.load), *cells))
    return SideTable(
        key="gpu",
        short="GPU",
        title="Energy, clocks and memory",
        intro=(
            "Of the GPUs of a server together, as NVML tells: energy of a measured window by its output tokens "
            "(prefill is in it), mean power, SM clock, share of the readings (one a second) that told a slow-down, "
            f"most memory in use, least memory free. {ABSENT}: not recorded."
        ),
        columns=(
            *(
                "configuration",
                "load",
                "energy / token (mJ)",
                "power (W)",
                "SM clock (MHz)",
                "lowest clock",
                "slowed down",
            ),
            *("memory (GiB)", "memory free"),
        ),
        rows=tuple(rows),
    )
