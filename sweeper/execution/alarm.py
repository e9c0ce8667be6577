"""Listens to the first answers of a load and says at once when speculation does not engage."""

from collections.abc import Callable

from sweeper.analysis.engagement import early_mark, enough
from sweeper.core.sample import SpecCounters

Listen = Callable[[SpecCounters | None], bool]
"""Gets the counters of each whole answer as it ends (None: it had none); False: no more, please."""


class Alarm:
    """A Listen that calls `tell` at most once, with a sentence. It stops listening when more would change nothing."""

    def __init__(self, tell: Callable[[str], None], *, positions: int | None) -> None:
        """positions: most drafts of a step that can be accepted (`draft_positions`)."""
        self._tell = tell
        self._positions = positions
        self._heard: list[SpecCounters] = []

    def __call__(self, counters: SpecCounters | None) -> bool:
        if counters is None:
            return False
        self._heard.append(counters)
        mark = early_mark(self._heard, positions=self._positions)
        if mark is not None:
            self._tell(f"{mark.message} (seen after {len(self._heard)} answers)")
        return mark is None and not enough(self._heard)
