"""The history of a nightly job: every watched quantity night by night, with what is known to have changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import plotly.graph_objects as go

from sweeper.analysis.figures.common import Drawn
from sweeper.analysis.figures.style import BASELINE, COLORS, DASHES, SOFT, SYMBOLS, Theme, blank, text
from sweeper.analysis.nightly.decide import Finding
from sweeper.analysis.nightly.policy import HIGHER_IS_BETTER, WORDS, Quantity
from sweeper.analysis.nightly.record import NightRecord, SeriesName
from sweeper.analysis.nightly.sentence import UNITS
from sweeper.analysis.nightly.verdict import Mark, marks_of

RED = "#D55E00"
MOST_SERIES = 16
CHANGED = ("regressed", "drifting", "improved")
AXES: Mapping[str, str] = {
    "agreement": "share of answers",
    "lossless": "share of answers",
    "speedup": "speed ÷ baseline speed (×)",
}
DAY = timedelta(days=1)


def draw_nights(nights: Sequence[NightRecord], *, theme: Theme = "light") -> tuple[Drawn, ...]:
    """One figure a quantity; nights that could not run leave a gap."""
    quantities = dict.fromkeys(name.quantity for night in nights for name, _ in night.findings)
    return tuple(draw_quantity(quantity, nights, theme=theme) for quantity in WORDS if quantity in quantities)


def draw_quantity(quantity: Quantity, nights: Sequence[NightRecord], *, theme: Theme = "light") -> Drawn:
    """One of them."""
    figure = blank(360, theme=theme)
    course = [_Seen.of(night, quantity) for night in nights]
    marks = marks_of([night for night in nights if not night.could_not_run])
    names = dict.fromkeys(name for seen in course for name in seen.findings)
    shown = list(names)[:MOST_SERIES]
    looks = _looks(nights)
    for name in shown:
        figure.add_trace(_line(name, looks[name.arm, name.load], course))
    changes = _changes(shown, course)
    if changes.x:
        figure.add_trace(changes)
    for night_id, words in _by_night(marks).items():
        figure.add_vline(x=_date(night_id), line={"color": SOFT, "dash": "dash", "width": 1})
        figure.add_annotation(
            x=_date(night_id), y=1, yref="paper", yanchor="bottom", text=text(words), showarrow=False, font={"size": 10}
        )
    figure.update_layout(margin_t=34, showlegend=len(shown) > 1 or bool(changes.x))
    first, last = (_time(nights[end].night_id) for end in (0, -1))
    space = max(1.5 * DAY, 0.03 * (last - first))
    figure.update_xaxes(title_text="night (UTC)", type="date", range=[first - space, last + space])
    if last - first < 10 * DAY:
        figure.update_xaxes(dtick=DAY.total_seconds() * 1000, tickformat="%b %d")
    figure.update_yaxes(title_text=AXES.get(quantity) or UNITS[quantity].strip() or WORDS[quantity])
    if AXES.get(quantity) == "share of answers":
        figure.update_yaxes(rangemode="tozero", tickformat=".0%")
    better = "Higher" if HIGHER_IS_BETTER[quantity] else "Lower"
    hidden = f" {len(names) - len(shown)} more series stand in the table." if len(names) > len(shown) else ""
    return Drawn(
        name=quantity,
        title=WORDS[quantity][:1].upper() + WORDS[quantity][1:],
        caption=f"{better} is better. One point a night; crosses belong to a regression that was not accepted, rings "
        "are nights from which on the level is another. A dashed line marks a known change; a line breaks where nights "
        f"cannot be compared.{hidden}",
        figure=figure,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One quantity in one night."""

    night_id: str
    findings: Mapping[SeriesName, Finding]
    comparability: Mapping[SeriesName, str]

    @classmethod
    def of(cls, night: NightRecord, quantity: Quantity) -> "_Seen":
        return cls(
            night_id=night.night_id,
            findings={name: finding for name, finding in night.findings if name.quantity == quantity},
            comparability={one.name: one.comparability for one in night.series if one.name.quantity == quantity},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    color: str
    symbol: str
    dash: str


def _looks(nights: Sequence[NightRecord]) -> dict[tuple[str, str], _Look]:
    """(configuration, load) → look: the colour and the symbol are the configuration's in every figure."""
    names = dict.fromkeys(name for night in nights for name, _ in night.findings)
    baselines = {name.arm for name in names if name.quantity == "baseline_step_ms"}
    arms = list(dict.fromkeys(name.arm for name in names if name.arm not in baselines))
    loads = list(dict.fromkeys(name.load for name in names if name.load))
    found = {}
    for name in names:
        number = None if name.arm in baselines else arms.index(name.arm)
        found[name.arm, name.load] = _Look(
            color=BASELINE if number is None else COLORS[number % len(COLORS)],
            symbol="circle-open" if number is None else SYMBOLS[number % 4],
            dash=DASHES[(loads.index(name.load) if name.load else 0) % len(DASHES)],
        )
    return found


def _line(name: SeriesName, look: _Look, course: Sequence[_Seen]) -> go.Scatter:
    dates: list[str] = []
    values: list[float | None] = []
    hovers: list[str] = []
    symbols: list[str] = []
    key: str | None = None
    for night in course:
        finding, mine = night.findings.get(name), night.comparability.get(name)
        if finding is None or (key is not None and mine != key):
            dates.append(_date(night.night_id))
            values.append(None)
            hovers.append("")
            symbols.append(look.symbol)
        if finding is not None:
            dates.append(_date(night.night_id))
            values.append(finding.night.value)
            hovers.append(_hover(name, night.night_id, finding))
            symbols.append("x" if finding.night.flagged else look.symbol)
            key = mine
    return go.Scatter(
        x=dates,
        y=values,
        mode="lines+markers",
        name=text(name.place),
        line={"color": look.color, "dash": look.dash, "width": 2},
        marker={"size": 7, "symbol": symbols, "color": [RED if symbol == "x" else look.color for symbol in symbols]},
        hovertext=hovers,
        hoverinfo="text",
        connectgaps=False,
    )


def _changes(names: Sequence[SeriesName], course: Sequence[_Seen]) -> go.Scatter:
    """A ring around the first night of each change that was ever reported."""
    by_id = {night.night_id: night for night in course}
    found: dict[tuple[SeriesName, str], str] = {}
    for night in course:
        for name, finding in night.findings.items():
            if name in names and finding.standing in CHANGED and finding.since in by_id:
                found[name, finding.since] = finding.standing
    rings = [
        (since, first.night.value, f"<b>{text(name.text)}</b><br>{standing} since night {since}")
        for (name, since), standing in found.items()
        if (first := by_id[since].findings.get(name))
    ]
    return go.Scatter(
        x=[_date(since) for since, _, _ in rings],
        y=[value for _, value, _ in rings],
        mode="markers",
        name="change point",
        marker={"symbol": "circle-open", "size": 16, "color": RED, "line": {"width": 2}},
        hovertext=[words for _, _, words in rings],
        hoverinfo="text",
    )


def _hover(name: SeriesName, night_id: str, finding: Finding) -> str:
    lines = [f"<b>{text(name.text)}</b>, night {night_id}", f"{finding.night.value:.4g}{UNITS[name.quantity]}"]
    if finding.level is not None:
        lines.append(f"level {finding.level:.4g} of {finding.nights} nights")
    lines.append(finding.standing + (f" since {finding.since}" if finding.since else ""))
    return "<br>".join(lines)


def _by_night(marks: Sequence[Mark]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for mark in marks:
        found[mark.night_id] = "; ".join(part for part in (found.get(mark.night_id), mark.text) if part)
    return found


def _date(night_id: str) -> str:
    return _time(night_id).isoformat()


def _time(night_id: str) -> datetime:
    return datetime.strptime(night_id, "%Y%m%d-%H%M%S")
