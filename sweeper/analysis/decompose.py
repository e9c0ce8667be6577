"""Where a speedup comes from or goes: delivered length against step time, chains, crossover. Pure formulas."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sweeper.core.launch import EffectiveConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Decomposition:
    """Factors multiply: bound × draft × engine = decode speedup; decode speedup × rest = speedup."""

    step_time_ms: float
    baseline_step_time_ms: float
    delivered_length: float
    break_even_length: float
    """What the delivered length would have to be for this configuration to pay for itself."""
    decode_speedup: float
    """Delivered length / break-even length: per user, without prefill and queueing."""
    bound: float | None
    """Most tokens a verify step can give."""
    draft_factor: float | None
    """Delivered length / bound: what wrong drafts leave of it."""
    engine_factor: float
    """Baseline step time / step time: what drafting and verifying cost."""
    draft_share: float | None
    """Of what is lost between the bound and the decode speedup, on a log scale: the draft's part, 0 to 1."""

    @property
    def engine_share(self) -> float | None:
        return None if self.draft_share is None else 1 - self.draft_share


def decompose(
    *, delivered_length: float, step_time_ms: float, baseline_step_time_ms: float, bound: float | None
) -> Decomposition:
    break_even = step_time_ms / baseline_step_time_ms
    draft_share = None
    if bound is not None:
        lost_to_draft = max(0.0, math.log(bound / delivered_length))
        lost_to_engine = max(0.0, math.log(break_even))
        lost = lost_to_draft + lost_to_engine
        draft_share = lost_to_draft / lost if lost else None
    return Decomposition(
        step_time_ms=step_time_ms,
        baseline_step_time_ms=baseline_step_time_ms,
        delivered_length=delivered_length,
        break_even_length=break_even,
        decode_speedup=delivered_length / break_even,
        bound=bound,
        draft_factor=None if bound is None else delivered_length / bound,
        engine_factor=1 / break_even,
        draft_share=draft_share,
    )


def draft_positions(effective: EffectiveConfig) -> int | None:
    """Most drafts that one verify step can accept; None: the engine did not report its steps."""
    if effective.num_steps is None:
        return None
    bound = length_bound(
        num_steps=effective.num_steps,
        eagle_topk=effective.eagle_topk,
        num_draft_tokens=effective.num_draft_tokens,
    )
    return None if bound is None else bound - 1


def length_bound(*, num_steps: int | None, eagle_topk: int | None, num_draft_tokens: int | None) -> int | None:
    """Most tokens one verify step can give, the target's own included; NGRAM reports no steps, or 0 of them."""
    if not num_steps:
        return None if num_draft_tokens is None else num_draft_tokens
    if eagle_topk in (None, 1) or num_draft_tokens is None:
        return num_steps + 1
    return min(num_steps, num_draft_tokens - 1) + 1


def step_time_ms(*, accept_length: float, tok_per_s: float) -> float:
    """At one request: each step gives `accept_length` tokens, so a step takes length / speed."""
    return accept_length / tok_per_s * 1000


def accept_rate(*, accept_length: float, num_draft_tokens: int) -> float:
    """(length − 1) / (draft tokens − 1): the same figure whatever rate an engine version prints."""
    return (accept_length - 1) / (num_draft_tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEstimate:
    """Accept length of a shorter chain from the joint acceptance of a longer one: a lower estimate."""

    num_steps: int
    estimate: float
    measured: float | None

    @property
    def error(self) -> float | None:
        """Estimate − measured; a sound one is not positive beyond noise."""
        return None if self.measured is None else self.estimate - self.measured


def chain_estimates(joint: Sequence[float], measured: Mapping[int, float]) -> tuple[ChainEstimate, ...]:
    """`joint` of the longest measured chain (joint[0] = 1); `measured`: steps → accept length of other chains."""
    return tuple(
        ChainEstimate(num_steps=steps, estimate=1 + sum(joint[1 : steps + 1]), measured=measured.get(steps))
        for steps in range(1, len(joint))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """Between which two load points speculation stops (or starts) paying."""

    below: int
    above: int
    at: float
    """Log-linear interpolation of the ratio: an indication."""


def crossovers(ratios: Mapping[int, float]) -> tuple[Crossover, ...]:
    """`ratios`: concurrency → speedup. One entry wherever the ratio passes 1."""
    found = []
    for (low, first), (high, second) in pairwise(sorted(ratios.items())):
        if (first > 1) != (second > 1):
            share = math.log(first) / (math.log(first) - math.log(second))
            at = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
            found.append(Crossover(below=low, above=high, at=at))
    return tuple(found)
