"""Figures about speed: speedup, crossover, Pareto, categories, latencies."""

from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sweeper.analysis.figures.common import MOST_LINES, Drawn, Material, hover, load_title
from sweeper.analysis.figures.style import BAND, BASELINE, SOFT, blank, dress, left_titles, text
from sweeper.analysis.outcome import Outcome
from sweeper.analysis.points import Latency
from sweeper.analysis.statistics import Estimate

ROW_PX, TITLE_PX = 30, 44
"""Heights of a row, and of a panel title with the label of the row below it."""


def speedup(material: Material) -> Drawn | None:
    """One row a configuration, one panel a load point."""
    arms = [arm.arm_id for arm in material.arms() if not arm.is_baseline]
    panels = {
        load: sorted(
            (entry for entry in material.at(load) if entry.estimate and entry.arm.arm_id in arms),
            key=lambda entry: entry.estimate.ratio if entry.estimate else 0,
        )
        for load in material.loads
    }
    panels = {load: rows for load, rows in panels.items() if rows}
    if not panels:
        return None
    heights = [len(rows) + 0.6 for rows in panels.values()]
    height = int(sum(heights) * ROW_PX + TITLE_PX * len(panels) + 50)
    figure = make_subplots(
        rows=len(panels),
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=TITLE_PX / height,
        subplot_titles=[text(load_title(load)) for load in panels],
    )
    for row, (load, outcomes) in enumerate(panels.items(), start=1):
        figure.add_trace(_forest(material, outcomes), row=row, col=1)
        floor = material.comparison.floors.get(load)
        if floor:
            figure.add_vrect(x0=1 / floor, x1=floor, fillcolor=BAND, line_width=0, layer="below", row=row, col=1)
        figure.add_vline(x=1, line={"color": BASELINE, "width": 3}, layer="below", row=row, col=1)
    left_titles(figure)
    dress(figure, material.theme)
    figure.update_layout(height=height, showlegend=False)
    figure.update_xaxes(title_text="speed ÷ baseline speed (×)", row=len(panels), col=1)
    floors = [material.comparison.floors.get(load, 1.0) for load in panels]
    figure.update_xaxes(range=_ratio_range([entry for rows in panels.values() for entry in rows], max(floors)))
    return Drawn(
        name="speedup",
        title="Speedup of each configuration",
        caption="Output tok/s over the baseline's at the same load. Bars are the intervals behind the verdicts; "
        "the grey line is the baseline, the grey band what this run cannot tell from it.",
        figure=figure,
    )


def _forest(material: Material, outcomes: list[Outcome]) -> go.Scatter:
    estimates = [entry.estimate for entry in outcomes if entry.estimate]
    looks = [material.looks[entry.arm.arm_id] for entry in outcomes]
    return go.Scatter(
        x=[estimate.ratio for estimate in estimates],
        y=[text(entry.arm.label) for entry in outcomes],
        error_x=_errors(estimates, [look.color for look in looks]),
        mode="markers+text",
        marker={"color": [look.color for look in looks], "symbol": [look.symbol for look in looks], "size": 11},
        text=[f"{estimate.ratio:.2f}×" for estimate in estimates],
        textposition="top center",
        hovertext=[hover(entry) for entry in outcomes],
        hoverinfo="text",
        cliponaxis=False,
    )


def crossover(material: Material) -> Drawn | None:
    """Speedup over concurrency: where speculation stops paying."""
    closed = [entry for entry in material.measured if entry.trial.load.arrival == "closed"]
    if len({entry.load for entry in closed}) < 2:
        return None
    figure = blank(420, theme=material.theme)
    loads = sorted({entry.trial.load.concurrency for entry in closed})
    floors = [material.comparison.floors.get(str(load)) for load in loads]
    if all(floors):
        edges = [floor or 1.0 for floor in floors]
        figure.add_trace(
            go.Scatter(
                x=[*loads, *reversed(loads)],
                y=[*edges, *(1 / edge for edge in reversed(edges))],
                fill="toself",
                fillcolor=BAND,
                line={"width": 0},
                mode="lines",
                hoverinfo="skip",
                name="not distinguishable",
            )
        )
    figure.add_trace(_baseline_line(loads))
    drawn = 0
    for arm in material.arms(MOST_LINES):
        points = sorted(
            (entry for entry in closed if entry.arm.arm_id == arm.arm_id and entry.estimate),
            key=lambda entry: entry.trial.load.concurrency,
        )
        if points:
            drawn += 1
            figure.add_trace(_speedup_line(material, points))
    if not drawn:
        return None
    figure.update_xaxes(
        title_text="requests at once (concurrency)", type="log", tickvals=loads, ticktext=[str(n) for n in loads]
    )
    figure.update_yaxes(title_text="speed ÷ baseline speed (×)")
    return Drawn(
        name="crossover",
        title="Where speculation pays",
        caption="Above the grey line a configuration is faster than the baseline. A line that sinks through it shows "
        "the concurrency from which speculation should be off.",
        figure=figure,
    )


