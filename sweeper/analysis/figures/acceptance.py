"""Figures about the draft: what a step gives and costs, acceptance by position, the grid, the layer ids."""

import math
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sweeper.analysis.figures.common import MOST_LINES, Drawn, Material, hover, load_title
from sweeper.analysis.figures.style import BASELINE, SOFT, blank, dress, left_titles, text
from sweeper.analysis.outcome import Outcome

ISO_SPEEDUPS = (0.75, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)


def step_cost(material: Material) -> Drawn | None:
    """Delivered length against step time, both relative to the baseline, with lines of equal decode speedup."""
    shown = {arm.arm_id for arm in material.arms(MOST_LINES)}
    points = [entry for entry in material.measured if entry.decomposition and entry.arm.arm_id in shown]
    if not points:
        return None
    figure = blank(480, theme=material.theme)
    costs = [entry.decomposition.break_even_length for entry in points if entry.decomposition]
    gains = [entry.decomposition.delivered_length for entry in points if entry.decomposition]
    right, top = max(costs) * 1.12 + 0.1, max(*gains, 1.0) * 1.12 + 0.1
    for ratio in ISO_SPEEDUPS:
        if ratio <= max(gain / cost for gain, cost in zip(gains, costs, strict=True)) * 1.3:
            figure.add_trace(_iso(ratio, right, top))
    figure.add_trace(_break_even(right, top))
    figure.add_trace(
        go.Scatter(
            x=[1.0],
            y=[1.0],
            mode="markers+text",
            marker={"color": BASELINE, "size": 13, "symbol": "circle-open", "line": {"width": 3}},
            text=["baseline"],
            textposition="bottom right",
            hovertext=["baseline: one token a step"],
            hoverinfo="text",
            showlegend=False,
        )
    )
    for arm in material.run.plan.arms:
        mine = [entry for entry in points if entry.arm.arm_id == arm.arm_id]
        if mine:
            figure.add_trace(_cost_points(material, mine))
    figure.update_xaxes(
        title_text="verify step ÷ baseline step (×) = break-even length", range=[min(0.8, *costs), right]
    )
    figure.update_yaxes(title_text="tokens delivered by a verify step", range=[min(0.8, *gains), top])
    return Drawn(
        name="step_cost",
        title="What a verify step gives, and what it costs",
        caption="On the grey break-even line a configuration is as fast as the baseline while decoding; above it, it "
        "wins. A point moves up with a better draft and left with a cheaper engine. Numbers are the load.",
        figure=figure,
    )


def _iso(ratio: float, right: float, top: float) -> go.Scatter:
    end = min(right, top / ratio)
    return go.Scatter(
        x=[0.0, end],
        y=[0.0, end * ratio],
        mode="lines+text",
        line={"color": SOFT, "width": 1, "dash": "dot"},
        text=["", f"{ratio:g}×"],
        textposition="bottom left",
        textfont={"size": 11, "color": BASELINE},
        hoverinfo="skip",
        showlegend=False,
    )


def _break_even(right: float, top: float) -> go.Scatter:
    end = min(right, top)
    return go.Scatter(
        x=[0.0, end],
        y=[0.0, end],
        mode="lines",
        line={"color": BASELINE, "width": 3},
        name="break-even",
        hoverinfo="name",
    )


def _cost_points(material: Material, outcomes: list[Outcome]) -> go.Scatter:
    look = material.looks[outcomes[0].arm.arm_id]
    parts = [entry.decomposition for entry in outcomes if entry.decomposition]
    lengths = [entry.numbers.spec.accept_length if entry.numbers and entry.numbers.spec else None for entry in outcomes]
    return go.Scatter(
        x=[part.break_even_length for part in parts],
        y=[part.delivered_length for part in parts],
        mode="lines+markers+text",
        text=[text(entry.load) if entry in (outcomes[0], outcomes[-1]) else "" for entry in outcomes],
        textposition="top center",
        textfont={"size": 11},
        marker=look.marker,
        line={**look.line, "width": 1},
        name=text(outcomes[0].arm.label),
        hovertext=[
            hover(
                entry,
                [
                    f"step {part.step_time_ms:.2f} ms, baseline {part.baseline_step_time_ms:.2f} ms",
                    f"delivered {part.delivered_length:.2f}, break-even {part.break_even_length:.2f}",
                    f"accept length {length:.2f}" if length else "accept length not reported",
                ],
            )
            for entry, part, length in zip(outcomes, parts, lengths, strict=True)
        ],
        hoverinfo="text",
    )


