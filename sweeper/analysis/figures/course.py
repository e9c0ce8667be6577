"""Figures about the run itself: what happened when, and how the GPUs did."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sweeper.analysis.figures.common import Drawn, Material
from sweeper.analysis.figures.style import PHASES, blank, template, text
from sweeper.core.result import Measurement

ENDS = ("done", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One phase of one server start."""

    slot: str
    label: str
    phase: str
    begin_min: float
    minutes: float
    detail: str


def timeline(material: Material) -> Drawn | None:
    """Server starts on their slots, phase by phase."""
    spans = phase_spans(material)
    if not spans:
        return None
    slots = list(dict.fromkeys(span.slot for span in spans))
    figure = blank(200 + 46 * len(slots), theme=material.theme)
    for phase, (color, pattern) in PHASES.items():
        mine = [span for span in spans if span.phase == phase]
        if mine:
            figure.add_trace(
                go.Bar(
                    y=[text(span.slot) for span in mine],
                    x=[span.minutes for span in mine],
                    base=[span.begin_min for span in mine],
                    orientation="h",
                    name=phase,
                    marker={
                        "color": color,
                        "pattern": {"shape": pattern, "fillmode": "overlay", "fgcolor": "#FFFFFF", "size": 5},
                        "line": {"width": 0},
                    },
                    text=[text(span.label.split(", start")[0]) for span in mine] if phase == "measuring" else None,
                    textposition="inside",
                    insidetextanchor="middle",
                    textangle=0,
                    hovertext=[_span_words(span) for span in mine],
                    hoverinfo="text",
                )
            )
    figure.update_layout(barmode="overlay", bargap=0.3, uniformtext={"minsize": 10, "mode": "hide"})
    figure.update_xaxes(title_text="minutes since the run began", rangemode="tozero")
    figure.update_yaxes(title_text="slot")
    return Drawn(
        name="timeline",
        title="The course of the run",
        caption="Each server start in its slot, from cleaning to stopping. Configurations run in mirrored order, so "
        "that slow drift of the machine cancels between them and the baseline.",
        figure=figure,
    )


def phase_spans(material: Material) -> tuple[Span, ...]:
    """From the journal: a phase lasts until the next one of the same start, or until the last line."""
    lines = [event for event in material.run.events if event.get("kind") == "phase_changed" and "at" in event]
    if not lines:
        return ()
    labels = {arm.arm_id: arm.label for arm in material.run.plan.arms}
    begin, last = (datetime.fromisoformat(lines[end]["at"]) for end in (0, -1))
    open_lines: dict[tuple[str, int], Mapping[str, Any]] = {}
    spans = []
    for line in lines:
        key = (line["group_id"], line["start"])
        if key in open_lines:
            spans.append(_span(open_lines.pop(key), datetime.fromisoformat(line["at"]), begin, labels))
        if line["phase"] not in ENDS:
            open_lines[key] = line
    spans += [_span(line, last, begin, labels) for line in open_lines.values()]
    return tuple(span for span in spans if span.minutes > 0)


def _span(line: Mapping[str, Any], end: datetime, begin: datetime, labels: Mapping[str, str]) -> Span:
    at = datetime.fromisoformat(line["at"])
    label = labels.get(line["arm_id"], line["arm_id"])
    return Span(
        slot=line.get("slot") or "slot",
        label=f"{label}, start {line['start'] + 1}",
        phase=line["phase"],
        begin_min=(at - begin).total_seconds() / 60,
        minutes=(end - at).total_seconds() / 60,
        detail=line.get("detail") or "",
    )


def _span_words(span: Span) -> str:
    words = f"<b>{text(span.label)}</b><br>{span.phase}: {span.minutes * 60:,.0f} s"
    return f"{words}<br>{text(span.detail)}" if span.detail else words


def power(material: Material) -> Drawn | None:
    """Mean GPU power and clock of each measured window, in the order of time."""
    entries = sorted(
        (entry for entry in material.run.measurements if entry.conditions.power_w_mean is not None),
        key=lambda entry: entry.started_at,
    )
    if not entries:
        return None
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.08)
    begin = datetime.fromisoformat(entries[0].started_at)
    for arm in material.run.plan.arms:
        mine = [entry for entry in entries if entry.arm_id == arm.arm_id]
        if not mine:
            continue
        minutes = [(datetime.fromisoformat(entry.started_at) - begin).total_seconds() / 60 for entry in mine]
        watts = [entry.conditions.power_w_mean for entry in mine]
        clocks = [entry.conditions.sm_clock_mhz_mean for entry in mine]
        for row, values in enumerate((watts, clocks), start=1):
            figure.add_trace(
                go.Scatter(
                    x=minutes,
                    y=values,
                    mode="markers",
                    marker=material.looks[arm.arm_id].marker,
                    name=text(arm.label),
                    legendgroup=arm.arm_id,
                    showlegend=row == 1,
                    hovertext=[_condition_words(arm.label, entry) for entry in mine],
                    hoverinfo="text",
                ),
                row=row,
                col=1,
            )
    figure.update_layout(template=template(material.theme), height=420)
    figure.update_yaxes(title_text="power (W)", row=1, col=1)
    figure.update_yaxes(title_text="SM clock (MHz)", row=2, col=1)
    figure.update_xaxes(title_text="minutes since the first measurement", row=2, col=1)
    return Drawn(
        name="power",
        title="GPU power and clock",
        caption="Mean over each measured window. A clock that sinks during the run slows the later configurations.",
        figure=figure,
    )


def _condition_words(label: str, entry: Measurement) -> str:
    conditions = entry.conditions
    lines = [f"<b>{text(label)}</b>, start {entry.start + 1}, repeat {entry.repeat + 1}"]
    if conditions.power_w_mean is not None:
        lines.append(f"{conditions.power_w_mean:,.0f} W")
    if conditions.sm_clock_mhz_mean is not None:
        lines.append(f"{conditions.sm_clock_mhz_mean:,.0f} MHz")
    if conditions.throttle_reasons:
        lines.append(text(", ".join(conditions.throttle_reasons)))
    return "<br>".join(lines)