def _baseline_line(loads: list[int]) -> go.Scatter:
    return go.Scatter(
        x=loads,
        y=[1.0] * len(loads),
        mode="lines",
        line={"color": BASELINE, "width": 3},
        name="baseline",
        hoverinfo="name",
    )


def _speedup_line(material: Material, points: list[Outcome]) -> go.Scatter:
    look = material.looks[points[0].arm.arm_id]
    estimates = [entry.estimate for entry in points if entry.estimate]
    return go.Scatter(
        x=[entry.trial.load.concurrency for entry in points],
        y=[estimate.ratio for estimate in estimates],
        error_y=_errors(estimates, [look.color]),
        mode="lines+markers",
        marker=look.marker,
        line=look.line,
        name=text(points[0].arm.label),
        hovertext=[hover(entry) for entry in points],
        hoverinfo="text",
    )


def pareto(material: Material) -> Drawn | None:
    """Speed for one user against speed of the whole server."""
    points = [entry for entry in material.measured if entry.numbers and entry.numbers.tok_per_s_per_user]
    if len(points) < 2:
        return None
    figure = blank(460, theme=material.theme)
    front = _front(points)
    figure.add_trace(
        go.Scatter(
            x=[_user(entry) for entry in front],
            y=[_total(entry) for entry in front],
            mode="lines",
            line={"color": SOFT, "width": 9},
            name="best trade-off",
            hoverinfo="skip",
        )
    )
    for arm in material.arms(MOST_LINES):
        line = sorted(
            (entry for entry in points if entry.arm.arm_id == arm.arm_id),
            key=lambda entry: entry.trial.load.concurrency,
        )
        if line:
            look = material.looks[arm.arm_id]
            figure.add_trace(
                go.Scatter(
                    x=[_user(entry) for entry in line],
                    y=[_total(entry) for entry in line],
                    mode="lines+markers+text",
                    text=[text(entry.load) if entry in front or arm.is_baseline else "" for entry in line],
                    textposition="top right",
                    textfont={"size": 11},
                    marker=look.marker,
                    line={**look.line, "width": 4 if arm.is_baseline else 2},
                    name=text(arm.label),
                    hovertext=[hover(entry, [f"{_user(entry):,.1f} tok/s for each user"]) for entry in line],
                    hoverinfo="text",
                )
            )
    figure.update_xaxes(title_text="speed for one user (tok/s)", rangemode="tozero")
    figure.update_yaxes(title_text="speed of the server (output tok/s)", rangemode="tozero")
    return Drawn(
        name="pareto",
        title="One user's speed against the server's",
        caption="Each curve is one configuration, its points are the concurrencies; up and to the right "
        "is better. The broad grey line joins the points that nothing else beats in both.",
        figure=figure,
    )


def _user(entry: Outcome) -> float:
    assert entry.numbers and entry.numbers.tok_per_s_per_user
    return entry.numbers.tok_per_s_per_user


def _total(entry: Outcome) -> float:
    assert entry.numbers
    return entry.numbers.output_tok_per_s


def _front(points: list[Outcome]) -> list[Outcome]:
    found: list[Outcome] = []
    for entry in sorted(points, key=_user, reverse=True):
        if not found or _total(entry) > _total(found[-1]):
            found.append(entry)
    return found


