"""Pages and figures as bytes. Everything a run holds is text from strangers: templates escape it."""

import json
import re
from functools import cache
from importlib import resources
from typing import Any

from fastapi.responses import HTMLResponse, JSONResponse, Response
from jinja2 import Environment, FunctionLoader, StrictUndefined

from sweeper import __version__
from sweeper.analysis.figures import Drawn, template
from sweeper.present.glyphs import SPARKS
from sweeper.present.report import whole

ASSETS = {
    "dashboard.css": "text/css; charset=utf-8",
    "report.css": "text/css; charset=utf-8",
    "plotly.css": "text/css; charset=utf-8",
    "fit.js": "text/javascript; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
    "plotly.js": "text/javascript; charset=utf-8",
    "templates.json": "application/json",
}
"""What the pages load, all from here."""


def page(name: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(fragment(name, **values), status_code=status)


def fragment(name: str, **values: Any) -> bytes:
    """UTF-8; half a surrogate pair in a name becomes a question mark."""
    return _environment().get_template(name).render(version=__version__, **values).encode(errors="replace")


def figure(drawn: Drawn | None) -> Response:
    """204 when there is nothing to draw."""
    if drawn is None:
        return Response(status_code=204)
    from plotly.utils import PlotlyJSONEncoder

    plain = drawn.figure.to_plotly_json()
    plain["layout"].pop("template", None)
    body = {
        "title": drawn.title,
        "caption": drawn.caption,
        "height": int(drawn.figure.layout.height),
        "data": plain["data"],
        "layout": plain["layout"],
    }
    return JSONResponse(json.loads(json.dumps(body, cls=PlotlyJSONEncoder)))


@cache
def asset(name: str) -> bytes:
    """A file of ASSETS."""
    if name == "plotly.js":
        from plotly.offline import get_plotlyjs

        text: str = get_plotlyjs()
        return text.encode()
    if name == "templates.json":
        return json.dumps({"light": template("light"), "dark": template("dark"), "injected": _injected()}).encode()
    folder = "report" if name in ("report.css", "fit.js") else "dashboard"
    return (resources.files("sweeper") / "data" / folder / name).read_bytes()


def _injected() -> list[str]:
    """Ids of the style elements (of map tiles) that plotly.js would add by itself unless they are there already; the
    content security policy refuses them, and no figure of ours is a map."""
    return re.findall(r'document\.getElementById\("([0-9a-f]{64})"\)', asset("plotly.js").decode())


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["whole"] = whole
    environment.filters["duration"] = duration
    environment.filters["sparkline"] = sparkline
    return environment


def _template(name: str) -> str:
    return (resources.files("sweeper") / "data" / "dashboard" / name).read_text(encoding="utf-8")


def duration(seconds: float | None) -> str:
    """`12 s`, `4 min`, `2 h 05 min`; `unknown` for None."""
    if seconds is None:
        return "unknown"
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def sparkline(values: list[float]) -> str:
    """The last twenty as bars."""
    shown = values[-20:]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    return "".join(SPARKS[round((value - low) / (high - low) * 7) if high > low else 3] for value in shown)
