"""What was measured, and what became of each trial. Written to disk as JSON; fields are only ever added."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sweeper.core.launch import Affinity, Difference, EffectiveConfig, EngineFingerprint, StartupTimes
from sweeper.core.sample import GeneratorHealth

SCHEMA_VERSION = 1

FailureClass = Literal[
    "bad_argument",
    "model_not_found",
    "draft_not_found",
    "draft_mismatch",
    "oom_load",
    "oom_capture",
    "oom_run",
    "nccl",
    "port",
    "illegal_memory",
    "hang_start",
    "hang_capture",
    "hang_load",
    "scheduler_dead",
    "wrong_server",
    "config_differs",
    "engine_missing",
    "crash_start",
    "crash_load",
    "gpu_busy",
    "empty",
    "node_lost",
    "disk",
    "generator",
    "unknown",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Of one quantity over requests (or tokens); the unit stands in the name of the field that holds it."""

    count: int
    mean: float
    std: float | None
    min: float
    p50: float
    p90: float
    p95: float
    p99: float | None
    """Only from 100 values on."""
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecMetrics:
    """Speculation over the measured window, pooled from per-request counters."""

    verify_steps: int
    correct_drafts: int | None
    proposed_drafts: int | None
    accept_length: float | None
    """1 + Σ correct drafts / Σ verify steps (bonus token included)."""
    accept_length_request_mean: float | None
    accept_rate: float | None
    """Σ correct / Σ proposed of the effective draft tokens; never compared across topk."""
    histogram: tuple[int, ...] | None
    joint: tuple[float, ...] | None
    """joint[i]: share of verify steps with at least i accepted drafts; joint[0] = 1."""
    conditional: tuple[float | None, ...] | None
    """conditional[i] = joint[i+1] / joint[i]; None where nobody reached i."""
    delivered_length: float | None
    """Σ(n − n₁) / Σ verify steps."""
    step_time_ms: float | None
    """Σ(E2E − TTFT) / Σ verify steps: decode only."""
    requests_without_counters: int = 0
    accept_length_basis: Literal["correct_drafts", "completion_tokens"] = "correct_drafts"
    """`completion_tokens`: Σ output tokens / Σ verify steps, weaker, where the engine names no correct drafts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyLatency:
    """Of the requests sent and ended while the asked concurrency was reached: no ramp, no tail."""

    window_s: float
    requests: int
    ttft_ms: Distribution | None
    tpot_ms: Distribution | None
    itl_ms: Distribution | None
    e2e_ms: Distribution | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """One measured window: first send to last token. None: not available, never zero."""

    requests: int
    ok: int
    errors: Mapping[str, int]
    """Count by core.sample.ErrorKind."""
    finish_reasons: Mapping[str, int]
    window_s: float
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    output_tok_per_s: float | None
    steady_output_tok_per_s: float | None
    """Inside the window in which the concurrency was reached; None: never reached."""
    peak_tok_per_s: float | None
    request_per_s: float | None
    tok_per_s_per_user: float | None
    """1 / mean TPOT."""
    ttft_ms: Distribution | None
    tpot_ms: Distribution | None
    itl_ms: Distribution | None
    chunk_gap_ms: Distribution | None
    e2e_ms: Distribution | None
    input_len: Distribution | None
    output_len: Distribution | None
    decode_token_time_ms: float | None
    """Σ(E2E − TTFT) / Σ(n − n₁): the step time of a server without speculation."""
    spec: SpecMetrics | None
    accuracy: float | None = None
    """Share of checkable answers that were right."""
    by_category: Mapping[str, "Metrics"] = field(default_factory=dict)
    by_turn: tuple["Metrics", ...] = ()
    """Of conversations: [0] the first turns, [1] the second ones, …; empty where every prompt has one turn."""
    steady: SteadyLatency | None = None
    """None: the asked concurrency was never reached, or no request lies wholly in that window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something a reader must know about a measurement; `ranked=False` keeps it out of the ranking."""

    code: str
    message: str
    ranked: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The GPUs during the measured window; None: not readable here."""

    gpu_names: tuple[str, ...] = ()
    gpu_uuids: tuple[str, ...] = ()
    driver: str | None = None
    sm_clock_mhz_mean: float | None = None
    temperature_c_max: float | None = None
    power_w_mean: float | None = None
    energy_j: float | None = None
    energy_over_s: float | None = None
    """Between the two readings that `energy_j` is the difference of: more than the measured window."""
    memory_used_bytes_max: int | None = None
    memory_total_bytes: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    throttled_share: float | None = None
    """Of the readings; one GPU of a server is enough."""
    sm_clock_mhz_min: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What must agree for two measurements to be of the same thing."""

    engine: EngineFingerprint
    prompts_sha256: str
    gpu: tuple[str, ...]
    driver: str | None
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One trial × one server start × one repeat: the unit of scheduling and of durability."""

    trial_id: str
    group_id: str
    arm_id: str
    start: int
    repeat: int
    started_at: str
    """UTC, ISO 8601."""
    fingerprint: Fingerprint
    metrics: Metrics
    effective: EffectiveConfig
    differences: tuple[Difference, ...]
    health: GeneratorHealth
    conditions: Conditions
    flush: str
    marks: tuple[Mark, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @property
    def ranked(self) -> bool:
        return all(mark.ranked for mark in self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why something did not give a number."""

    failure_class: FailureClass
    message: str
    remedy: str
    log_lines: tuple[str, ...] = ()
    """The telling lines, at most 20."""
    start: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    trial_id: str
    measurements: int
    failures: tuple[Failure, ...] = ()
    """Starts of this trial that failed beside those that did not."""
    state: Literal["completed"] = "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    trial_id: str
    failure: Failure
    expected: bool = False
    state: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    trial_id: str
    reason: str
    """`doctor: …`, `dominated by …`, `budget`, `stopped after a failure`."""
    expected: bool = False
    state: Literal["skipped"] = "skipped"


TrialResult = Completed | Failed | Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord:
    """One server start: groups/<group_id>/start-<k>/launch.json."""

    group_id: str
    start: int
    launch_id: str
    command: str
    env: Mapping[str, str]
    """Secrets redacted."""
    gpu_ids: tuple[int, ...]
    node: str
    port: int
    times: StartupTimes
    engine: EngineFingerprint | None
    effective: EffectiveConfig | None
    failure: Failure | None = None
    affinity: Affinity | None = None
    """Once the server was ready."""
