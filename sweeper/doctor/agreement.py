"""How often a draft's own chain agrees with its target, and the accept length that follows. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Pooled over all samples; index i is draft step i + 1."""

    rows: int
    """Starting points in the target's own text (in the whole text where that is not known) with all steps inside."""
    teacher_forced: tuple[float, ...]
    """Share of rows where the step's token is the target's, the text being fed whatever the draft said before."""
    joint: tuple[float, ...]
    """Share of rows where this step and all before it are the target's: the draft on its own chain."""
    accept_length: tuple[float, ...]
    """Expected accept length with 1, 2, … steps, bonus token included."""
    walked: bool
    """The lengths come from walking the target's own text as verification would; else from 1 + sum of `joint`."""

    @property
    def conditional(self) -> tuple[float | None, ...]:
        """Acceptance of a step given that the one before was accepted; None where nobody got there."""
        before = (1.0, *self.joint)
        return tuple(now / last if last > 0 else None for now, last in zip(self.joint, before, strict=False))


def accepted(matches: Sequence[bool]) -> int:
    """Leading trues: the tokens of a chain that verification accepts."""
    return next((index for index, match in enumerate(matches) if not match), len(matches))


def summarise(
    chains: Sequence[Sequence[Sequence[bool]]], starts: Sequence[int | None], *, steps: int
) -> Agreement | None:
    """`chains[s][t][i]`: step i of row t of sample s agreed; `starts[s]`: first row whose text is the target's own.

    None without a single full row.
    """
    rows = [row for sample, start in zip(chains, starts, strict=True) for row in sample[start or 0 :]]
    if not rows:
        return None
    depth = range(steps)
    reached = [accepted(row) for row in rows]
    joint = tuple(sum(count > i for count in reached) / len(rows) for i in depth)
    walked = all(start is not None for start in starts)
    return Agreement(
        rows=len(rows),
        teacher_forced=tuple(sum(row[i] for row in rows) / len(rows) for i in depth),
        joint=joint,
        accept_length=tuple(
            _walk(chains, [start or 0 for start in starts], i + 1) if walked else 1 + sum(joint[: i + 1]) for i in depth
        ),
        walked=walked,
    )


def _walk(chains: Sequence[Sequence[Sequence[bool]]], starts: Sequence[int], steps: int) -> float:
    """Mean tokens per verify step when each step starts where the one before ended."""
    taken, verified = 0, 0
    for sample, start in zip(chains, starts, strict=True):
        row = start
        while row < len(sample):
            moved = 1 + accepted(sample[row][:steps])
            taken, verified, row = taken + moved, verified + 1, row + moved
    return taken / verified if verified else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """Which side a low live figure belongs to."""

    at_fault: str
    """`wiring`, `draft`, `neither`."""
    sentence: str


LOSS = 0.15
"""Relative shortfall of the live length that is more than prompts and sampling explain."""
POOR_FIRST_STEP = 0.5
"""Below this first-step acceptance a draft does not pay with any number of steps."""


def blame(agreement: Agreement, *, live: float, steps: int) -> Blame:
    """Compare the live accept length at `steps` with what the draft can do offline."""
    expected = agreement.accept_length[steps - 1]
    per_step = agreement.joint[0]
    offline = f"offline {per_step:.1%} at the first step ⇒ expected accept length {expected:.2f} at {steps} steps"
    told = f"{offline}; live {live:.2f}"
    if live < expected - LOSS * (expected - 1) - 0.05:
        return Blame(at_fault="wiring", sentence=f"{told} ⇒ the wiring, not the draft, is at fault.")
    if per_step < POOR_FIRST_STEP:
        return Blame(
            at_fault="draft", sentence=f"{told} ⇒ the wiring delivers what the draft can; the draft itself is weak."
        )
    return Blame(at_fault="neither", sentence=f"{told} ⇒ the engine delivers what the draft can.")
