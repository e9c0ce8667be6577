"""The comparison in sentences: what a colleague reads first."""

import math
from collections.abc import Mapping, Sequence

from sweeper.analysis.compare import Comparison
from sweeper.analysis.decompose import Decomposition, crossovers
from sweeper.analysis.outcome import Outcome
from sweeper.analysis.points import load_words
from sweeper.analysis.simulated import BADGE
from sweeper.analysis.statistics import Estimate
from sweeper.analysis.twins import Twins
from sweeper.analysis.winners import Pair, Winner
from sweeper.core.trial import LoadPoint

TOO_NOISY = 1.25
"""From this floor on, finding no difference says nothing about a gain that people would want."""
NARROW = 0.05
"""Below this band of equivalence two digits would hide where an interval ends."""
FEW = 2
"""More further load points, names or pairs than this are told in groups."""


def ratio_words(estimate: Estimate, *, digits: int = 2) -> str:
    """`1.42× (1.38–1.46)`."""
    if estimate.low is None or estimate.high is None:
        return f"{estimate.ratio:.{digits}f}× (no interval)"
    return f"{estimate.ratio:.{digits}f}× ({estimate.low:.{digits}f}–{estimate.high:.{digits}f})"


def near_words(estimate: Estimate) -> str:
    """`1.03× (0.94–1.14)`; near 1 with a digit more, so that one sees on which side of it the interval ends."""
    return ratio_words(estimate, digits=3 if (estimate.within or 1) < NARROW else 2)


def pair_words(pair: Pair) -> str:
    """`A and B: no difference, 1.03× (0.94–1.14)`."""
    words = {"better": f"{pair.first.label} is faster", "worse": f"{pair.second.label} is faster"}
    told = words.get(pair.estimate.verdict, pair.estimate.verdict)
    return f"{pair.first.label} and {pair.second.label}: {told}, {near_words(pair.estimate)}"


def widest(pairs: Sequence[Pair]) -> str:
    """`at most 4.1% apart`: what the intervals of all pairs leave; empty without intervals."""
    bands = [pair.estimate.within for pair in pairs]
    known = [band for band in bands if band is not None]
    return f"at most {max(known):.1%} apart" if known and len(known) == len(bands) else ""


def headline(comparison: Comparison) -> str:
    """The verdict sentence of a whole run."""
    baselines = {entry.arm.arm_id: entry.arm.label for entry in comparison.outcomes if entry.standing == "baseline"}
    if any(entry.reason.startswith(BADGE) for entry in comparison.outcomes):
        return f"{BADGE.capitalize()}: step times are the engine's own, the gain is pretended; no winner."
    if not baselines:
        return _without_baseline(comparison)
    if len(baselines) == 1:
        return _family_headline(comparison, next(iter(baselines)))
    return " ".join(f"Against {label}: {_family_headline(comparison, arm_id)}" for arm_id, label in baselines.items())


def _without_baseline(comparison: Comparison) -> str:
    told = "no load point has a ranked baseline to compare with"
    if any(entry.state == "pending" for entry in comparison.outcomes):
        return f"No verdict yet: {told}."
    lacking = next((entry for entry in comparison.outcomes if entry.arm.is_baseline and entry.reason), None)
    why = "" if lacking is None else f" ({lacking.arm.label}: {'; '.join(lacking.excluded) or lacking.reason})"
    return f"No verdict: {told}{why}."


