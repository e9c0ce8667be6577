"""What is run: arms, load points, trials, launch groups, and the plan that holds them. Identity lives here."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from sweeper.core.redaction import redact_argv, redact_env, redact_value


def content_id(value: Any) -> str:
    """First 12 hex digits of the SHA-256 of the canonical JSON of `value`."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def without_defaults(value: Any) -> dict[str, Any]:
    """A dataclass as a dict, leaving out fields that hold their default: a new field keeps old ids."""
    kept: dict[str, Any] = {}
    for spec in fields(value):
        current = getattr(value, spec.name)
        if current != spec.default:
            kept[spec.name] = current
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecConfig:
    """One speculative configuration as *requested*, in SGLang's words; None: the engine decides."""

    algorithm: str
    draft_model_path: str | None = None
    num_steps: int | None = None
    eagle_topk: int | None = None
    num_draft_tokens: int | None = None
    aux_layer_ids: tuple[int, ...] | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    """Further `speculative_*` flags, without the prefix."""

    @property
    def triple(self) -> str | None:
        """`3-1-4`: num_steps, eagle_topk, num_draft_tokens; None unless all three are set."""
        if self.num_steps is None or self.eagle_topk is None or self.num_draft_tokens is None:
            return None
        return f"{self.num_steps}-{self.eagle_topk}-{self.num_draft_tokens}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Everything that decides one server start."""

    model_path: str
    device: Literal["cuda", "cpu"]
    args: Mapping[str, Any]
    """SGLang flags (without --, `_` for `-`), speculative ones excluded."""
    env: Mapping[str, str]
    spec: SpecConfig | None
    python: str | None = None
    command_prefix: tuple[str, ...] = ()
    ready_timeout_s: float = 1800.0

    @property
    def gpus(self) -> int:
        """GPUs (or CPU slots) one replica takes: tp_size × pp_size (dp attention shares them), × dp_size otherwise."""
        size = int(self.args.get("tp_size") or self.args.get("tp") or 1)
        size *= int(self.args.get("pp_size") or 1)
        if not self.args.get("enable_dp_attention"):
            size *= int(self.args.get("dp_size") or self.args.get("dp") or 1)
        return size

    @property
    def nodes(self) -> int | None:
        """Nodes the server was asked to span; None: as few as it fits on."""
        asked = self.args.get("nnodes")
        return int(asked) if asked else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """One load: closed loop at `concurrency`, or an open loop at `rate_rps` with `concurrency` as its bound."""

    concurrency: int
    arrival: Literal["closed", "constant", "poisson", "burst"] = "closed"
    rate_rps: float | None = None
    ramp_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One configuration that is compared; its baseline is matched in every other knob."""

    arm_id: str
    label: str
    """Short and unique in the plan: `baseline`, `3-1-4`, `5-4-16 ids=2,30,58`."""
    server: ServerConfig
    baseline_id: str
    """arm_id of its baseline; its own id for a baseline."""
    axes: Mapping[str, Any] = field(default_factory=dict)
    """Values of the `sweep` axes, for filters and tables."""
    captured_layers: tuple[int, ...] | None = None
    """Target layers whose *input* the engine will really capture; None: not EAGLE3 or unknown."""
    notes: tuple[str, ...] = ()
    """What the engine will silently do to this request, in sentences."""
    expect: str | None = None

    @property
    def is_baseline(self) -> bool:
        return self.arm_id == self.baseline_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One arm at one load point."""

    trial_id: str
    arm_id: str
    load: LoadPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGroup:
    """One server start shared by all the measurements that need the same server."""

    group_id: str
    arm_id: str
    gpus: int
    trial_ids: tuple[str, ...]
    estimate_s: float | None = None
    """Expected for one start of it, measurements included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStart:
    """One entry of the schedule, in the order of execution."""

    group_id: str
    start: int
    """0-based; counted per group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Illegal:
    """A requested point the engine would refuse or cannot mean."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Requested points that become the same effective configuration."""

    kept: str
    dropped: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything a run will do; written to plan.json before anything starts."""

    experiment: str
    arms: tuple[Arm, ...]
    trials: tuple[Trial, ...]
    launch_groups: tuple[LaunchGroup, ...]
    schedule: tuple[ServerStart, ...]
    repeats: int
    illegal: tuple[Illegal, ...] = ()
    merged: tuple[Merged, ...] = ()
    unchecked: tuple[str, ...] = ()
    """What could not be looked at here: weights that are not on this machine, …"""
    warnings: tuple[str, ...] = ()
    estimate_s: float | None = None
    engine_version: str | None = None
    notes: tuple[str, ...] = ()
    """What was decided for every arm: knobs pinned so that only speculation differs, points excluded, …"""

    @property
    def plan_id(self) -> str:
        """The same for the same work: arms, trials, schedule and repeats; free of estimates and notes."""
        return content_id(
            {
                "trials": sorted(trial.trial_id for trial in self.trials),
                "schedule": [asdict(start) for start in self.schedule],
                "repeats": self.repeats,
            }
        )

    def redacted(self) -> "Plan":
        """The same plan with secrets hidden, for whatever is shown or stored; ids stay."""
        return replace(self, arms=tuple(_redacted(arm) for arm in self.arms))

    def arm(self, arm_id: str) -> Arm:
        return next(arm for arm in self.arms if arm.arm_id == arm_id)


def _redacted(arm: Arm) -> Arm:
    server = replace(
        arm.server,
        args=redact_value(arm.server.args),
        env=redact_env(arm.server.env),
        command_prefix=redact_argv(arm.server.command_prefix),
    )
    if server.spec is not None:
        server = replace(server, spec=replace(server.spec, args=redact_value(server.spec.args)))
    return replace(arm, server=server, axes=redact_value(arm.axes))
