"""The verdict in words: one sentence for the morning, and a line for each thing it is made of."""

from sweeper.analysis.nightly.policy import WORDS, Quantity
from sweeper.analysis.nightly.verdict import Judged, Verdict

UNITS: dict[Quantity, str] = {
    "lossless": "",
    "agreement": "",
    "accept_length": "",
    "verify_step_ms": " ms",
    "baseline_step_ms": " ms",
    "output_tok_per_s": " tok/s",
    "ttft_ms": " ms",
    "speedup": "×",
    "startup_s": " s",
}


def sentence(verdict: Verdict) -> str:
    """`regressed since …: accept length of 3-1-4 at concurrency 1: 2.91 → 1.21 (−58.4 %) …`."""
    if verdict.could_not_run:
        return f"could not run: {verdict.could_not_run}"
    if verdict.alarms:
        return _regressed(verdict)
    if verdict.failures:
        more = f", and {len(verdict.failures) - 1} more" if len(verdict.failures) > 1 else ""
        return f"regressed: {verdict.failures[0]}{more}"
    better = [one for one in verdict.judged if one.finding.standing == "improved"]
    if better:
        more = f", and {len(better) - 1} more" if len(better) > 1 else ""
        return f"improved since {better[0].finding.since}: {told(better[0])}{more}"
    if verdict.absent:
        return f"could not tell: {verdict.absent[0]}"
    if verdict.state == "unknown":
        return _learning(verdict)
    watched = [one for one in verdict.judged if one.finding.standing == "fine"]
    nights = max(one.finding.nights for one in watched)
    return f"fine: {len(watched)} series as on the last {nights} good nights{_muted(verdict)}"


def told(one: Judged) -> str:
    """`accept length of 3-1-4 at concurrency 1: 2.91 → 1.21 (−58.4 %), changed with draft abc → def`."""
    finding, unit = one.finding, UNITS[one.name.quantity]
    value = finding.value if finding.value is not None else finding.night.value
    line = f"{one.name.text}: "
    if finding.level is None or finding.change is None:
        return f"{line}{value:.4g}{unit}, no level yet ({finding.nights} nights)"
    line += f"{finding.level:.4g}{unit} → {value:.4g}{unit} ({_signed(finding.change)})"
    if finding.standing == "drifting":
        line += f", a slow drift since {finding.since}"
    if one.changed_with:
        line += f", changed with {', '.join(mark.text for mark in one.changed_with)}"
    if one.cause:
        line += f"; {one.cause.text}"
    if finding.standing == "regressed" and not finding.confirmed:
        line += " (not measured again)"
    return line


def notes(verdict: Verdict) -> tuple[str, ...]:
    """What is no alarm but worth a line."""
    lines = [mark.text for mark in verdict.marks]
    lines = [f"changed tonight: {line}" for line in lines]
    lines += [*verdict.new_levels, *verdict.absent, *(f"doctor: {line}" for line in verdict.doctor)]
    for one in verdict.judged:
        if one.finding.unstable:
            values = ", ".join(f"{value:.4g}" for value in one.finding.unstable)
            lines.append(f"unstable repeat of {one.name.text}: {values} left out")
        if one.finding.disturbed:
            lines.append(f"{one.name.text}: the sweep was disturbed, the second measurement counts")
        if one.muted and one.finding.standing in ("regressed", "drifting"):
            lines.append(f"muted until {one.muted.until} ({one.muted.note}): {told(one)}")
    return tuple(lines)


def _regressed(verdict: Verdict) -> str:
    alarms = verdict.alarms
    first = alarms[0]
    since = first.finding.since
    head = f"drifting since {since}: " if first.finding.standing == "drifting" else f"regressed since {since}: "
    parts = [head + told(first)]
    follow = [one for one in alarms[1:] if one.name.quantity != first.name.quantity]
    if len(alarms) > 1:
        kinds = dict.fromkeys(WORDS[one.name.quantity] for one in follow)
        parts.append(f"{len(alarms) - 1} more series" + (f" ({', '.join(kinds)})" if kinds else ""))
    if verdict.failures:
        parts.append(f"failed: {verdict.failures[0]}")
    mine = [line for line in verdict.doctor if line.startswith(f"{first.name.arm}: ")]
    if mine:
        parts.append(f"doctor: {mine[0].split(': ', 1)[1]}")
    return "; ".join(parts)


def _learning(verdict: Verdict) -> str:
    if verdict.new_levels:
        return f"could not tell: {verdict.new_levels[0]}"
    nights = max((one.finding.nights for one in verdict.judged), default=0)
    if nights == 0:
        return "could not tell yet: this is the first good night, the level that later ones are held against"
    return f"could not tell yet: {nights} good night{'s' if nights > 1 else ''} before this one, too few for a level"


def _muted(verdict: Verdict) -> str:
    count = sum(one.muted is not None and one.finding.standing in ("regressed", "drifting") for one in verdict.judged)
    return f" ({count} muted)" if count else ""


def _signed(change: float) -> str:
    return f"{'−' if change < 0 else '+'}{abs(change):.1%}".replace("%", " %")
