"""Chains of a run (topk 1): what the longest one says about shorter ones, beside what was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeper.analysis.compare import Comparison
from sweeper.analysis.decompose import ChainEstimate, chain_estimates
from sweeper.analysis.outcome import Outcome
from sweeper.analysis.simulated import BADGE


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainFamily:
    """Chains that share load, baseline, algorithm, draft and layer ids."""

    load: str
    longest: Outcome
    lengths: Mapping[int, float]
    """Steps → measured accept length."""
    estimates: tuple[ChainEstimate, ...]


def chain_families(comparison: Comparison) -> tuple[ChainFamily, ...]:
    """Families whose longest chain has a histogram."""
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    for outcome in comparison.outcomes:
        spec = outcome.arm.server.spec
        if spec and _steps(outcome):
            key = (outcome.load, outcome.arm.baseline_id, spec.algorithm, spec.draft_model_path, spec.aux_layer_ids)
            groups.setdefault(key, []).append(outcome)
    return tuple(family for group in groups.values() if (family := _family(group)) is not None)


def _family(group: Sequence[Outcome]) -> ChainFamily | None:
    longest = max(group, key=_steps)
    spec = longest.numbers.spec if longest.numbers else None
    if spec is None or not spec.joint:
        return None
    lengths = {
        _steps(entry): entry.numbers.spec.accept_length
        for entry in group
        if entry.numbers and entry.numbers.spec and entry.numbers.spec.accept_length
    }
    return ChainFamily(
        load=longest.load,
        longest=longest,
        lengths=dict(sorted(lengths.items())),
        estimates=chain_estimates(spec.joint, lengths),
    )


def chain_lines(comparison: Comparison) -> tuple[str, ...]:
    """One sentence a family: the lower estimate for each shorter chain, and its error where both are known."""
    lines = []
    for family in chain_families(comparison):
        if family.longest.reason.startswith(BADGE):
            continue
        parts = [_words(estimate) for estimate in family.estimates if estimate.num_steps < _steps(family.longest)]
        if parts:
            lines.append(f"At load {family.load}, from {family.longest.arm.label}: " + "; ".join(parts) + ".")
    return tuple(lines)


def _words(estimate: ChainEstimate) -> str:
    steps = "1 step" if estimate.num_steps == 1 else f"{estimate.num_steps} steps"
    text = f"{steps} ≥ {estimate.estimate:.2f}"
    if estimate.measured is not None and estimate.error is not None:
        text += f" (measured {estimate.measured:.2f}, error {estimate.error:+.2f})".replace("error -", "error −")
    return text


def _steps(outcome: Outcome) -> int:
    """0 for anything that is not a measured chain."""
    effective = outcome.numbers.effective if outcome.numbers else None
    return effective.num_steps or 0 if effective and effective.eagle_topk == 1 else 0
