"""Figures about single requests: when their tokens came."""

from collections.abc import Sequence
from itertools import accumulate

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sweeper.analysis.figures.common import Drawn
from sweeper.analysis.figures.style import BASELINE, COLORS, Theme, blank, dress, text
from sweeper.core.sample import Sample

MOST_REQUESTS = 256


def token_course(sample: Sample, *, theme: Theme = "light") -> Drawn | None:
    """Tokens over time, and how many came at once; None when no chunk arrived."""
    if not sample.chunk_ns:
        return None
    times_ms = [(at - sample.send_ns) / 1e6 for at in sample.chunk_ns]
    tokens = list(sample.chunk_tokens or [1] * len(times_ms))
    gaps_ms = [later - earlier for earlier, later in zip([0.0, *times_ms], times_ms, strict=False)]
    words = [
        f"chunk {number}: {count} token{'s' if count != 1 else ''}<br>{at:,.1f} ms after sending"
        + (f"<br>{gap:,.1f} ms after the chunk before" if number > 1 else "")
        for number, (count, at, gap) in enumerate(zip(tokens, times_ms, gaps_ms, strict=True), start=1)
    ]
    figure = make_subplots(rows=3, shared_xaxes=True, vertical_spacing=0.06, row_heights=[0.5, 0.25, 0.25])
    course = go.Scatter(
        x=[0.0, *times_ms],
        y=[0, *accumulate(tokens)],
        line={"shape": "hv", "color": COLORS[0], "width": 2},
        mode="lines",
        hovertext=["sent", *words],
        hoverinfo="text",
    )
    figure.add_trace(course, row=1, col=1)
    figure.add_trace(_stems(times_ms, tokens, words, COLORS[1]), row=2, col=1)
    figure.add_trace(_stems(times_ms[1:], gaps_ms[1:], words[1:], COLORS[2]), row=3, col=1)
    figure.add_vline(x=times_ms[0], line={"color": BASELINE, "dash": "dot"}, row=1, col=1)
    dress(figure, theme)
    figure.update_layout(height=560, showlegend=False)
    figure.update_yaxes(title_text="tokens", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title_text="tokens at once", rangemode="tozero", row=2, col=1)
    figure.update_yaxes(title_text="gap (ms)", rangemode="tozero", row=3, col=1)
    figure.update_xaxes(title_text="ms since the request was sent", row=3, col=1)
    counted = (
        "" if sample.chunk_tokens else " The server did not say how many tokens a chunk held: one is drawn for each."
    )
    return Drawn(
        name="tokens",
        title="When its tokens came",
        caption="The dotted line is the first token. With speculation several tokens come at once: as many as the "
        "verify steps between two chunks accepted." + counted,
        figure=figure,
    )


def _stems(x: Sequence[float], y: Sequence[float], words: Sequence[str], color: str) -> go.Scatter:
    """Thin bars: real ones vanish when hundreds share a panel."""
    return go.Scatter(
        x=list(x),
        y=list(y),
        mode="markers",
        marker={"color": color, "size": 5},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [0] * len(y),
            "arrayminus": list(y),
            "width": 0,
            "color": color,
            "thickness": 1,
        },
        hovertext=list(words),
        hoverinfo="text",
    )


def waterfall(samples: Sequence[Sample], *, theme: Theme = "light") -> Drawn | None:
    """One row a request, from sending over the first token to the last; None when there is no request."""
    if not samples:
        return None
    shown = samples[:MOST_REQUESTS]
    begin = min(sample.send_ns for sample in shown)
    figure = blank(max(240, 120 + 9 * len(shown)), theme=theme)
    for name, color, part in (
        ("to the first token", COLORS[4], 0),
        ("answering", COLORS[2], 1),
        ("failed", COLORS[1], 2),
    ):
        rows = [(sample, span) for sample in shown if (span := _part(sample, part)) is not None]
        if rows:
            figure.add_trace(
                go.Bar(
                    y=[sample.index for sample, _ in rows],
                    x=[(end - start) / 1e9 for _, (start, end) in rows],
                    base=[(start - begin) / 1e9 for _, (start, _) in rows],
                    orientation="h",
                    name=name,
                    marker={"color": color, "line": {"width": 0}},
                    hovertext=[
                        f"<b>request {s.index}</b> {text(s.category)}<br>{name}: {(e - b) / 1e6:,.0f} ms"
                        for s, (b, e) in rows
                    ],
                    hoverinfo="text",
                )
            )
    figure.update_layout(barmode="overlay", bargap=0.15)
    figure.update_xaxes(title_text="seconds since the first request", rangemode="tozero")
    figure.update_yaxes(title_text="request", autorange="reversed")
    cut = f" The first {len(shown)} of {len(samples)}." if len(shown) < len(samples) else ""
    return Drawn(
        name="waterfall",
        title="The requests of this measurement",
        caption="Each row is one request, in the order of sending: first waiting, then being answered." + cut,
        figure=figure,
    )


def _part(sample: Sample, part: int) -> tuple[int, int] | None:
    if not sample.ok:
        return (sample.send_ns, sample.end_ns) if part == 2 else None
    first = sample.chunk_ns[0] if sample.chunk_ns else sample.end_ns
    return ((sample.send_ns, first), (first, sample.end_ns), None)[part]