def _family_headline(comparison: Comparison, family: str) -> str:
    winners = [winner for winner in comparison.winners if winner.arm.baseline_id == family]
    if not winners:
        return "Nothing could be compared with the baseline: see the table for the reason of each configuration."
    rest = f"{_passed_over(comparison, winners)}{_bare(comparison, family)}."
    twins = twin_words([entry for entry in comparison.twins if entry.alone and entry.arms[0].baseline_id == family])
    gains = [winner for winner in winners if winner.estimate]
    if not gains:
        return f"{twins}{_no_gain(comparison, family)}{rest}"
    best = max(gains, key=lambda winner: winner.estimate.ratio if winner.estimate else 0)
    assert best.estimate is not None
    tie = "" if twins else _tie(best)
    text = f"{best.arm.label} is {ratio_words(best.estimate)} the baseline's speed at {load_words(best.point)}{tie}"
    text += _warning(comparison, best)
    others = [winner for winner in gains if winner is not best]
    if 0 < len(others) <= FEW:
        text += "; " + ", ".join(_short(comparison, winner, best, tell_tie=not twins) for winner in others)
    elif others:
        text += _grouped(comparison, others)
    off = [winner.point for winner in winners if not winner.estimate]
    if off:
        text += f"; nothing beats the baseline at {load_list(off)}: turn speculation off there"
        text += _between(comparison, best)
    return f"{twins}{text}{_scope(comparison)}{rest}"


def twin_words(twins: Sequence[Twins]) -> str:
    """What the names of one configuration differ by; empty where nothing was measured twice."""
    if not twins:
        return ""
    names = list(dict.fromkeys(arm.label for entry in twins for arm in entry.arms))
    unlike = [entry for entry in twins if any(pair.estimate.verdict in ("better", "worse") for pair in entry.pairs)]
    if unlike:
        told = "; ".join(f"{_apart(entry)} at {load_words(entry.point)}" for entry in unlike[:FEW])
        more = f" and at {len(unlike) - FEW} more load points" if len(unlike) > FEW else ""
        return (
            f"{and_words(names)} are one configuration and yet differ, by noise that this run did not see: "
            f"{told}{more}. "
        )
    if any(pair.estimate.verdict == "undecided" for entry in twins for pair in entry.pairs):
        return ""
    told = ", ".join(f"{_apart(entry)} at {load_words(entry.point)}" for entry in twins)
    if len(twins) > FEW + 1:
        told = f"{widest([pair for entry in twins for pair in entry.pairs])} at every load point"
    return f"No difference between {and_words(names)}, which are one configuration: {told}{_noisy(twins)}. "


def _noisy(twins: Sequence[Twins]) -> str:
    bands = [pair.estimate.within or 0.0 for entry in twins for pair in entry.pairs]
    return " (too noisy to call them equal)" if max(bands) > TOO_NOISY - 1 else ""


def _apart(twins: Twins) -> str:
    pairs = twins.pairs
    unlike = [pair for pair in pairs if pair.estimate.verdict in ("better", "worse")]
    if unlike:
        return ", ".join(pair_words(pair) for pair in unlike[:FEW])
    return near_words(pairs[0].estimate) if len(pairs) == 1 else widest(pairs)


def _passed_over(comparison: Comparison, winners: Sequence[Winner]) -> str:
    """Faster configurations that may not win, each at its best load point."""
    best: dict[str, Outcome] = {}
    for entry in (entry for winner in winners for entry in winner.passed_over):
        known = best.get(entry.arm.arm_id)
        if known is None or _ratio(entry) > _ratio(known):
            best[entry.arm.arm_id] = entry
    told = [
        f"{entry.arm.label}, {ratio_words(entry.estimate)} at {load_words(entry.trial.load)} "
        f"({comparison.losses[entry.arm.arm_id]})"
        for entry in sorted(best.values(), key=_ratio, reverse=True)
        if entry.estimate
    ]
    more = f" and {len(told) - FEW} more" if len(told) > FEW else ""
    return f"; faster but not lossless, hence not ranked: {', '.join(told[:FEW])}{more}" if told else ""


def _ratio(outcome: Outcome) -> float:
    return outcome.estimate.ratio if outcome.estimate else 0.0


def _warning(comparison: Comparison, winner: Winner) -> str:
    loss = comparison.losses.get(winner.arm.arm_id)
    return f", but is not lossless ({loss})" if loss else ""