def positions(material: Material) -> Drawn | None:
    """Joint and conditional acceptance by position in the draft, at the lowest load that has histograms."""
    shown = {arm.arm_id for arm in material.arms(MOST_LINES)}
    outcomes: list[Outcome] = []
    for load in material.loads:
        outcomes = [
            entry
            for entry in material.at(load)
            if entry.arm.arm_id in shown and entry.numbers and entry.numbers.spec and entry.numbers.spec.joint
        ]
        if outcomes:
            break
    if not outcomes:
        return None
    figure = make_subplots(
        rows=2,
        shared_xaxes=True,
        vertical_spacing=0.1,
        subplot_titles=[
            "joint: the first i drafts were all right",
            "conditional: draft i was right, given those before it",
        ],
    )
    left_titles(figure)
    longest = 1
    for entry in outcomes:
        spec = entry.numbers.spec if entry.numbers else None
        assert spec and spec.joint
        longest = max(longest, len(spec.joint) - 1)
        figure.add_trace(_position_line(material, entry, list(spec.joint[1:]), legend=True), row=1, col=1)
        figure.add_trace(_position_line(material, entry, list(spec.conditional or ()), legend=False), row=2, col=1)
    dress(figure, material.theme)
    figure.update_layout(height=560)
    figure.update_yaxes(title_text="share of verify steps", range=[0, 1.04], tickformat=".0%", row=1, col=1)
    figure.update_yaxes(title_text="share of those that got there", range=[0, 1.04], tickformat=".0%", row=2, col=1)
    figure.update_xaxes(tickmode="linear", dtick=1, range=[0.8, longest + 0.2])
    figure.update_xaxes(title_text="position in the draft", row=2, col=1)
    return Drawn(
        name="positions",
        title="Acceptance by position",
        caption=f"At {load_title(outcomes[0].load)}. A flat conditional curve means a longer chain keeps paying; a "
        "falling one shows where the draft loses the thread. The baseline drafts nothing, so it has no curve.",
        figure=figure,
    )


def _position_line(
    material: Material, entry: Outcome, shares: list[float | None] | list[float], *, legend: bool
) -> go.Scatter:
    look = material.looks[entry.arm.arm_id]
    return go.Scatter(
        x=list(range(1, len(shares) + 1)),
        y=shares,
        mode="lines+markers",
        marker=look.marker,
        line=look.line,
        name=text(entry.arm.label),
        legendgroup=entry.arm.arm_id,
        showlegend=legend,
        hovertext=[
            hover(entry, [f"position {i}: {'nobody got here' if share is None else f'{share:.1%}'}"])
            for i, share in enumerate(shares, start=1)
        ],
        hoverinfo="text",
    )


def heatmap(material: Material) -> Drawn | None:
    """Speedup over num_steps × draft tokens, one panel per load and topk; only for a real grid."""
    outcomes = [
        entry for entry in material.measured if entry.estimate and entry.numbers and entry.numbers.effective.num_steps
    ]
    topks = sorted({entry.numbers.effective.eagle_topk or 1 for entry in outcomes if entry.numbers})
    loads = [load for load in material.loads if any(entry.load == load for entry in outcomes)]
    if len({entry.numbers.effective.triple for entry in outcomes if entry.numbers}) < SMALLEST_GRID:
        return None
    figure = make_subplots(
        rows=len(loads),
        cols=len(topks),
        subplot_titles=[f"{text(load_title(load))}, topk {topk}" for load in loads for topk in topks],
        vertical_spacing=0.24 / len(loads),
        horizontal_spacing=0.12,
    )
    for row, load in enumerate(loads, start=1):
        for column, topk in enumerate(topks, start=1):
            cells = [entry for entry in outcomes if entry.load == load and _topk(entry) == topk]
            figure.add_trace(_heat(cells), row=row, col=column)
    height = 80 + 240 * len(loads)
    dress(figure, material.theme)
    figure.update_layout(height=height, coloraxis=_ratio_colors(outcomes, height))
    figure.update_xaxes(type="category")
    figure.update_xaxes(title_text="draft tokens", row=len(loads))
    figure.update_yaxes(type="category")
    figure.update_yaxes(title_text="num steps", col=1)
    figure.update_annotations(font={"size": 13})
    figure.update_layout(margin_t=32)
    return Drawn(
        name="heatmap",
        title="The grid",
        caption="Speedup in each cell; white is the baseline's speed (1×), blue is faster, brown slower. "
        "With topk 1 the engine always drafts steps + 1 tokens, so only a diagonal exists.",
        figure=figure,
    )


SMALLEST_GRID = 4
"""Fewer different triples are no grid."""
RATIO_TICKS = (0.25, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0)


