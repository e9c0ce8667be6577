"""The history of a nightly job: every watched quantity night by night, with what is known to have changed."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import plotly.graph_objects as go

from sweeper.analysis.figures.common import MOST_LINES, Drawn
from sweeper.analysis.figures.style import COLORS, DASHES, SOFT, SYMBOLS, Theme, blank, text
from sweeper.analysis.nightly.decide import Finding
from sweeper.analysis.nightly.policy import HIGHER_IS_BETTER, WORDS, Quantity
from sweeper.analysis.nightly.record import NightRecord, SeriesName
from sweeper.analysis.nightly.sentence import UNITS
from sweeper.analysis.nightly.verdict import Mark, marks_of

RED = "#D55E00"


def draw_nights(nights: Sequence[NightRecord], *, theme: Theme = "light") -> tuple[Drawn, ...]:
    """One figure a quantity; nights that could not run leave a gap."""
    marks = marks_of([night for night in nights if not night.could_not_run])
    quantities = dict.fromkeys(name.quantity for night in nights for name, _ in night.findings)
    return tuple(_quantity(quantity, nights, marks, theme) for quantity in WORDS if quantity in quantities)


def _quantity(quantity: Quantity, nights: Sequence[NightRecord], marks: Sequence[Mark], theme: Theme) -> Drawn:
    figure = blank(360, theme=theme)
    names = dict.fromkeys(name for night in nights for name, _ in night.findings if name.quantity == quantity)
    shown = list(names)[:MOST_LINES]
    for number, name in enumerate(shown):
        figure.add_trace(_line(name, number, nights))
    for night_id, words in _by_night(marks).items():
        figure.add_vline(x=_date(night_id), line={"color": SOFT, "dash": "dash", "width": 1})
        figure.add_annotation(
            x=_date(night_id), y=1, yref="paper", yanchor="bottom", text=text(words), showarrow=False, font={"size": 10}
        )
    figure.update_layout(margin_t=34)
    figure.update_xaxes(title_text="night (UTC)", type="date")
    figure.update_yaxes(title_text=_unit(quantity))
    better = "Higher" if HIGHER_IS_BETTER[quantity] else "Lower"
    hidden = f" {len(names) - len(shown)} more series stand in the table." if len(names) > len(shown) else ""
    return Drawn(
        name=quantity,
        title=WORDS[quantity][:1].upper() + WORDS[quantity][1:],
        caption=f"{better} is better. One point a night; crosses belong to a regression that was not accepted. A "
        f"dashed line marks a known change; a line breaks where nights cannot be compared.{hidden}",
        figure=figure,
    )


def _line(name: SeriesName, number: int, nights: Sequence[NightRecord]) -> go.Scatter:
    dates: list[str] = []
    values: list[float | None] = []
    hovers: list[str] = []
    symbols: list[str] = []
    key: str | None = None
    plain = SYMBOLS[number % 4]
    for night in nights:
        finding, mine = _found(night, name), _comparability(night, name)
        if finding is None or (key is not None and mine != key):
            dates.append(_date(night.night_id))
            values.append(None)
            hovers.append("")
            symbols.append(plain)
        if finding is not None:
            dates.append(_date(night.night_id))
            values.append(finding.night.value)
            hovers.append(_hover(name, night.night_id, finding))
            symbols.append("x" if finding.night.flagged else plain)
            key = mine
    color = COLORS[number % len(COLORS)]
    return go.Scatter(
        x=dates,
        y=values,
        mode="lines+markers",
        name=text(name.place),
        line={"color": color, "dash": DASHES[number // len(COLORS) % len(DASHES)], "width": 2},
        marker={"size": 7, "symbol": symbols, "color": [RED if symbol == "x" else color for symbol in symbols]},
        hovertext=hovers,
        hoverinfo="text",
        connectgaps=False,
    )


def _found(night: NightRecord, name: SeriesName) -> Finding | None:
    return next((finding for other, finding in night.findings if other == name), None)


def _comparability(night: NightRecord, name: SeriesName) -> str | None:
    return next((watched.comparability for watched in night.series if watched.name == name), None)


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
    return datetime.strptime(night_id, "%Y%m%d-%H%M%S").isoformat()


def _unit(quantity: Quantity) -> str:
    return UNITS[quantity].strip() or WORDS[quantity]