def _bare(comparison: Comparison, family: str) -> str:
    """Load points of a baseline at which no configuration could be held against it; those still to come are not."""
    entries = [entry for entry in comparison.outcomes if entry.arm.baseline_id == family]
    told = {entry.load for entry in entries if entry.estimate or entry.state == "pending"}
    points = {entry.load: entry.trial.load for entry in entries if entry.load not in told}
    return f"; nothing comparable was measured at {load_list(list(points.values()))}" if points else ""


def _no_gain(comparison: Comparison, family: str) -> str:
    compared = [entry for entry in comparison.outcomes if entry.arm.baseline_id == family and entry.estimate]
    rivals = [entry for entry in compared if not comparison.barred(entry.arm)]
    if not rivals:
        return "No configuration gives the baseline's answers, so none may win (run: {lossy: rank} lets them)"
    if any(entry.standing == "undecided" for entry in rivals):
        return "Undecided: one measurement a configuration has no interval; measure with more repeats"
    closest = max(rivals, key=lambda entry: entry.estimate.ratio if entry.estimate else 0)
    assert closest.estimate is not None
    floor = comparison.floors.get(closest.load)
    noise = f"; this run could have claimed a difference from {floor - 1:.1%} on" if floor else ""
    kind = "configuration" if len(rivals) == len(compared) else "lossless configuration"
    if all(entry.standing == "no difference" for entry in rivals):
        within = max((entry.estimate.within or 0.0 for entry in rivals if entry.estimate), default=0.0)
        if max(floor or 1.0, 1 + within) > TOO_NOISY:
            return _too_noisy(floor, within)
        band = f", any difference is below {within:.1%}" if within else ""
        nothing = "nothing differs" if kind == "configuration" else f"no {kind} differs"
        return f"No difference: {nothing} from the baseline beyond noise{band}{noise}{_scope(comparison)}"
    return (
        f"Leave speculation off: no {kind} beats the baseline at any load point. The closest is "
        f"{closest.arm.label}, {ratio_words(closest.estimate)} at {load_words(closest.trial.load)}{noise}"
        f"{_scope(comparison)}"
    )


def _too_noisy(floor: float | None, within: float) -> str:
    apart = f"; its configurations and the baseline may be up to {within:.0%} apart" if within else ""
    claim = f"this run could only have claimed a difference from {floor - 1:.0%} on" if floor else "the run was noisy"
    return f"Too noisy to tell: {claim}{apart}. Measure with more starts or repeats, on a quieter machine"


def _grouped(comparison: Comparison, winners: Sequence[Winner]) -> str:
    """Neighbouring load points with the same winner share their words; ties stand with the winners themselves."""
    groups: list[list[Winner]] = []
    for winner in winners:
        if groups and groups[-1][-1].arm.arm_id == winner.arm.arm_id:
            groups[-1].append(winner)
        else:
            groups.append([winner])
    words = []
    for group in groups:
        ends = [winner.estimate.ratio for winner in (group[0], group[-1]) if winner.estimate]
        ratios = f"{ends[0]:.2f}×" if len(group) == 1 else f"{ends[0]:.2f}–{ends[-1]:.2f}×"
        where = load_words(group[0].point) + ("" if len(group) == 1 else f" to {group[-1].load}")
        lossy = " (not lossless)" if group[0].arm.arm_id in comparison.losses else ""
        words.append(f"{group[0].arm.label}{lossy} {ratios} at {where}")
    return "; " + ", ".join(words)


def _short(comparison: Comparison, winner: Winner, best: Winner, *, tell_tie: bool) -> str:
    assert winner.estimate is not None
    tie = _tie(winner) if tell_tie else ""
    if winner.arm.arm_id == best.arm.arm_id:
        return f"{ratio_words(winner.estimate)} at {load_words(winner.point)}{tie}"
    warning = _warning(comparison, winner)
    return f"{winner.arm.label} {ratio_words(winner.estimate)} at {load_words(winner.point)}{tie}{warning}"


