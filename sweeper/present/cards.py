"""What to run at a load point: the winner, whom it is tied with, and what must be known about its answers."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sweeper.analysis.compare import Comparison
from sweeper.analysis.points import load_words
from sweeper.analysis.verdict import load_list, pair_words, ratio_words, widest
from sweeper.analysis.winners import Winner
from sweeper.core.run import RunData
from sweeper.core.trial import LoadPoint
from sweeper.present.launch_command import paste_command, wrapped
from sweeper.present.numbers import ABSENT, rate

MOST_NAMES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnerCard:
    point: LoadPoint
    against: str
    """` against LABEL` where the run has several baselines; empty otherwise."""
    label: str
    speedup: str
    """Empty when the baseline wins."""
    detail: str
    ties: tuple[str, ...]
    """`A and B: no difference, 1.03× (0.94–1.14)`, for every arm it is tied with."""
    warning: str
    """That its answers are not the baseline's, or that a faster one is not ranked for that; empty otherwise."""
    command: str
    one_line: str
    is_baseline: bool

    @property
    def load(self) -> str:
        return load_words(self.point) + self.against


def winner_card(run: RunData, comparison: Comparison, winner: Winner) -> WinnerCard:
    """What to run at one load point."""
    base = comparison.outcome(winner.arm.baseline_id, winner.load)
    against = rate(base.numbers.output_tok_per_s) if base and base.numbers else ABSENT
    several = len({entry.arm.baseline_id for entry in comparison.outcomes}) > 1 and base
    detail = f"{rate(winner.output_tok_per_s)} tok/s"
    detail += " without speculation" if winner.estimate is None else f" against {against}"
    command = paste_command(run, winner.arm)
    return WinnerCard(
        point=winner.point,
        against=f" against {base.arm.label}" if several and base else "",
        label=winner.arm.label if winner.estimate else "no speculation",
        speedup=ratio_words(winner.estimate) if winner.estimate else "",
        detail=detail,
        ties=tie_lines(winner),
        warning=_warning(comparison, winner),
        command=wrapped(command),
        one_line=command,
        is_baseline=winner.estimate is None,
    )


def by_command(cards: Iterable[WinnerCard], command: Callable[[WinnerCard], str]) -> dict[str, list[WinnerCard]]:
    """Cards that say to run the same thing, each command once."""
    found: dict[str, list[WinnerCard]] = {}
    for card in cards:
        found.setdefault(command(card), []).append(card)
    return found


def lead_in(cards: Sequence[WinnerCard]) -> str:
    """What stands before the command that these cards share."""
    loads = load_list([card.point for card in cards]) + cards[0].against
    known = f"At {loads} nothing is known to be faster; the baseline:"
    return known if cards[0].is_baseline else f"To run at {loads}:"


def tie_lines(winner: Winner) -> tuple[str, ...]:
    """One line for each configuration that the winner cannot be told apart from, MOST_NAMES at most."""
    told = tuple(map(pair_words, winner.ties[:MOST_NAMES]))
    more = winner.ties[MOST_NAMES:]
    return (*told, f"{len(more)} more that cannot be told apart from it, {widest(more)}") if more else told


def _warning(comparison: Comparison, winner: Winner) -> str:
    own = comparison.losses.get(winner.arm.arm_id)
    told = [f"Not lossless: {own}."] if own else []
    told += [
        f"{entry.arm.label} is faster, {ratio_words(entry.estimate)}, but not lossless, hence not ranked: "
        f"{comparison.losses[entry.arm.arm_id]}."
        for entry in winner.passed_over[:MOST_NAMES]
        if entry.estimate
    ]
    return " ".join(told)
