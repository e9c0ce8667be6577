"""Writes one run, event by event. The controller is the only caller, and the folder's lock keeps it the only one."""

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweeper import __version__
from sweeper.core.events import (
    Event,
    LoadCut,
    Measured,
    ReferenceRecorded,
    ServerReady,
    StartEnded,
    StartFailed,
    TrialEnded,
)
from sweeper.core.lossless import Losslessness
from sweeper.core.redaction import redact_value
from sweeper.core.result import SCHEMA_VERSION, Measurement, StartRecord
from sweeper.core.trial import Plan
from sweeper.errors import StoreError
from sweeper.store import layout
from sweeper.store.codec import to_json, to_plain
from sweeper.store.disk import Disk
from sweeper.store.lock import FolderLock
from sweeper.store.samples import samples_to_parquet


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """plan.json."""

    run_id: str
    created_at: str
    sweeper_version: str
    plan_id: str
    plan: Plan
    experiment: Mapping[str, Any]
    schema_version: int = SCHEMA_VERSION


class RunWriter:
    """An open run folder. Every method leaves it readable, whenever the process dies; all raise StoreError."""

    def __init__(self, path: Path, *, disk: Disk | None = None, now: Callable[[], datetime] = utc_now) -> None:
        """Opens an existing run folder for writing; `create` makes a new one."""
        self.path = path
        self._disk = disk or Disk()
        self._now = now
        self._lock = FolderLock(path)

    @classmethod
    def create(
        cls,
        results_dir: Path,
        plan: Plan,
        *,
        experiment: Mapping[str, Any],
        environment: Mapping[str, Any],
        disk: Disk | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> "RunWriter":
        run_id = layout.run_id(now(), secrets.token_hex(2))
        path = layout.run_dir(results_dir, plan.experiment, run_id)
        (disk or Disk()).make_folder(path)
        writer = cls(path, disk=disk, now=now)
        try:
            writer._write_plan(run_id, plan, experiment, environment)
        except BaseException:
            writer.close()
            raise
        return writer

    @property
    def run_id(self) -> str:
        return self.path.name

    def close(self) -> None:
        self._lock.close()

    def record(self, event: Event) -> None:
        """Keeps what the event carries, then its line in the journal: a line never speaks of what is not there."""
        self._require_folder()
        match event:
            case Measured():
                self._write_measurement(event)
            case ServerReady():
                self._write_start(event.record)
                self._write(self._start_dir(event.record) / layout.SERVER_INFO, _json(event.server_info))
            case LoadCut():
                where = layout.partial_samples(self.path, event.group_id, event.start, event.trial_id, event.repeat)
                self._write(where, samples_to_parquet(event.samples))
            case ReferenceRecorded(reference=one):
                self._write(layout.reference_file(self.path, one.group_id), to_json(one, indent=None))
            case StartEnded():
                self._write_start(event.record)
            case StartFailed() if event.record is not None:
                self._write_start(event.record)
            case TrialEnded():
                folder = layout.trial_dir(self.path, event.result.trial_id)
                self._write(folder / layout.RESULT, to_json(event.result))
            case _:
                pass
        self._disk.append_line(self.path / layout.EVENTS, _json(_line(event, self._now()), indent=None))

    def set_aside(self, paths: Iterable[Path]) -> tuple[str, ...]:
        """Moves files or folders of this run out of the way, keeping them; says what went where."""
        moved = []
        aside = self.path / layout.ASIDE / layout.aside_name(self._now(), secrets.token_hex(4))
        for path in paths:
            relative = path.relative_to(self.path)
            self._disk.move(path, aside / relative)
            moved.append(f"{relative} → {(aside / relative).relative_to(self.path)}")
        return tuple(moved)

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        self._write(self.path / layout.ENVIRONMENT, _json(redact_value(environment)))

    def write_losslessness(self, one: Losslessness) -> None:
        """Beside the measurement it is of; what stood there before was made from another reference."""
        folder = layout.measurement_dir(self.path, one.trial_id, one.start, one.repeat)
        self._write(folder / layout.LOSSLESS, to_json(one))

    def _write_plan(
        self, run_id: str, plan: Plan, experiment: Mapping[str, Any], environment: Mapping[str, Any]
    ) -> None:
        self.write_environment(environment)
        for trial in plan.trials:
            self._write(layout.trial_dir(self.path, trial.trial_id) / layout.TRIAL, to_json(trial))
        stored = StoredPlan(
            run_id=run_id,
            created_at=self._now().isoformat(),
            sweeper_version=__version__,
            plan_id=plan.plan_id,
            plan=plan.redacted(),
            experiment=dict(experiment),
        )
        self._write(self.path / layout.PLAN, _json(redact_value(to_plain(stored))))

    def _write_measurement(self, event: Measured) -> None:
        one = event.measurement
        folder = layout.measurement_dir(self.path, one.trial_id, one.start, one.repeat)
        if (folder / layout.MEASUREMENT).exists():
            raise StoreError(f"{folder}: holds a finished measurement; it is never overwritten")
        self._write(folder / layout.SAMPLES, samples_to_parquet(event.samples))
        self._write(folder / layout.MEASUREMENT, to_json(one))

    def _write_start(self, record: StartRecord) -> None:
        self._write(self._start_dir(record) / layout.LAUNCH, to_json(record))

    def _start_dir(self, record: StartRecord) -> Path:
        return layout.start_dir(self.path, record.group_id, record.start)

    def _require_folder(self) -> None:
        """Files without their plan could be read by nobody: better to end now than to measure for a night in vain."""
        if not (self.path / layout.PLAN).exists():
            raise StoreError(
                f"{self.path}: was removed or moved while it was written; run again: what is no longer there is "
                "measured again"
            )

    def _write(self, path: Path, data: bytes) -> None:
        self._disk.write_whole(path, data)


def _json(value: Mapping[str, Any], *, indent: int | None = 2) -> bytes:
    return json.dumps(value, indent=indent, ensure_ascii=False, default=str).encode(errors="backslashreplace")


def _line(event: Event, at: datetime) -> dict[str, Any]:
    """What the journal says of an event; bulky parts stay in their own files."""
    return {"at": at.isoformat(timespec="milliseconds"), "kind": event.kind, **_told(event)}


def _told(event: Event) -> dict[str, Any]:
    match event:
        case ServerReady(record=record):
            return _told_record(record)
        case StartEnded(record=record):
            return _told_record(record)
        case StartFailed():
            failure = {"failure": to_plain(event.failure)}
            start = {"group_id": event.group_id, "arm_id": event.arm_id, "start": event.start}
            return {**start, **failure, **(_told_record(event.record) if event.record else {})}
        case Measured(measurement=one):
            return _told_measurement(one)
        case ReferenceRecorded(reference=reference):
            told = {"arm_id": reference.arm_id, "group_id": reference.group_id, "start": reference.start}
            return {**told, "answers": len(reference.answers), "seconds": reference.seconds}
        case LoadCut():
            where = {"group_id": event.group_id, "start": event.start, "trial_id": event.trial_id}
            finished = sum(sample.ok for sample in event.samples)
            return {**where, "repeat": event.repeat, "finished": finished, "requests": len(event.samples)}
        case _:
            plain: dict[str, Any] = to_plain(event)
            return plain


def _told_record(record: StartRecord) -> dict[str, Any]:
    return {
        "group_id": record.group_id,
        "start": record.start,
        "launch_id": record.launch_id,
        "node": record.node,
        "gpu_ids": list(record.gpu_ids),
        "port": record.port,
        "ready_s": record.times.ready_s,
    }


def _told_measurement(one: Measurement) -> dict[str, Any]:
    return {
        "trial_id": one.trial_id,
        "group_id": one.group_id,
        "arm_id": one.arm_id,
        "start": one.start,
        "repeat": one.repeat,
        "output_tok_per_s": one.metrics.output_tok_per_s,
        "accept_length": one.metrics.spec.accept_length if one.metrics.spec else None,
        "marks": [mark.code for mark in one.marks],
    }
