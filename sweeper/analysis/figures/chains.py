"""Accept length over the length of the chain: measured, estimated, published."""

import plotly.graph_objects as go

from sweeper.analysis.chains import ChainFamily, chain_families
from sweeper.analysis.compare import Comparison
from sweeper.analysis.figures.common import Drawn, Material, load_title
from sweeper.analysis.figures.style import BASELINE, SOFT, blank, text
from sweeper.analysis.golden import GoldenCurve
from sweeper.core.trial import SpecConfig


def chains(material: Material) -> Drawn | None:
    """One curve a draft and layer ids, at the lowest load; nothing when there is but one point to show."""
    families = _lowest_load(material.comparison)
    known = sum(len(family.lengths) for family in families)
    if not families or (known < 2 and not material.golden and len(families[0].estimates) < 2):
        return None
    figure = blank(440, theme=material.theme)
    longest = max(max(family.lengths) for family in families)
    for family in families:
        for trace in _family_traces(material, family):
            figure.add_trace(trace)
    for curve in material.golden:
        longest = max(longest, max(curve.lengths))
        figure.add_trace(_golden_trace(curve))
    figure.add_hline(y=1, line={"color": BASELINE, "width": 3})
    figure.update_xaxes(title_text="num_steps of the chain", tickmode="linear", dtick=1, range=[0.7, longest + 0.3])
    figure.update_yaxes(title_text="accept length (tokens per verify step)", rangemode="tozero")
    published = "; ".join(f"{curve.name}: {curve.source}" for curve in material.golden)
    return Drawn(
        name="chains",
        title="Accept length by length of the chain",
        caption=f"At {load_title(families[0].load)}, topk 1. Dotted: a lower estimate from the longest chain measured. "
        "Grey line: the baseline's one token a step." + (f" Published: {published}." if published else ""),
        figure=figure,
    )


def _lowest_load(comparison: Comparison) -> list[ChainFamily]:
    families = chain_families(comparison)
    return [family for family in families if family.load == families[0].load]


def _family_traces(material: Material, family: ChainFamily) -> list[go.Scatter]:
    look = material.looks[family.longest.arm.arm_id]
    spec = family.longest.arm.server.spec
    ids = f" ids={','.join(map(str, spec.aux_layer_ids))}" if spec and spec.aux_layer_ids else ""
    name = text(f"{_drafter(spec)}{ids}{_as(material, spec)}") if spec else ""
    estimates = family.estimates
    return [
        go.Scatter(
            x=[estimate.num_steps for estimate in estimates],
            y=[estimate.estimate for estimate in estimates],
            mode="lines",
            line={"color": look.color, "dash": "dot", "width": 2},
            name=f"{name}, estimated",
            hovertext=[f"{name}<br>{entry.num_steps} steps: at least {entry.estimate:.2f}" for entry in estimates],
            hoverinfo="text",
        ),
        go.Scatter(
            x=list(family.lengths),
            y=list(family.lengths.values()),
            mode="lines+markers",
            marker=look.marker,
            line={"color": look.color, "width": 2},
            name=f"{name}, measured",
            hovertext=[f"{name}<br>{steps} steps: {length:.2f}" for steps, length in family.lengths.items()],
            hoverinfo="text",
        ),
    ]


def _drafter(spec: SpecConfig) -> str:
    return (spec.draft_model_path or spec.algorithm).rstrip("/").rsplit("/", 1)[-1]


def _as(material: Material, spec: SpecConfig) -> str:
    """The algorithm, where the run uses this draft under more than one."""
    every = [arm.server.spec for arm in material.run.plan.arms if arm.server.spec]
    used = {one.algorithm for one in every if one.draft_model_path == spec.draft_model_path}
    return f" as {spec.algorithm}" if len(used) > 1 else ""


def _golden_trace(curve: GoldenCurve) -> go.Scatter:
    return go.Scatter(
        x=list(curve.lengths),
        y=list(curve.lengths.values()),
        mode="lines+markers",
        marker={"color": SOFT, "symbol": "diamond-open", "size": 9},
        line={"color": SOFT, "dash": "dash", "width": 2},
        name=f"published: {text(curve.name)}",
        hovertext=[
            f"published {text(curve.name)}<br>{steps} steps: {length:.2f}" for steps, length in curve.lengths.items()
        ],
        hoverinfo="text",
    )