def _tie(winner: Winner) -> str:
    if not winner.ties:
        return ""
    if max(pair.estimate.within or 0.0 for pair in winner.ties) > TOO_NOISY - 1:
        apart = near_words(winner.ties[0].estimate) if len(winner.ties) == 1 else widest(winner.ties)
        return f" (too noisy to tell it from {and_words(winner.tied_with)}: {apart or 'not all have an interval'})"
    if len(winner.ties) == 1:
        return f" (a tie with {winner.tied_with[0]}: no difference, {near_words(winner.ties[0].estimate)})"
    band = widest(winner.ties)
    return f" (a tie with {', '.join(winner.tied_with)}{f': no difference, {band}' if band else ''})"


def and_words(words: Sequence[str]) -> str:
    """`A, B and C`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def load_list(points: Sequence[LoadPoint]) -> str:
    """`concurrency 1, 4 and 16 and poisson 4 req/s`."""
    words = [str(point.concurrency) for point in points if point.arrival == "closed"]
    text = f"concurrency {and_words(words)}" if words else ""
    return " and ".join(filter(None, [text, *(load_words(point) for point in points if point.arrival != "closed")]))


def _between(comparison: Comparison, best: Winner) -> str:
    """Where the best configuration stops paying, when the ratio passes 1 between two measured concurrencies."""
    ratios = {
        entry.trial.load.concurrency: entry.estimate.ratio
        for entry in comparison.outcomes
        if entry.arm.arm_id == best.arm.arm_id and entry.estimate and entry.trial.load.arrival == "closed"
    }
    falls = [crossing for crossing in crossovers(ratios) if ratios[crossing.below] > 1]
    if not falls:
        return ""
    return f" ({best.arm.label} crosses 1 between {falls[0].below} and {falls[0].above}, near {falls[0].at:.0f})"


def _scope(comparison: Comparison) -> str:
    if comparison.noise and comparison.noise.scope == "within one server start":
        return ", within one server start"
    return ""


def explain(outcome: Outcome) -> str:
    """How much of a missing speedup is the draft's and how much the engine's; empty when nothing is known."""
    parts = outcome.decomposition
    if parts is None or outcome.numbers is None:
        return ""
    text = (
        f"a verify step takes {parts.step_time_ms:.2f} ms, {parts.break_even_length:.2f} times a baseline step, "
        f"and gives {parts.delivered_length:.2f} tokens"
    )
    if outcome.reason.startswith(BADGE):
        return f"{text} ({BADGE}): it would pay from {parts.break_even_length:.2f} tokens a step on"
    text += f": {parts.decode_speedup:.2f}× while decoding"
    if parts.decode_speedup < 1:
        text += f"; it would need {parts.break_even_length:.2f} tokens a step to pay for itself"
    return text + _shares(parts)


def _shares(parts: Decomposition) -> str:
    if parts.bound is None or parts.draft_share is None or parts.engine_share is None:
        return ""
    return (
        f". Of what keeps it from {parts.bound:g}×, {parts.draft_share:.0%} is wrong drafts "
        f"and {parts.engine_share:.0%} is the cost of drafting and verifying"
    )


def drift_words(comparison: Comparison, labels: Mapping[str, str]) -> tuple[str, ...]:
    """One sentence per baseline and load point: all of a single pass, otherwise those beyond this run's noise."""
    single = comparison.noise is not None and comparison.noise.scope == "within one server start"
    return tuple(
        f"{labels.get(drift.baseline, drift.baseline)} at {drift.load}: "
        f"the last start ran at {drift.ratio:.3f} of the first"
        for drift in comparison.drifts
        if single or abs(math.log(drift.ratio)) > math.log(comparison.floors.get(drift.load, math.inf))
    )
