"""What happens during a run, in order: the journal (events.jsonl), the live display and the pool speak these.

A group runner yields them; the controller is the only one that writes them to the store.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from sweeper.core.launch import Phase
from sweeper.core.lossless import Reference
from sweeper.core.result import Failure, Measurement, StartRecord, TrialResult
from sweeper.core.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    run_id: str
    experiment: str
    trials: int
    starts: int
    resumed: int
    """Measurements kept from before."""
    estimate_s: float | None
    kind: Literal["run_started"] = "run_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged:
    group_id: str
    arm_id: str
    start: int
    phase: Phase
    detail: str = ""
    """A sentence for people: `loading weights`, `concurrency 8, repeat 2 of 4`."""
    slot: str = ""
    """Where: `node-1 GPU 0,1`, `cpu 0`."""
    kind: Literal["phase_changed"] = "phase_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReady:
    record: StartRecord
    server_info: dict[str, object]
    kind: Literal["server_ready"] = "server_ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    measurement: Measurement
    samples: tuple[Sample, ...]
    kind: Literal["measured"] = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRecorded:
    """A baseline's greedy answers with their log-probabilities: what all answers are held against."""

    reference: Reference
    kind: Literal["reference_recorded"] = "reference_recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed:
    """The server start failed or its server died; the trials it still owed get this failure."""

    group_id: str
    arm_id: str
    start: int
    failure: Failure
    record: StartRecord | None
    kind: Literal["start_failed"] = "start_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFailed:
    """One load of a living server gave nothing usable."""

    trial_id: str
    start: int
    repeat: int
    failure: Failure
    kind: Literal["trial_failed"] = "trial_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCut:
    """The server died in this load. What had finished is kept apart: it is no measurement."""

    group_id: str
    start: int
    trial_id: str
    repeat: int
    samples: tuple[Sample, ...]
    kind: Literal["load_cut"] = "load_cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEnded:
    group_id: str
    start: int
    record: StartRecord
    kind: Literal["start_ended"] = "start_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    result: TrialResult
    kind: Literal["trial_ended"] = "trial_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A sentence worth keeping in the journal: what was skipped, retried, found half-written, …"""

    message: str
    level: Literal["info", "warning", "error"] = "info"
    kind: Literal["notice"] = "notice"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    completed: int
    failed: int
    skipped: int
    interrupted: bool = False
    kind: Literal["run_ended"] = "run_ended"


GroupEvent = (
    PhaseChanged
    | ServerReady
    | Measured
    | ReferenceRecorded
    | StartFailed
    | TrialFailed
    | LoadCut
    | StartEnded
    | Notice
)
Event = GroupEvent | RunStarted | TrialEnded | RunEnded


class Display(Protocol):
    """Shows a run as it goes. Implementations: rich on a terminal, plain lines elsewhere."""

    def show(self, event: Event) -> None: ...

    def close(self) -> None: ...