def _ratio_colors(outcomes: list[Outcome], height: int) -> dict[str, Any]:
    """Log scale around 1, so that twice as slow looks as far off as twice as fast."""
    reach = max((abs(math.log(entry.estimate.ratio)) for entry in outcomes if entry.estimate), default=0) or 0.1
    ticks = [ratio for ratio in RATIO_TICKS if abs(math.log(ratio)) <= reach]
    return {
        "colorscale": [[0, "#B35806"], [0.5, "#F7F7F7"], [1, "#2166AC"]],
        "cmin": -reach,
        "cmax": reach,
        "colorbar": {
            "title": {"text": "× baseline"},
            "thickness": 12,
            "len": min(1.0, 300 / height),
            "tickvals": [math.log(ratio) for ratio in ticks],
            "ticktext": [f"{ratio:g}×" for ratio in ticks],
        },
    }


def _topk(entry: Outcome) -> int:
    assert entry.numbers
    return entry.numbers.effective.eagle_topk or 1


def _heat(cells: list[Outcome]) -> go.Heatmap:
    best: dict[tuple[int, int], Outcome] = {}
    for entry in cells:
        assert entry.numbers and entry.estimate
        key = (entry.numbers.effective.num_steps or 0, entry.numbers.effective.num_draft_tokens or 0)
        kept = best.get(key)
        if kept is None or (kept.estimate and entry.estimate.ratio > kept.estimate.ratio):
            best[key] = entry
    steps, drafts = sorted({key[0] for key in best}), sorted({key[1] for key in best})
    grid = [[best.get((step, draft)) for draft in drafts] for step in steps]
    return go.Heatmap(
        x=[str(draft) for draft in drafts],
        y=[str(step) for step in steps],
        z=[[math.log(entry.estimate.ratio) if entry and entry.estimate else None for entry in line] for line in grid],
        text=[[f"{entry.estimate.ratio:.2f}" if entry and entry.estimate else "" for entry in line] for line in grid],
        texttemplate="%{text}",
        hovertext=[[hover(entry) if entry else "" for entry in line] for line in grid],
        hoverinfo="text",
        coloraxis="coloraxis",
        xgap=2,
        ygap=2,
    )


def layers(material: Material) -> Drawn | None:
    """Accept length by aux layer ids, with the layers that were really captured."""
    load = next(iter(material.loads), None)
    outcomes = [
        entry
        for entry in (material.at(load) if load else ())
        if entry.arm.server.spec and entry.arm.server.spec.aux_layer_ids and entry.numbers and entry.numbers.spec
    ]
    if load is None or len({entry.arm.server.spec.aux_layer_ids for entry in outcomes if entry.arm.server.spec}) < 2:
        return None
    figure = blank(110 + 44 * len(outcomes), theme=material.theme)
    lengths = [entry.numbers.spec.accept_length if entry.numbers and entry.numbers.spec else None for entry in outcomes]
    looks = [material.looks[entry.arm.arm_id] for entry in outcomes]
    figure.add_trace(
        go.Bar(
            y=[_layer_label(entry) for entry in outcomes],
            x=lengths,
            orientation="h",
            marker={
                "color": [look.color for look in looks],
                "pattern": {
                    "shape": [look.pattern for look in looks],
                    "fillmode": "overlay",
                    "fgcolor": "#FFFFFF",
                    "size": 6,
                },
            },
            text=[f"{length:.2f}" if length else "" for length in lengths],
            textposition="outside",
            cliponaxis=False,
            hovertext=[
                hover(entry, [f"accept length {length:.2f}" if length else ""])
                for entry, length in zip(outcomes, lengths, strict=True)
            ],
            hoverinfo="text",
            showlegend=False,
        )
    )
    figure.add_vline(x=1, line={"color": BASELINE, "width": 3})
    longest = max((length for length in lengths if length), default=1.0)
    figure.update_xaxes(
        title_text=f"accept length at {load_title(load)} (tokens per verify step)", range=[0, 1.15 * longest]
    )
    figure.update_yaxes(autorange="reversed")
    return Drawn(
        name="layers",
        title="Which layers feed the draft",
        caption="Accept length by the ids in the draft's config, with the layers whose input the engine really "
        "captures for this target family and version. At the grey line, the baseline's one token a step, no draft is "
        "ever right.",
        figure=figure,
    )


def _layer_label(entry: Outcome) -> str:
    spec = entry.arm.server.spec
    assert spec and spec.aux_layer_ids
    captured = entry.arm.captured_layers
    into = "unknown" if captured is None else ", ".join(map(str, captured))
    return f"{text(spec.triple or spec.algorithm)}, ids {', '.join(map(str, spec.aux_layer_ids))}<br>captures {into}"
