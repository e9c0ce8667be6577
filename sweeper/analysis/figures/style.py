"""How every figure looks: colours that stay apart for every eye, symbols and dashes that stay apart in grey print."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any, Literal

import plotly.graph_objects as go

from sweeper.core.trial import Arm

Theme = Literal["light", "dark"]

# Okabe and Ito's palette without its yellow, which vanishes on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#A6761D")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "pentagon")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
PATTERNS = ("", "/", "x", "-", "\\", ".", "+", "|")
BASELINE = "#7F7F7F"
BAND = "rgba(127,127,127,0.22)"
SOFT = "rgba(127,127,127,0.55)"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
PHASES: Mapping[str, tuple[str, str]] = {
    "waiting": ("#D9D9D9", ""),
    "cleaning": ("#BDBDBD", "."),
    "launching": ("#56B4E9", "/"),
    "loading": ("#0072B2", ""),
    "capturing": ("#CC79A7", "x"),
    "warming": ("#E69F00", "-"),
    "ready": ("#9ACBB9", ""),
    "measuring": ("#009E73", ""),
    "stopping": ("#7F7F7F", "\\"),
    "failed": ("#D55E00", "x"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Of one configuration, the same in every figure."""

    color: str
    symbol: str
    dash: str
    pattern: str

    @property
    def marker(self) -> dict[str, Any]:
        return {"color": self.color, "symbol": self.symbol, "size": 9}

    @property
    def line(self) -> dict[str, Any]:
        return {"color": self.color, "dash": self.dash, "width": 2}


def looks(arms: Sequence[Arm]) -> dict[str, Look]:
    """arm_id → look, by position in the plan; baselines are grey."""
    found, number, baselines = {}, 0, 0
    for arm in arms:
        if arm.is_baseline:
            found[arm.arm_id] = Look(
                color=BASELINE,
                symbol=f"{SYMBOLS[baselines % len(SYMBOLS)]}-open",
                dash=DASHES[baselines % len(DASHES)],
                pattern="",
            )
            baselines += 1
            continue
        found[arm.arm_id] = Look(
            color=COLORS[number % len(COLORS)],
            symbol=SYMBOLS[(number + number // len(COLORS)) % len(SYMBOLS)],
            dash=DASHES[(number // len(COLORS)) % len(DASHES)],
            pattern=PATTERNS[number % len(PATTERNS)],
        )
        number += 1
    return found


def template(theme: Theme) -> dict[str, Any]:
    """A plotly template; the report swaps it when the reader's colour scheme changes."""
    ink, grid = ("#1F2328", "#E4E7EB") if theme == "light" else ("#E6EDF3", "#30363D")
    axis = {
        "gridcolor": grid,
        "linecolor": grid,
        "zerolinecolor": grid,
        "automargin": True,
        "title": {"standoff": 8},
        "ticks": "outside",
        "tickcolor": grid,
    }
    return {
        "layout": {
            "font": {"family": FONT, "size": 13, "color": ink},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {"align": "left", "font": {"family": FONT, "size": 12}},
            "legend": {
                **{"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0, "xanchor": "left"},
                "tracegroupgap": 2,
            },
            "margin": {"l": 8, "r": 12, "t": 12, "b": 8},
            "annotationdefaults": {"font": {"color": ink}},
            "hovermode": "closest",
        }
    }


@cache
def _laid_over_plotlys(theme: Theme) -> dict[str, Any]:
    """The template over plotly's own: laid over it once, because that takes plotly longer than a figure does."""
    figure = go.Figure()
    figure.update_layout(template=template(theme))
    merged: dict[str, Any] = figure.layout.template.to_plotly_json()
    return merged


def blank(height: int, *, theme: Theme = "light") -> go.Figure:
    return go.Figure(layout={"template": _laid_over_plotlys(theme), "height": height})


def dress(figure: go.Figure, theme: Theme) -> None:
    """Give a figure that was not made by `blank` the same template."""
    figure.layout.template = _laid_over_plotlys(theme)


def text(value: object) -> str:
    """Any string as plotly may show it: its pseudo-HTML must not come from a label."""
    return escape(str(value), quote=False)


def left_titles(figure: go.Figure) -> None:
    """Panel titles flush left, with room above the first."""
    figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    figure.update_layout(margin_t=32)
