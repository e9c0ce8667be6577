"""Configurations whose greedy answers are truly not the baseline's, and whether they may win all the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeper.analysis.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Answers of one arm, over all its load points, that differ from the baseline's by more than rounding."""

    different: int
    compared: int
    barred: bool
    """It must not win: the experiment did not ask for that, and the difference is its own."""
    baseline_too: bool
    """The baseline differs from itself as often, so that speculation need not be the reason."""

    def __str__(self) -> str:
        text = f"{self.different} of {self.compared} greedy answers differ from the baseline's"
        return f"{text}, as its own do" if self.baseline_too else text


def find_losses(outcomes: Sequence[Outcome], experiment: Mapping[str, object]) -> Mapping[str, Loss]:
    """Arm id → its loss; only arms that have one, the baselines not among them. `run.lossy: rank` bars none."""
    run = experiment.get("run")
    allowed = isinstance(run, Mapping) and run.get("lossy") == "rank"
    counts: dict[str, tuple[int, int]] = {}
    for entry in outcomes:
        if entry.lossless:
            different, compared = counts.get(entry.arm.arm_id, (0, 0))
            counts[entry.arm.arm_id] = (different + entry.lossless.different, compared + entry.lossless.compared)
    losses = {}
    for arm in {entry.arm.arm_id: entry.arm for entry in outcomes}.values():
        different, compared = counts.get(arm.arm_id, (0, 0))
        if different and not arm.is_baseline:
            own_different, own_compared = counts.get(arm.baseline_id, (0, 0))
            too = own_different > 0 and own_different * compared >= different * own_compared
            losses[arm.arm_id] = Loss(
                different=different, compared=compared, barred=not (allowed or too), baseline_too=too
            )
    return losses
