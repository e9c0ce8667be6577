"""Figures about the run itself: what happened when, and how the GPUs did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sweeper.analysis.figures.common import Drawn, Material
from sweeper.analysis.figures.style import PHASES, blank, dress, text
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
    """From the journal: a phase lasts until the next one of the same start, or until its sitting's last line."""
    lines = [event for event in material.run.events if "at" in event]
    times = [datetime.fromisoformat(line["at"]) for line in lines]
    begin = next((at for line, at in zip(lines, times, strict=True) if line.get("kind") == "phase_changed"), None)
    if begin is None:
        return ()
    labels = {arm.arm_id: arm.label for arm in material.run.plan.arms}
    open_lines: dict[tuple[str, int], Mapping[str, Any]] = {}
    spans = []
    before = begin
    for line, at in zip(lines, times, strict=True):
        if line.get("kind") == "run_started":  # whatever was under way in the sitting before was cut with it
            spans += [_span(cut, before, begin, labels) for cut in open_lines.values()]
            open_lines.clear()
        elif line.get("kind") == "phase_changed":
            key = (line["group_id"], line["start"])
            if key in open_lines:
                spans.append(_span(open_lines.pop(key), at, begin, labels))
            if line["phase"] not in ENDS:
                open_lines[key] = line
        before = at
    spans += [_span(line, before, begin, labels) for line in open_lines.values()]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """GPU conditions of one trial on one server start: means over its repeats."""

    minute: float
    power_w: float
    clock_mhz: float | None
    words: str


def power(material: Material) -> Drawn | None:
    """Mean GPU power and clock of each trial on each start, in the order of time."""
    entries = [entry for entry in material.run.measurements if entry.conditions.power_w_mean is not None]
    if not entries:
        return None
    begin = min(datetime.fromisoformat(entry.started_at) for entry in entries)
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.08)
    for arm in material.run.plan.arms:
        readings = _readings([entry for entry in entries if entry.arm_id == arm.arm_id], begin, arm.label)
        if not readings:
            continue
        rows = ([reading.power_w for reading in readings], [reading.clock_mhz for reading in readings])
        for row, values in enumerate(rows, start=1):
            figure.add_trace(
                go.Scatter(
                    x=[reading.minute for reading in readings],
                    y=values,
                    mode="markers",
                    marker=material.looks[arm.arm_id].marker,
                    name=text(arm.label),
                    legendgroup=arm.arm_id,
                    showlegend=row == 1,
                    hovertext=[reading.words for reading in readings],
                    hoverinfo="text",
                ),
                row=row,
                col=1,
            )
    dress(figure, material.theme)
    figure.update_layout(height=420)
    figure.update_yaxes(title_text="power (W)", row=1, col=1)
    figure.update_yaxes(title_text="SM clock (MHz)", row=2, col=1)
    figure.update_xaxes(title_text="minutes since the first measurement", row=2, col=1)
    return Drawn(
        name="power",
        title="GPU power and clock",
        caption="Mean over the measured windows of a load on one server start. A clock that sinks during the run slows "
        "the later configurations.",
        figure=figure,
    )


def _readings(entries: Sequence[Measurement], begin: datetime, label: str) -> list[Reading]:
    groups: dict[tuple[str, int], list[Measurement]] = {}
    for entry in entries:
        groups.setdefault((entry.trial_id, entry.start), []).append(entry)
    found = []
    for (_, start), group in groups.items():
        minutes = [(datetime.fromisoformat(entry.started_at) - begin).total_seconds() / 60 for entry in group]
        watts = [entry.conditions.power_w_mean for entry in group if entry.conditions.power_w_mean is not None]
        clocks = [
            entry.conditions.sm_clock_mhz_mean for entry in group if entry.conditions.sm_clock_mhz_mean is not None
        ]
        throttles = sorted({reason for entry in group for reason in entry.conditions.throttle_reasons})
        power_w, clock = fmean(watts), fmean(clocks) if clocks else None
        words = [f"<b>{text(label)}</b>, start {start + 1}", f"{power_w:,.0f} W"]
        words += [f"{clock:,.0f} MHz"] if clock is not None else []
        words += [text(", ".join(throttles))] if throttles else []
        found.append(
            Reading(
                minute=round(fmean(minutes), 2), power_w=round(power_w, 1), clock_mhz=clock, words="<br>".join(words)
            )
        )
    return found
