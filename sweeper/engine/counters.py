"""Speculation counters in all the spellings that SGLang has used (facts: verl PR #7543, sglang PR #24081, #25014)."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sweeper.core.sample import SpecCounters

_VERIFY = ("spec_verify_ct",)
_CORRECT = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_COUNT_LIMIT = 2**63


def spec_counters(meta: Mapping[str, Any]) -> SpecCounters | None:
    """Counters of one finished request, from `meta_info` or `sglext.spec_tokens_details`; None: no verify step ran.

    A counter under an unknown name stays None: it must never be read as zero.
    """
    steps = _count(meta, _VERIFY)
    if not steps:
        return None
    histogram: list[Any] = next((meta[name] for name in _HISTOGRAM if isinstance(meta.get(name), list)), [])
    counts = [count for one in histogram if (count := count_of(one)) is not None]
    return SpecCounters(
        verify_steps=steps,
        correct_drafts=_count(meta, _CORRECT),
        proposed_drafts=_count(meta, _PROPOSED),
        histogram=tuple(counts) if counts and len(counts) == len(histogram) else None,
    )


def count_of(value: object) -> int | None:
    """A count that a file can hold; None: this is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _COUNT_LIMIT else None


def _count(meta: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((count for name in names if (count := count_of(meta.get(name))) is not None), None)


def rank_states(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What /server_info says of each data-parallel rank."""
    states = info.get("internal_states")
    return [state for state in states if isinstance(state, Mapping)] if isinstance(states, list) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAverage:
    """The engine's own average accept length since its last flush. Never the run's: warm-up is in it."""

    accept_length: float | None
    reason: str = ""
    """Why there is none."""


def server_average(info: Mapping[str, Any]) -> ServerAverage:
    """From /server_info. The engine adds to its totals every `decode_log_interval` steps, and a flush zeroes them."""
    if not info.get("speculative_algorithm"):
        return ServerAverage(accept_length=None, reason="not speculative")
    said = [state.get("avg_spec_accept_length") for state in rank_states(info)]
    values = [value for value in said if isinstance(value, int | float)]
    if values:
        return ServerAverage(accept_length=sum(values) / len(values))
    interval = info.get("decode_log_interval", 40)
    return ServerAverage(
        accept_length=None, reason=f"not measured: fewer than {interval} decode steps since the last cache flush"
    )


_VLLM = {
    "verify_steps": "vllm:spec_decode_num_drafts_total",
    "proposed": "vllm:spec_decode_num_draft_tokens_total",
    "correct": "vllm:spec_decode_num_accepted_tokens_total",
}


def counted_between(before: SpecCounters | None, after: SpecCounters | None) -> SpecCounters | None:
    """What lifetime counters gained; None: no verify step ran, or the server was started anew in between."""
    if after is None or before is None:
        return after
    steps = after.verify_steps - before.verify_steps
    if steps <= 0:
        return None
    return SpecCounters(
        verify_steps=steps,
        correct_drafts=_gain(before.correct_drafts, after.correct_drafts),
        proposed_drafts=_gain(before.proposed_drafts, after.proposed_drafts),
        histogram=None,
    )


def _gain(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def prometheus_counters(text: str) -> SpecCounters | None:
    """vLLM's lifetime counters from /metrics, all engines summed; the target's own token is not in them."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("{")
        for key, wanted in _VLLM.items():
            if name == wanted or line.startswith(wanted + " "):
                sums[key] = sums.get(key, 0.0) + _number(rest.rpartition("}")[2] if rest else line)
    if not sums.get("verify_steps"):
        return None
    return SpecCounters(
        verify_steps=int(sums["verify_steps"]),
        correct_drafts=int(sums["correct"]) if "correct" in sums else None,
        proposed_drafts=int(sums["proposed"]) if "proposed" in sums else None,
        histogram=None,
    )


def _number(text: str) -> float:
    """The last word of a line of counters; 0 where that is none."""
    with suppress(ValueError, IndexError):
        value = float(text.split()[-1])
        return value if 0 <= value < _COUNT_LIMIT else 0.0
    return 0.0
