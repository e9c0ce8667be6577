"""Whether a baseline differs from an arm in nothing but speculation: server arguments and running caps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.core.launch import EffectiveConfig

ALLOWED = frozenset(
    {
        "cuda_graph_config",  # the captured batch list follows from speculation; the largest batch is compared below
        "cuda_graph_bs",
        "disable_overlap_schedule",  # some engines have no overlap scheduling under speculation: part of its price
        "dist_init_addr",
        "host",
        "internal_states",
        "launch_command",
        "log_level",
        "max_running_requests",  # judged per load point, by `queue_limit`
        "port",
        "base_gpu_id",
        "random_seed",
        "served_model_name",
        "startup_time",
        "status",
    }
)
"""Server arguments that may differ between an arm and its baseline. All `speculative_*` may, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unequal:
    """One server argument in which two servers differ beyond speculation."""

    key: str
    baseline: Any
    arm: Any


def unequal_arguments(baseline: Mapping[str, Any], arm: Mapping[str, Any]) -> tuple[Unequal, ...]:
    """Two resolved argument sets (/server_info); a key that one of them does not report is not a difference."""
    return tuple(
        Unequal(key=key, baseline=baseline[key], arm=arm[key])
        for key in sorted(baseline.keys() & arm.keys())
        if not _may_differ(key) and baseline[key] != arm[key]
    )


def _may_differ(key: str) -> bool:
    return key in ALLOWED or key.startswith("speculative_") or key.endswith("_port")


def rerun_advice(unequal: tuple[Unequal, ...]) -> str:
    """One sentence that names every difference and what to do; empty when there is none."""
    if not unequal:
        return ""
    wanted = " and ".join(f"{entry.key}={_word(entry.arm)}" for entry in unequal)
    names = ", ".join(f"{entry.key} ({_word(entry.baseline)} against {_word(entry.arm)})" for entry in unequal)
    return f"not comparable, the baseline differs in {names}: rerun the baseline with {wanted}, or the reverse"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCap:
    """How many requests a server runs at once; None: it did not say."""

    total: int | None
    per_rank: int | None = None
    """With data parallelism: the smallest cap of a rank."""


def effective_cap(effective: EffectiveConfig) -> RunningCap:
    """What the ranks resolved is the truth; older engines tell only the argument."""
    ranks = effective.running_caps
    if ranks:
        return RunningCap(total=sum(ranks), per_rank=min(ranks) if len(ranks) > 1 else None)
    return _cap_of(effective.max_running_requests, effective.dp_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimit:
    """What the running caps do to a comparison at one concurrency."""

    comparable: bool
    message: str = ""


def queue_limit(concurrency: int, baseline: RunningCap, arm: RunningCap) -> QueueLimit:
    """Above the smaller of two unequal caps one server queues what the other runs: no comparison."""
    known = [cap.total for cap in (baseline, arm) if cap.total is not None]
    if known and concurrency > min(known):
        if baseline.total != arm.total:
            return QueueLimit(
                comparable=False,
                message=f"queue-limited, not comparable: concurrency {concurrency} exceeds the running cap "
                f"{min(known)} of one side only ({_limit(baseline)} against {_limit(arm)}); "
                "set max_running_requests in both servers",
            )
        return QueueLimit(
            comparable=True, message=f"queue-limited alike: both servers run at most {min(known)} requests"
        )
    ranks = [cap.per_rank for cap in (baseline, arm) if cap.per_rank is not None]
    if ranks and concurrency > min(ranks):
        return QueueLimit(
            comparable=True,
            message=f"one rank runs at most {min(ranks)} requests: an unbalanced router may queue at {concurrency}",
        )
    return QueueLimit(comparable=True)


def _cap_of(total: object, dp_size: object) -> RunningCap:
    if not isinstance(total, int):
        return RunningCap(total=None)
    ranks = dp_size if isinstance(dp_size, int) and dp_size > 1 else 1
    return RunningCap(total=total, per_rank=total // ranks if ranks > 1 else None)


def _limit(cap: RunningCap) -> str:
    return "unlimited or unknown" if cap.total is None else str(cap.total)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
