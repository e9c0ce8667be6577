"""The winner of each load point, and who cannot be told apart from it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sweeper.analysis.outcome import Outcome
from sweeper.analysis.statistics import Blocks, Cell, Decision, Estimate, contrast
from sweeper.core.trial import Arm, LoadPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two arms of one load point held against each other by the estimator of every speedup."""

    first: Arm
    second: Arm
    estimate: Estimate
    """Speed of the first over the second's; arms stand in the order of the plan, a baseline comes last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """Best output tok/s of one load point among the arms that share a baseline, the baseline included."""

    load: str
    point: LoadPoint
    arm: Arm
    """What to run here; the baseline itself when no arm is better beyond noise."""
    estimate: Estimate | None
    """Against the baseline; None when the baseline wins."""
    ties: tuple[Pair, ...]
    """The winner beside each arm inside its noise; a tie went to the lower TPOT, then to fewer draft tokens."""
    passed_over: tuple[Outcome, ...]
    """Faster than the winner and better than the baseline, but not lossless."""
    output_tok_per_s: float

    @property
    def tied_with(self) -> tuple[str, ...]:
        """Labels of the arms in `ties`."""
        return tuple((pair.second if pair.first is self.arm else pair.first).label for pair in self.ties)


def find_winners(
    outcomes: Sequence[Outcome], rates: Mapping[Cell, Blocks], decision: Decision, *, barred: Collection[str] = ()
) -> tuple[Winner, ...]:
    """One per load point and baseline, in the order of the plan; none where nothing could be compared.

    `barred`: ids of arms that must not win.
    """
    races: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if _cell(outcome) in rates and outcome.arm.expect is None:
            races.setdefault((outcome.arm.baseline_id, outcome.load), []).append(outcome)
    return tuple(
        _winner(runners, rates, decision, barred)
        for runners in races.values()
        if any(runner.arm.is_baseline for runner in runners) and any(runner.estimate for runner in runners)
    )


def _winner(
    runners: Sequence[Outcome], rates: Mapping[Cell, Blocks], decision: Decision, barred: Collection[str]
) -> Winner:
    baseline = next(runner for runner in runners if runner.arm.is_baseline)
    rivals = [runner for runner in runners if runner.estimate and runner.arm.arm_id not in barred]
    better = [runner for runner in rivals if runner.standing == "better"]
    if better:
        chosen, ties = _best(better, rivals, rates, decision)
    else:
        # Nothing is claimed for an arm that is not better beyond noise, whatever its mean.
        chosen, ties = baseline, _beside(baseline, rivals)
    assert chosen.numbers is not None
    return Winner(
        load=chosen.load,
        point=chosen.trial.load,
        arm=chosen.arm,
        estimate=chosen.estimate,
        ties=ties,
        passed_over=tuple(
            runner
            for runner in runners
            if runner.arm.arm_id in barred and runner.standing == "better" and _rate(runner) > _rate(chosen)
        ),
        output_tok_per_s=chosen.numbers.output_tok_per_s,
    )


def _best(
    better: Sequence[Outcome], rivals: Sequence[Outcome], rates: Mapping[Cell, Blocks], decision: Decision
) -> tuple[Outcome, tuple[Pair, ...]]:
    """(what to run, the pairs it cannot be told apart in)."""
    fastest = max(better, key=_rate)
    pairs = _beside_all(fastest, rivals, rates, decision)
    group = [runner for runner in better if runner is fastest or _open(pairs[runner.arm.arm_id])]
    chosen = min(group, key=_tie_order)
    if chosen is not fastest:
        again = _beside_all(chosen, rivals, rates, decision)
        if all(_open(again[runner.arm.arm_id]) for runner in group if runner is not chosen):
            pairs = again
        else:
            # Of unequally many starts, one may be told apart from what its neighbour cannot be told apart from.
            chosen = fastest
    return chosen, tuple(pairs[runner.arm.arm_id] for runner in group if runner is not chosen)


def _open(pair: Pair) -> bool:
    return pair.estimate.verdict == "no difference"


def _beside_all(
    leader: Outcome, rivals: Sequence[Outcome], rates: Mapping[Cell, Blocks], decision: Decision
) -> dict[str, Pair]:
    """Arm id → the leader and that arm, in the order of the plan.

    Who leads is known only after the race, so that any two could have been held against each other: the level is
    shared by all pairs, not by those with the leader.
    """
    at = rivals.index(leader)
    pairs = [(one, leader) for one in rivals[:at]] + [(leader, one) for one in rivals[at + 1 :]]
    blocks = [(rates[_cell(first)], rates[_cell(second)]) for first, second in pairs]
    found = contrast(blocks, decision.noise, comparisons=len(rivals) * (len(rivals) - 1) // 2)
    return {
        (first if second is leader else second).arm.arm_id: Pair(first=first.arm, second=second.arm, estimate=estimate)
        for (first, second), estimate in zip(pairs, found, strict=True)
    }


def _cell(outcome: Outcome) -> Cell:
    return Cell(outcome.arm.arm_id, outcome.load)


def _beside(baseline: Outcome, rivals: Sequence[Outcome]) -> tuple[Pair, ...]:
    return tuple(
        Pair(first=runner.arm, second=baseline.arm, estimate=runner.estimate)
        for runner in rivals
        if runner.estimate and runner.standing in ("no difference", "undecided")
    )


def _rate(outcome: Outcome) -> float:
    return outcome.numbers.output_tok_per_s if outcome.numbers else 0.0


def _tie_order(outcome: Outcome) -> tuple[float, int]:
    """Lower TPOT (to three digits), then fewer draft tokens."""
    assert outcome.numbers is not None
    tpot = outcome.numbers.tpot.mean_ms
    drafts = outcome.numbers.effective.num_draft_tokens or 0
    return (float("inf") if tpot is None else float(f"{tpot:.3g}"), drafts)
