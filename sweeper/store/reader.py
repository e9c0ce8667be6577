"""Reads a run folder, also while it is written. What is broken is named in `problems`; the rest is still read."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweeper.core.lossless import Losslessness, Reference
from sweeper.core.result import Completed, Failed, Measurement, Skipped, StartRecord, TrialResult
from sweeper.core.run import RunData
from sweeper.core.sample import Sample
from sweeper.errors import StoreError
from sweeper.store import layout
from sweeper.store.codec import from_json, printable_json
from sweeper.store.plausible import impossible_value, is_line
from sweeper.store.samples import is_whole, samples_from_parquet
from sweeper.store.writer import StoredPlan


def read_run(path: Path) -> RunData:
    """The run in folder `path`. Raises StoreError only when the folder is no run or its plan cannot be read."""
    stored = read_plan(path)
    problems: list[str] = [str(found.relative_to(path)) + ": half-written" for found in half_written(path)]
    measurements = tuple(_read_all(_measurement_files(path), Measurement, problems, path))
    results = tuple(_read_all(sorted(path.glob(f"{layout.TRIALS}/*/{layout.RESULT}")), TrialResult, problems, path))
    starts = tuple(_read_all(_launch_files(path), StartRecord, problems, path))
    references = tuple(_read_all(_reference_files(path), Reference, problems, path))
    losslessness = tuple(_read_all(_lossless_files(path), Losslessness, problems, path))
    ended = {result.trial_id for result in results}
    return RunData(
        path=path,
        run_id=stored.run_id,
        plan=stored.plan,
        experiment=stored.experiment,
        environment=_read_environment(path, problems),
        measurements=measurements,
        results=results,
        starts=starts,
        events=tuple(_read_events(path / layout.EVENTS, problems)),
        finished=all(trial.trial_id in ended for trial in stored.plan.trials),
        problems=tuple(problems),
        references=references,
        losslessness=losslessness,
    )


def read_plan(path: Path) -> StoredPlan:
    """plan.json of a run folder."""
    file = path / layout.PLAN
    if not file.is_file():
        raise StoreError(f"{path}: not a run folder: it has no {layout.PLAN}")
    stored: StoredPlan = from_json(StoredPlan, printable_json(_bytes(file)), origin=str(file))
    return stored


def read_measurement(file: Path, folder: Path) -> Measurement:
    """One measurement.json, named by its place in `folder`. Raises StoreError."""
    measurement: Measurement = _read(file, Measurement, folder)
    return measurement


def read_samples(run_dir: Path, measurement: Measurement) -> tuple[Sample, ...]:
    """The requests of one measurement, in the order of sending. Raises StoreError."""
    folder = layout.measurement_dir(run_dir, measurement.trial_id, measurement.start, measurement.repeat)
    return samples_from_parquet(folder / layout.SAMPLES)


def find_runs(results_dir: Path) -> tuple[Path, ...]:
    """Run folders at or below `results_dir` (a results folder, an experiment's, or one run), oldest first."""
    found = [plan.parent for pattern in ("", "*/", "*/*/") for plan in results_dir.glob(pattern + layout.PLAN)]
    return tuple(sorted(found, key=lambda path: (path.name, str(path))))


def half_written(path: Path) -> tuple[Path, ...]:
    """What a writer left when it died: temporary files, and measurement folders without their marker."""
    temporary = [file for file in path.rglob(".*.tmp") if layout.is_temporary(file.name)]
    unmarked = [folder for folder in _measurement_folders(path) if not (folder / layout.MEASUREMENT).exists()]
    inside = [file for file in temporary if not any(file.is_relative_to(folder) for folder in unmarked)]
    return tuple(sorted(found for found in [*inside, *unmarked] if layout.ASIDE not in found.relative_to(path).parts))


def unreadable(path: Path) -> tuple[Path, ...]:
    """Measurement folders and results that this version cannot read, and measurements whose samples are not whole."""
    found = []
    for file in _measurement_files(path):
        if not _opens(file, Measurement) or not is_whole(file.parent / layout.SAMPLES):
            found.append(file.parent)
    found += [file for file in path.glob(f"{layout.TRIALS}/*/{layout.RESULT}") if not _opens(file, TrialResult)]
    found += [file for file in _reference_files(path) if not _opens(file, Reference)]
    return tuple(sorted(found))


def _opens(file: Path, kind: Any) -> bool:
    try:
        _read(file, kind, file.parent)
    except StoreError:
        return False
    return True


def _measurement_folders(path: Path) -> Iterator[Path]:
    for folder in sorted(path.glob(f"{layout.TRIALS}/*/start-*")):
        if folder.is_dir() and layout.parse_measurement_dir(folder.name) is not None:
            yield folder


def _measurement_files(path: Path) -> list[Path]:
    files = [folder / layout.MEASUREMENT for folder in _measurement_folders(path)]
    return [file for file in files if file.exists()]


def _lossless_files(path: Path) -> list[Path]:
    return sorted(path.glob(f"{layout.TRIALS}/*/start-*/{layout.LOSSLESS}"))


def _reference_files(path: Path) -> list[Path]:
    return sorted(path.glob(f"{layout.GROUPS}/*/{layout.REFERENCE}"))


def _launch_files(path: Path) -> list[Path]:
    return sorted(path.glob(f"{layout.GROUPS}/*/start-*/{layout.LAUNCH}"))


def _read_all(files: list[Path], kind: Any, problems: list[str], run_dir: Path) -> Iterator[Any]:
    for file in files:
        try:
            yield _read(file, kind, run_dir)
        except StoreError as error:
            problems.append(str(error))


def _read(file: Path, kind: Any, run_dir: Path) -> Any:
    origin = str(file.relative_to(run_dir))
    text = _bytes(file) if kind is Reference else printable_json(_bytes(file))  # answers are compared as they are
    value = from_json(kind, text, origin=origin)
    if kind is Measurement and (problem := impossible_value(value)) is not None:
        raise StoreError(f"{origin}: {problem}")
    home = _home(value)
    if file.parent.parts[-len(home.parts) :] != home.parts:
        raise StoreError(f"{origin}: holds what belongs in {home}; the file was copied or renamed")
    return value


def _home(value: Measurement | Losslessness | TrialResult | StartRecord | Reference) -> Path:
    """The folder, relative to the run's, that a writer gives what is so named."""
    match value:
        case Measurement() | Losslessness():
            return layout.measurement_dir(Path(), value.trial_id, value.start, value.repeat)
        case Completed() | Failed() | Skipped():
            return layout.trial_dir(Path(), value.trial_id)
        case StartRecord():
            return layout.start_dir(Path(), value.group_id, value.start)
        case Reference():
            return layout.reference_file(Path(), value.group_id).parent


def _read_environment(path: Path, problems: list[str]) -> Mapping[str, Any]:
    try:
        value = json.loads(printable_json(_bytes(path / layout.ENVIRONMENT)))
    except (StoreError, ValueError, RecursionError) as error:
        problems.append(f"{layout.ENVIRONMENT}: {error}")
        return {}
    return value if isinstance(value, dict) else {}


def _read_events(file: Path, problems: list[str]) -> Iterator[Mapping[str, Any]]:
    if not file.exists():
        return
    for number, line in enumerate(printable_json(_bytes(file)).splitlines(), start=1):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            problems.append(f"{layout.EVENTS}:{number}: half-written line")
            continue
        if is_line(event):
            yield event
        else:
            problems.append(f"{layout.EVENTS}:{number}: no line of a journal")


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error.strerror}") from error
