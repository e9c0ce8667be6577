"""A run as read back from disk, and the job that a pool worker gets."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.core.experiment import Workload
from sweeper.core.lossless import Losslessness, Reference
from sweeper.core.result import Measurement, StartRecord, TrialResult
from sweeper.core.sample import PromptSet
from sweeper.core.trial import Arm, Plan, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """Everything a report needs; what is missing or broken on disk is named in `problems`, never guessed."""

    path: Path
    run_id: str
    plan: Plan
    experiment: Mapping[str, Any]
    """The experiment file as it was run."""
    environment: Mapping[str, Any]
    measurements: tuple[Measurement, ...]
    results: tuple[TrialResult, ...]
    starts: tuple[StartRecord, ...]
    events: tuple[Mapping[str, Any], ...]
    finished: bool
    problems: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()
    """The baselines' answers with log-probabilities."""
    losslessness: tuple[Losslessness, ...] = ()
    """One a measurement that was held against a reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """One measurement still to be made."""

    trial: Trial
    repeat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupJob:
    """One server start with all it must still measure; complete, so that it can run on another node."""

    run_id: str
    run_dir: Path
    group_id: str
    arm: Arm
    start: int
    owed: tuple[Owed, ...]
    """In the order of measuring: repeat by repeat, each over all load points."""
    workload: Workload
    prompts: PromptSet
    gpu_ids: tuple[int, ...]
    """Physical ids of the slot; empty on the CPU engine."""
    slot: str
    owner_pid: int
    """The controller: when it dies, the keeper ends the server."""
    reference_at: int | None = None
    """After its measurements this start also records the baseline's log-probabilities, at this concurrency."""
    nodes: int = 1
    """Nodes the server spans; `gpu_ids` are those of the first."""
