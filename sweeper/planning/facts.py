"""What had to be looked up before an experiment can be planned; filled by effects/facts.py, or by hand in tests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeper.engine.flags import FlagTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Engine, checkpoints and machine as seen from here."""

    flags: FlagTable
    engine_version: str
    """Version that is planned for."""
    engine_installed: str | None = None
    """Version found in the experiment's interpreter; None: none was found."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Model paths as written in the experiment to what the engine gets: `toy:target` to its unpacked folder."""
    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """config.json by model path as written."""
    weight_bytes: Mapping[str, int] = field(default_factory=dict)
    """Size of the checkpoint files by model path as written."""
    gpu_count: int | None = None
    """GPUs of this machine, or of each node; None: not looked at."""
    node_count: int = 1
    turns: float = 1.0
    """Requests that a prompt of the workload stands for: the turns of its conversations, on average."""
    missing: tuple[str, ...] = ()
    """What the experiment names and is not on this machine, with the remedy: `run` and `check` refuse it."""
    unchecked: tuple[str, ...] = ()
    """Sentences about what was planned without looking."""

    def path(self, written: str) -> str:
        return self.paths.get(written, written)

    def config(self, written: str | None) -> Mapping[str, Any] | None:
        return self.configs.get(written) if written is not None else None
