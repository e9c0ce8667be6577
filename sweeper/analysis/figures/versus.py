"""The figure of two runs side by side."""

from collections.abc import Sequence

import plotly.graph_objects as go

from sweeper.analysis.figures.common import MOST_ARMS, Drawn, load_title
from sweeper.analysis.figures.style import BASELINE, SOFT, SYMBOLS, Theme, blank, looks, text
from sweeper.analysis.verdict import ratio_words
from sweeper.analysis.versus import Change, Versus
from sweeper.core.trial import Arm


def changes(versus: Versus, arms: Sequence[Arm], *, theme: Theme = "light") -> Drawn | None:
    """Second run over first, a row a configuration in its colour, a symbol a load point; None when they share nothing.

    `arms`: of the first run, whose colours hold."""
    labels = list(dict.fromkeys(change.label for change in versus.changes))[:MOST_ARMS]
    loads = list(dict.fromkeys(change.load for change in versus.changes))
    if not labels:
        return None
    styles = looks(arms)
    colors = {arm.label: styles[arm.arm_id].color for arm in arms}
    figure = blank(130 + 20 * len(labels) * max(2, min(len(loads), 6)), theme=theme)
    for number, load in enumerate(loads):
        mine = [change for change in versus.changes if change.load == load and change.label in labels]
        shift = (number - (len(loads) - 1) / 2) * 0.7 / len(loads)
        figure.add_trace(
            go.Scatter(
                x=[change.estimate.ratio for change in mine],
                y=[labels.index(change.label) + shift for change in mine],
                error_x=_interval(mine),
                mode="markers",
                marker={
                    "color": [colors.get(change.label, BASELINE) for change in mine],
                    "symbol": SYMBOLS[number % len(SYMBOLS)],
                    "size": 10,
                },
                name=text(load_title(load)),
                hovertext=[_words(change) for change in mine],
                hoverinfo="text",
            )
        )
    figure.add_vline(x=1, line={"color": BASELINE, "width": 3}, layer="below")
    figure.update_xaxes(title_text="output tok/s, second run ÷ first (×)")
    figure.update_yaxes(
        tickvals=list(range(len(labels))), ticktext=[text(label) for label in labels], autorange="reversed"
    )
    cut = " The first of many configurations; all stand in the table." if len(labels) == MOST_ARMS else ""
    return Drawn(
        name="changes",
        title="What changed",
        caption="Right of the grey line the second run is faster. Bars are the intervals behind the verdicts." + cut,
        figure=figure,
    )


def _words(change: Change) -> str:
    return (
        f"<b>{text(change.label)}</b> at {text(load_title(change.load))}<br>{ratio_words(change.estimate)}"
        f"<br>{change.first_tok_per_s:,.1f} → {change.second_tok_per_s:,.1f} tok/s<br>{change.estimate.verdict}"
    )


def _interval(mine: list[Change]) -> dict[str, object]:
    estimates = [change.estimate for change in mine]
    return {
        "type": "data",
        "symmetric": False,
        "array": [(entry.high or entry.ratio) - entry.ratio for entry in estimates],
        "arrayminus": [entry.ratio - (entry.low or entry.ratio) for entry in estimates],
        "color": SOFT,
        "thickness": 1.5,
        "width": 5,
    }
