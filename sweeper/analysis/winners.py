"""The winner of each load point, and who cannot be told apart from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeper.analysis.outcome import Outcome
from sweeper.analysis.statistics import Blocks, Cell, Decision, Estimate, tied
from sweeper.core.trial import Arm, LoadPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """Best output tok/s of one load point among the arms that share a baseline, the baseline included."""

    load: str
    point: LoadPoint
    arm: Arm
    """What to run here; the baseline itself when no arm is better beyond noise."""
    estimate: Estimate | None
    """Against the baseline; None when the baseline wins."""
    tied_with: tuple[str, ...]
    """Labels of arms inside the noise of the winner; a tie went to the lower TPOT, then to fewer draft tokens."""
    output_tok_per_s: float


def find_winners(outcomes: Sequence[Outcome], rates: Mapping[Cell, Blocks], decision: Decision) -> tuple[Winner, ...]:
    """One per load point and baseline, in the order of the plan; none where nothing could be compared."""
    races: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if Cell(outcome.arm.arm_id, outcome.load) in rates and outcome.arm.expect is None:
            races.setdefault((outcome.arm.baseline_id, outcome.load), []).append(outcome)
    return tuple(
        _winner(runners, rates, decision)
        for runners in races.values()
        if any(runner.arm.is_baseline for runner in runners) and any(runner.estimate for runner in runners)
    )


def _winner(runners: Sequence[Outcome], rates: Mapping[Cell, Blocks], decision: Decision) -> Winner:
    baseline = next(runner for runner in runners if runner.arm.is_baseline)
    better = [runner for runner in runners if runner.standing == "better"]
    fastest = max(better, key=_rate, default=baseline)
    others = [runner for runner in runners if runner is not fastest]
    if fastest is baseline:
        # Nothing is claimed for an arm that is not better beyond noise, whatever its mean.
        equal = [runner for runner in others if runner.standing in ("no difference", "undecided")]
        chosen = baseline
    else:
        equal = [
            runner for runner in others if runner in better and _tied(fastest, runner, rates, decision, len(others))
        ]
        chosen = min([fastest, *equal], key=_tie_order)
        equal = [runner for runner in [fastest, *equal] if runner is not chosen]
    assert chosen.numbers is not None
    return Winner(
        load=chosen.load,
        point=chosen.trial.load,
        arm=chosen.arm,
        estimate=chosen.estimate,
        tied_with=tuple(runner.arm.label for runner in equal),
        output_tok_per_s=chosen.numbers.output_tok_per_s,
    )


def _tied(first: Outcome, second: Outcome, rates: Mapping[Cell, Blocks], decision: Decision, family: int) -> bool:
    cells = [Cell(outcome.arm.arm_id, outcome.load) for outcome in (first, second)]
    return tied(rates[cells[0]], rates[cells[1]], decision.noise, family)


def _rate(outcome: Outcome) -> float:
    return outcome.numbers.output_tok_per_s if outcome.numbers else 0.0


def _tie_order(outcome: Outcome) -> tuple[float, int]:
    """Lower TPOT (to three digits), then fewer draft tokens."""
    assert outcome.numbers is not None
    tpot = outcome.numbers.tpot.mean_ms
    drafts = outcome.numbers.effective.num_draft_tokens or 0
    return (float("inf") if tpot is None else float(f"{tpot:.3g}"), drafts)
