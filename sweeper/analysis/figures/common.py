"""What the figures share: the material they are drawn from, and the words of their hover boxes."""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from sweeper.analysis.compare import Comparison
from sweeper.analysis.figures.style import Look, Theme, looks, text
from sweeper.analysis.golden import GoldenCurve
from sweeper.analysis.outcome import Outcome
from sweeper.analysis.verdict import ratio_words
from sweeper.core.run import RunData
from sweeper.core.trial import Arm

MOST_ARMS = 15
MOST_LINES = 8
"""More rows or lines than this make a figure unreadable: the fastest are drawn, the rest stand in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """One run and its comparison, ready to be drawn."""

    run: RunData
    comparison: Comparison
    looks: dict[str, Look]
    theme: Theme = "light"
    golden: tuple[GoldenCurve, ...] = ()
    """Published curves that apply to this run."""

    @classmethod
    def of(
        cls, run: RunData, comparison: Comparison, theme: Theme = "light", golden: tuple[GoldenCurve, ...] = ()
    ) -> "Material":
        return cls(run=run, comparison=comparison, looks=looks(run.plan.arms), theme=theme, golden=golden)

    @property
    def measured(self) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.comparison.outcomes if outcome.numbers)

    @property
    def loads(self) -> tuple[str, ...]:
        """Load points with numbers, in the order of the plan."""
        return tuple(dict.fromkeys(outcome.load for outcome in self.measured))

    def at(self, load: str) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.measured if outcome.load == load)

    def arms(self, most: int = MOST_ARMS) -> tuple[Arm, ...]:
        """Arms with numbers, in the order of the plan: the baselines, and of the others the `most` fastest."""
        best: dict[str, float] = {}
        for outcome in self.measured:
            ratio = outcome.estimate.ratio if outcome.estimate else 0.0
            best[outcome.arm.arm_id] = max(best.get(outcome.arm.arm_id, 0.0), ratio)
        arms = [arm for arm in self.run.plan.arms if arm.arm_id in best]
        kept = sorted((arm for arm in arms if not arm.is_baseline), key=lambda arm: -best[arm.arm_id])[:most]
        return tuple(arm for arm in arms if arm.is_baseline or arm in kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One figure with the words around it."""

    name: str
    title: str
    caption: str
    """How to read it, in a sentence or two."""
    figure: go.Figure


def load_title(load: str) -> str:
    return f"concurrency {load}" if load.isdigit() else load


def hover(outcome: Outcome, extra: Sequence[str] = ()) -> str:
    """Label, effective configuration, interval, and what else the figure is about."""
    numbers = outcome.numbers
    assert numbers is not None
    effective = numbers.effective
    lines = [f"<b>{text(outcome.arm.label)}</b> at {text(load_title(outcome.load))}"]
    ran = "no speculation" if effective.algorithm is None else f"{effective.algorithm} {effective.triple or ''}"
    lines.append(f"ran as {text(ran)}")
    if outcome.estimate:
        lines.append(f"{ratio_words(outcome.estimate)} baseline, {outcome.standing}")
    lines.append(f"{numbers.output_tok_per_s:,.1f} tok/s")
    return "<br>".join([*lines, *extra])
