"""What a curve of accept lengths may look like; anything else is a fault of counting or of the set-up."""

from collections.abc import Sequence
from dataclasses import replace

from sweeper.analysis.decompose import length_bound
from sweeper.analysis.engagement import FLAT, NOT_ENGAGING_WORDS
from sweeper.analysis.outcome import Outcome
from sweeper.core.launch import EffectiveConfig

Family = tuple[str, str, str | None, str | None, tuple[int, ...] | None]
"""Load, baseline, algorithm, draft and layer ids: what chains of different lengths must share."""
NOT_ENGAGING = 1.15
"""Below this accept length a draft as good as disconnected from its target is likelier than a hard workload."""
FALL_TOLERANCE = 0.03
"""A longer chain may show this much less, relative, before it is called falling: pooled lengths repeat within 3 %."""


def point_faults(
    *, accept_length: float | None, accept_rate: float | None, effective: EffectiveConfig
) -> tuple[str, ...]:
    """Sentences about one configuration; empty when its numbers are possible and speculation works."""
    found = []
    bound = length_bound(
        num_steps=effective.num_steps,
        eagle_topk=effective.eagle_topk,
        num_draft_tokens=effective.num_draft_tokens,
    )
    if accept_length is not None and bound is not None and accept_length > bound + 1e-9:
        found.append(f"accept length {accept_length:.2f} is above the possible {bound}: the counters cannot be trusted")
    if accept_rate is not None and accept_rate > 1 + 1e-9:
        found.append(f"accept rate {accept_rate:.2f} is above 1: the counters cannot be trusted")
    if accept_length is not None and accept_length < NOT_ENGAGING:
        found.append(
            f"accept length {accept_length:.2f}: {NOT_ENGAGING_WORDS}; "
            "let `sweeper doctor` look at the draft, its layer ids and its vocabulary map"
        )
    return tuple(found)


def falling_chains(lengths: dict[int, float]) -> tuple[int, ...]:
    """Steps (of `steps → accept length`, topk 1) at which a longer chain accepts less than a shorter one."""
    found, highest = [], 0.0
    for steps in sorted(lengths):
        if lengths[steps] < highest * (1 - FALL_TOLERANCE):
            found.append(steps)
        highest = max(highest, lengths[steps])
    return tuple(found)


def flat_chains(lengths: dict[int, float]) -> tuple[int, ...]:
    """Steps (of `steps → accept length`, topk 1) at which a chain accepts hardly more than a single draft did."""
    single = lengths.get(1)
    if single is None or single < NOT_ENGAGING:
        return ()
    return tuple(steps for steps in sorted(lengths) if steps > 1 and lengths[steps] - single < FLAT * (single - 1))


def shape_remarks(outcomes: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """The same outcomes, with what is odd about their accept lengths added to their remarks."""
    chains: dict[Family, dict[int, float]] = {}
    for outcome in outcomes:
        point = _chain_point(outcome)
        if point:
            chains.setdefault(_family(outcome), {})[point[0]] = point[1]
    return tuple(replace(entry, remarks=entry.remarks + _remarks(entry, chains)) for entry in outcomes)


def _remarks(outcome: Outcome, chains: dict[Family, dict[int, float]]) -> tuple[str, ...]:
    numbers = outcome.numbers
    if numbers is None or numbers.spec is None:
        return ()
    faults = point_faults(
        accept_length=numbers.spec.accept_length,
        accept_rate=numbers.spec.accept_rate,
        effective=numbers.effective,
    )
    if any(NOT_ENGAGING_WORDS in remark for remark in outcome.remarks):  # a mark said it already
        faults = tuple(fault for fault in faults if NOT_ENGAGING_WORDS not in fault)
    point = _chain_point(outcome)
    if point and point[0] in falling_chains(chains[_family(outcome)]):
        faults += (f"accept length {point[1]:.2f} falls although the chain is longer",)
    elif point and point[0] in flat_chains(chains[_family(outcome)]):
        faults += (f"accept length {point[1]:.2f} is that of a single draft: the drafter fails after its first step",)
    return faults


def _family(outcome: Outcome) -> Family:
    spec = outcome.arm.server.spec
    return (
        outcome.load,
        outcome.arm.baseline_id,
        spec.algorithm if spec else None,
        spec.draft_model_path if spec else None,
        spec.aux_layer_ids if spec else None,
    )


def _chain_point(outcome: Outcome) -> tuple[int, float] | None:
    numbers = outcome.numbers
    if numbers is None or numbers.spec is None or numbers.spec.accept_length is None:
        return None
    effective = numbers.effective
    if effective.num_steps is None or effective.eagle_topk != 1:
        return None
    return effective.num_steps, numbers.spec.accept_length
