"""Are greedy answers the baseline's? As a table that is ready to show, and as the notes it deserves."""

from collections.abc import Iterator
from dataclasses import dataclass

from sweeper.analysis.compare import Comparison
from sweeper.analysis.lossless import ASSUMED_DTYPE, Likenesses
from sweeper.analysis.outcome import Outcome
from sweeper.analysis.points import load_words
from sweeper.core.lossless import Judged
from sweeper.core.run import RunData

OVERRUN = "an engine before SGLang 0.5.18 looks at the length first"
COLUMNS = ("configuration", "load", "compared", "equal", "ties", "different", "unchecked", "first differences")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRow:
    """One trial."""

    label: str
    load: str
    counts: tuple[str, ...]
    """compared, equal, ties, different, unchecked."""
    detail: str
    """Where answers part, with the baseline's gap there."""
    lossy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTable:
    intro: str
    rows: tuple[AnswerRow, ...]


def answer_table(run: RunData, comparison: Comparison) -> AnswerTable | None:
    """None: nothing was compared (sampled answers, or no log-probabilities)."""
    rows = tuple(_row(entry, entry.lossless) for entry in comparison.outcomes if entry.lossless)
    if not rows:
        return None
    return AnswerTable(intro=_intro(run, comparison), rows=rows)


def _intro(run: RunData, comparison: Comparison) -> str:
    first = next(entry.lossless for entry in comparison.outcomes if entry.lossless)
    prompts = max((len(one.answers) for one in run.references), default=0)
    which = f" to {prompts} prompts" if prompts else ""
    dtype = first.dtype or f"unknown dtype, taken as {ASSUMED_DTYPE}"
    return (
        f"Greedy answers{which}, held against one pass of the baseline that recorded the "
        f"log-probabilities of its two likeliest tokens. A first difference is a tie while these were at most "
        f"{first.bound:g} apart there ({dtype}): rounding alone can turn it over."
    )


def _row(entry: Outcome, found: Likenesses) -> AnswerRow:
    counts = (found.compared, found.equal, found.tie, found.different, found.unchecked)
    return AnswerRow(
        label=f"{entry.arm.label} against itself" if entry.arm.is_baseline else entry.arm.label,
        load=load_words(entry.trial.load),
        counts=tuple(map(str, counts)),
        detail=parting_words(found),
        lossy=bool(found.different),
    )


def parting_words(found: Likenesses) -> str:
    """`gap 2.31 at token 18 of code-03; widest tie 0.06 at token 4 of json-01`; empty where all is equal."""
    words = []
    if found.worst:
        words.append(f"{_gap(found.worst)} {_place(found.worst)}")
    if found.widest_tie:
        words.append(f"widest tie {_gap(found.widest_tie)} {_place(found.widest_tie)}")
    if found.overrun:
        words.append(f"{found.overrun} went on after the end, up to max_tokens, within their last step: {OVERRUN}")
    if found.unchecked:
        words.append("the baseline's gap is not known where the unchecked ones part")
    if found.by == "text" and words:
        words.append("texts were compared: this route gives no token ids")
    return "; ".join(words)


def _gap(judged: Judged) -> str:
    return "the baseline had ended" if judged.gap is None else f"gap {judged.gap:.3g}"


def _place(judged: Judged) -> str:
    return f"at token {0 if judged.position is None else judged.position + 1} of {judged.prompt_id}"


def answer_words(found: Likenesses | None) -> str:
    """`61 equal, 3 ties`; empty where nothing was compared."""
    return "" if found is None else str(found)


def answer_notes(comparison: Comparison) -> Iterator[str]:
    """What must stand at the top: arms that are not lossless, and baselines that differ from themselves."""
    lossy: dict[str, list[Outcome]] = {}
    for entry in comparison.outcomes:
        if entry.lossless and entry.lossless.different:
            lossy.setdefault(entry.arm.label, []).append(entry)
    for label, entries in lossy.items():
        found = [entry.lossless for entry in entries if entry.lossless]
        share = f"{sum(one.different for one in found)} of {sum(one.compared for one in found)}"
        where = ", ".join(load_words(entry.trial.load) for entry in entries)
        if entries[0].arm.is_baseline:
            yield (
                f"The {label} differs from itself in {share} greedy answers ({where}) by more than rounding: the "
                "engine does not repeat itself, so differences of its configurations are not speculation's alone."
            )
        else:
            yield (
                f"{label} is not lossless: {share} greedy answers ({where}) differ from the baseline's by more than "
                f"rounding ({parting_words(found[0])})."
            )
