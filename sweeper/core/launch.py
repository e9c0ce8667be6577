"""A server launch as a printable value, and what came of it."""

import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from sweeper.core.redaction import redact_argv, redact_env

Phase = Literal[
    "waiting",
    "cleaning",
    "launching",
    "loading",
    "capturing",
    "warming",
    "ready",
    "measuring",
    "stopping",
    "done",
    "failed",
]
"""What a launch group is doing, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """One server start, complete: nothing about it is decided later."""

    launch_id: str
    """Nonce: in the environment (SWEEPER_LAUNCH_ID), in the ledger, and part of the served model name."""
    argv: tuple[str, ...]
    env: Mapping[str, str]
    """Only what is added or changed; inherited SGLANG_* and CUDA_VISIBLE_DEVICES are dropped."""
    gpu_ids: tuple[int, ...]
    """Physical ids; empty on the CPU engine."""
    host: str
    port: int
    base_url: str
    served_model_name: str
    ready_timeout_s: float
    log_path: Path

    def redacted(self) -> "LaunchPlan":
        """The same launch with secrets hidden, for whatever is shown or stored."""
        return replace(self, argv=redact_argv(self.argv), env=redact_env(self.env))

    def shell(self) -> str:
        """One line to paste: `A=1 python -m sglang.launch_server …`."""
        return " ".join([*(f"{k}={shlex.quote(v)}" for k, v in sorted(self.env.items())), shlex.join(self.argv)])


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveConfig:
    """What the engine resolved, from /server_info. None: not reported by this engine."""

    version: str | None
    model_path: str | None
    served_model_name: str | None
    algorithm: str | None
    draft_model_path: str | None
    num_steps: int | None
    eagle_topk: int | None
    num_draft_tokens: int | None
    max_running_requests: int | None
    tp_size: int | None
    dp_size: int | None
    attention_backend: str | None
    raw: Mapping[str, Any] = field(default_factory=dict)
    """All resolved server arguments, secrets removed; without per-rank internal states."""
    running_caps: tuple[int, ...] = ()
    """How many requests each data-parallel rank runs at once; empty: not reported."""

    @property
    def triple(self) -> str | None:
        if self.algorithm is None or None in (self.num_steps, self.eagle_topk, self.num_draft_tokens):
            return None
        return f"{self.num_steps}-{self.eagle_topk}-{self.num_draft_tokens}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Requested is not effective."""

    key: str
    requested: Any
    effective: Any
    explained: str | None = None
    """The rule of the engine that did it; None: unexpected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupTimes:
    """Seconds of one start, by phase; None: the phase was not seen in the log."""

    clean_s: float | None = None
    load_s: float | None = None
    capture_s: float | None = None
    warm_s: float | None = None
    ready_s: float | None = None
    """Spawn to first real generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """Which CPUs stand beside the GPUs, and which the processes may really use; as the kernel names them: `0-27,56`."""

    gpu_numa_nodes: tuple[int | None, ...] = ()
    """In the order of the server's GPUs; None: unknown here, or the host has one side only."""
    server_cpus: Mapping[str, str] = field(default_factory=dict)
    """By name and pid of the engine's processes."""
    generator_cpus: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFingerprint:
    """The engine as it stands on disk: a patched engine of the same version has another hash."""

    version: str | None
    files_sha256: str | None
    """Over the engine's speculative and model source files, by path and content."""
    stale_bytecode: tuple[str, ...] = ()
    """Modules whose compiled file does not belong to their source."""


class Server(Protocol):
    """A server that has answered a real generation and proved to be the one launched."""

    @property
    def plan(self) -> LaunchPlan: ...

    @property
    def info(self) -> Mapping[str, Any]:
        """/server_info, secrets removed."""

    @property
    def effective(self) -> EffectiveConfig: ...

    @property
    def times(self) -> StartupTimes: ...

    @property
    def engine(self) -> EngineFingerprint: ...

    @property
    def affinity(self) -> Affinity: ...

    async def flush(self) -> str:
        """Empty the prefix cache, waiting until the server is idle; says how it went, for Measurement.flush."""

    async def failure(self) -> "ServerFailure | None":
        """Why this server cannot go on; None while its process and scheduler live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFailure:
    """What a dying server said of itself. `failure_class` is a core.result.FailureClass."""

    failure_class: str
    message: str
    remedy: str
    log_lines: tuple[str, ...] = ()


class Launcher(Protocol):
    """Starts servers. Implementations: real SGLang processes, and the fake shipped in sweeper.testing."""

    def launch(
        self, plan: LaunchPlan, *, run_id: str, owner_pid: int, on_phase: Callable[[Phase, str], None]
    ) -> AbstractAsyncContextManager[Server]:
        """Entering returns a ready server or raises ServerError; leaving waits until its group and memory are gone."""
