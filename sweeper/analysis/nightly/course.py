"""How a history goes on after a night: what is flagged, what becomes the level."""

from collections.abc import Sequence
from dataclasses import replace

from sweeper.analysis.nightly.decide import Finding
from sweeper.analysis.nightly.night import Night

KEPT_NIGHTS = 400
"""More than any decision looks at; an open regression older than that keeps its last nights."""


def advance(past: Sequence[Night], finding: Finding) -> tuple[Night, ...]:
    """The nights that the next decision gets: tonight appended, a regression's nights flagged, an adopted level cut."""
    nights = [*past[-KEPT_NIGHTS:], finding.night]
    if finding.since is None:
        return tuple(nights)
    begin = next((number for number, night in enumerate(nights) if night.night_id == finding.since), 0)
    if finding.adopt:
        return tuple(nights[begin:])
    if finding.night.flagged:
        nights[begin:] = [replace(night, flagged=True) for night in nights[begin:]]
    return tuple(nights)


def accept(past: Sequence[Night], since: str | None) -> tuple[Night, ...]:
    """The level from `since` on (None: from the open regression on) is blessed: what was before is no measure."""
    begin = next((number for number, night in enumerate(past) if night.night_id == since), None)
    if begin is None:
        begin = len(past)
        while begin > 0 and past[begin - 1].flagged:
            begin -= 1
    kept = past[begin:] if begin < len(past) else past
    return tuple(replace(night, flagged=False) for night in kept)
