"""Which remains of an earlier session still count. Pure: says what to keep and what to move aside, and why."""

from dataclasses import dataclass
from pathlib import Path

from sweeper.core.result import Completed, Fingerprint, Measurement, Skipped, TrialResult
from sweeper.core.run import RunData
from sweeper.store import layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    kept: tuple[Measurement, ...]
    results: tuple[TrialResult, ...]
    """Trials that stay ended."""
    aside: tuple[Path, ...]
    """To be moved out of the way, absolute."""
    notes: tuple[str, ...]
    """Why, in sentences."""
    recorded: tuple[str, ...] = ()
    """Baselines (arm ids) whose log-probabilities still count."""


def resume(
    run: RunData,
    current: Fingerprint,
    *,
    broken: tuple[Path, ...] = (),
    retry_failed: bool = False,
    accept_drift: bool = False,
) -> Resumption:
    """`broken`: what store.reader's `half_written` and `unreadable` found in this run."""
    notes = [f"{path.relative_to(run.path)}: not whole, made again" for path in broken]
    counts = {trial.trial_id: 0 for trial in run.plan.trials}
    foreign = sorted(
        _folder(run, one) for one in run.measurements if one.trial_id not in counts and _folder(run, one) not in broken
    )
    notes += [
        f"{folder.relative_to(run.path)}: its trial is not in the plan; left alone and not counted"
        for folder in foreign
    ]
    drifted: dict[str, list[Measurement]] = {}
    kept: list[Measurement] = []
    for one in run.measurements:
        if _folder(run, one) in broken or one.trial_id not in counts:
            continue
        told = "; ".join(drift(one.fingerprint, current))
        if told:
            drifted.setdefault(told, []).append(one)
        if not told or accept_drift:
            kept.append(one)
    fate = "kept (--accept-drift)" if accept_drift else "run again"
    notes += [f"{_count(len(ones))} of something else and {fate}: {told}" for told, ones in drifted.items()]
    for one in kept:
        counts[one.trial_id] += 1
    results = tuple(one for one in run.results if _stands(one, counts, retry_failed=retry_failed))
    fallen = [one for one in run.results if one not in results]
    gone = () if accept_drift else drifted.values()
    aside = [*broken, *(_folder(run, one) for ones in gone for one in ones)]
    aside += [layout.trial_dir(run.path, one.trial_id) / layout.RESULT for one in fallen]
    stale = [one for one in run.references if drift(one.fingerprint, current) and not accept_drift]
    aside += [layout.reference_file(run.path, one.group_id) for one in stale]
    return Resumption(
        kept=tuple(kept),
        results=results,
        aside=tuple(dict.fromkeys(aside)),
        notes=tuple(notes),
        recorded=tuple(one.arm_id for one in run.references if one not in stale),
    )


def _count(number: int) -> str:
    return "1 measurement is" if number == 1 else f"{number} measurements are"


def drift(before: Fingerprint, now: Fingerprint) -> tuple[str, ...]:
    """What changed, in sentences; what is unknown on either side is not compared."""
    pairs: list[tuple[str, object, object]] = [
        ("the engine's version", before.engine.version, now.engine.version),
        ("the engine's files", before.engine.files_sha256, now.engine.files_sha256),
        ("the prompts", before.prompts_sha256, now.prompts_sha256),
        ("the GPU", ", ".join(sorted(set(before.gpu))) or None, ", ".join(sorted(set(now.gpu))) or None),
        ("the driver", before.driver, now.driver),
        ("the device", before.device, now.device),
    ]
    return tuple(
        f"{what} changed from {_short(old)} to {_short(new)}"
        for what, old, new in pairs
        if old is not None and new is not None and old != new
    )


def _stands(result: TrialResult, counts: dict[str, int], *, retry_failed: bool) -> bool:
    if isinstance(result, Completed):
        return counts.get(result.trial_id, 0) >= result.measurements and not (retry_failed and result.failures)
    if isinstance(result, Skipped):
        return not retry_failed and not result.reason.startswith(("doctor", "budget"))
    return not retry_failed


def _folder(run: RunData, one: Measurement) -> Path:
    return layout.measurement_dir(run.path, one.trial_id, one.start, one.repeat)


def _short(value: object) -> str:
    text = str(value)
    return text[:12] if len(text) == 64 else text