def categories(material: Material) -> Drawn | None:
    """Decode speedup by category of prompt, at the lowest load that has them."""
    load = next((load for load in material.loads if any(entry.categories for entry in material.at(load))), None)
    if load is None:
        return None
    names = sorted({name for entry in material.at(load) for name in entry.categories})
    shown = {arm.arm_id for arm in material.arms()}
    outcomes = [entry for entry in material.at(load) if entry.categories and entry.arm.arm_id in shown][:6]
    figure = blank(90 + len(names) * (26 + 20 * len(outcomes)), theme=material.theme)
    for entry in reversed(outcomes):
        look = material.looks[entry.arm.arm_id]
        estimates = [entry.categories[name] for name in names if name in entry.categories]
        figure.add_trace(
            go.Bar(
                y=[text(name) for name in names if name in entry.categories],
                x=[estimate.ratio for estimate in estimates],
                error_x=_errors(estimates, [SOFT]),
                orientation="h",
                marker={
                    "color": look.color,
                    "pattern": {"shape": look.pattern, "fillmode": "overlay", "fgcolor": "#FFFFFF", "size": 6},
                },
                name=text(entry.arm.label),
                hovertext=[
                    hover(entry, [f"{text(name)}: {entry.categories[name].ratio:.2f}× while decoding"])
                    for name in names
                    if name in entry.categories
                ],
                hoverinfo="text",
            )
        )
    figure.add_vline(x=1, line={"color": BASELINE, "width": 3})
    figure.update_layout(barmode="group", legend_traceorder="reversed", bargap=0.25)
    figure.update_xaxes(title_text=f"decode speed ÷ baseline's at {load_title(load)} (×)", rangemode="tozero")
    return Drawn(
        name="categories",
        title="By kind of prompt",
        caption="Time per token while decoding, against the baseline's on the same prompts. Drafts guess some kinds "
        "of text far better than others.",
        figure=figure,
    )


LATENCY_ARMS = 6
PERCENTILES = (("p50", "circle"), ("p90", "line-ns-open"), ("p95", "diamond"), ("p99", "star"))


def latency(material: Material) -> Drawn | None:
    """Percentiles of TTFT and TPOT, one row a configuration and load."""
    shown = {arm.arm_id for arm in material.arms(LATENCY_ARMS)}
    outcomes = [
        entry for load in reversed(material.loads) for entry in reversed(material.at(load)) if entry.arm.arm_id in shown
    ]
    outcomes = [
        entry for entry in outcomes if entry.numbers and entry.numbers.ttft.p50_ms and entry.numbers.tpot.p50_ms
    ]
    if not outcomes:
        return None
    height = 200 + 2 * 22 * len(outcomes)
    titles = ["time to first token (TTFT)", "time per later token (TPOT)"]
    figure = make_subplots(rows=2, vertical_spacing=80 / height, subplot_titles=titles)
    for row, quantity in enumerate(("ttft", "tpot"), start=1):
        for entry in outcomes:
            figure.add_trace(
                _ladder(material, entry, getattr(entry.numbers, quantity), quantity.upper()), row=row, col=1
            )
        figure.update_xaxes(title_text=f"{quantity.upper()} (ms)", rangemode="tozero", row=row, col=1)
    left_titles(figure)
    figure.update_yaxes(range=[-0.6, len(outcomes) - 0.4])
    dress(figure, material.theme)
    figure.update_layout(height=height, showlegend=False)
    hidden = len(material.arms(len(material.looks))) - len(shown)
    return Drawn(
        name="latency",
        title="How long one user waits",
        caption="Circle: median; tick: p90; diamond: p95; star: p99, shown from 100 requests on. Left is better."
        + (f" The baseline and the {LATENCY_ARMS} fastest; the table has {hidden} more." if hidden else ""),
        figure=figure,
    )


def _ladder(material: Material, entry: Outcome, values: Latency, quantity: str) -> go.Scatter:
    look = material.looks[entry.arm.arm_id]
    points = [
        (name, symbol, value) for name, symbol in PERCENTILES if (value := getattr(values, f"{name}_ms")) is not None
    ]
    return go.Scatter(
        x=[value for _, _, value in points],
        y=[f"{text(entry.arm.label)} at {text(entry.load)}"] * len(points),
        mode="lines+markers",
        line={"color": look.color, "width": 3},
        marker={
            "color": look.color,
            "symbol": [symbol for _, symbol, _ in points],
            "size": 9,
            "line": {"width": 2, "color": look.color},
        },
        hovertext=hover(entry, [f"{quantity} {name}: {value:,.1f} ms" for name, _, value in points]),
        hoverinfo="text",
    )


def _errors(estimates: list[Estimate], colors: list[str]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [(estimate.high or estimate.ratio) - estimate.ratio for estimate in estimates],
        "arrayminus": [estimate.ratio - (estimate.low or estimate.ratio) for estimate in estimates],
        "color": colors[0] if len(set(colors)) == 1 else SOFT,
        "thickness": 2.5,
        "width": 5,
    }


def _ratio_range(outcomes: list[Outcome], floor: float) -> list[float]:
    ends = [1 / floor, floor]
    for entry in outcomes:
        if entry.estimate:
            ends += [entry.estimate.low or entry.estimate.ratio, entry.estimate.high or entry.estimate.ratio]
    space = 0.06 * (max(ends) - min(ends)) + 0.02
    return [max(0.0, min(ends) - space), max(ends) + space]
