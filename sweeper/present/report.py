"""One self-contained HTML file: everything a colleague needs who was not there."""

import base64
import hashlib
import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from sweeper import __version__
from sweeper.analysis.compare import compare
from sweeper.analysis.figures import Drawn, draw_all, template
from sweeper.analysis.golden import matching_curves
from sweeper.core.run import RunData
from sweeper.errors import StoreError
from sweeper.present.assets import asset, golden
from sweeper.present.document import document
from sweeper.present.methods import methods
from sweeper.store.reader import read_run

REPORT_NAME = "report.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """A figure as the page holds it."""

    name: str
    title: str
    caption: str
    height: int
    data: Markup


def write_report(run_dir: Path, out: Path | None = None) -> Path:
    """Write `report.html` into the run folder (or `out`), whole or not at all; returns its path. Raises StoreError."""
    target = out or run_dir / REPORT_NAME
    page = render_html(read_run(run_dir))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(page, encoding="utf-8")
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        remedy = "free the disk, or name another file with `sweeper report --out`"
        raise StoreError(f"{target}: cannot be written: {error.strerror}; {remedy}") from error
    return target


def render_html(run: RunData) -> str:
    """The report as one page; plotly.js is inlined once, and only when there is a figure."""
    comparison = compare(run)
    figures = [_embedded(drawn) for drawn in draw_all(run, comparison, golden=matching_curves(run, golden()).curves)]
    scripts = {"js": asset("fit.js") + asset("report.js"), "plotly": _plotly_js() if figures else ""}
    environment = Environment(
        loader=FunctionLoader(asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["whole"] = whole
    return environment.get_template("report.html.j2").render(
        doc=document(run, comparison),
        figures=figures,
        methods=methods(),
        version=__version__,
        css=Markup(asset("report.css")),  # noqa: S704  our own file
        templates=_json({"light": template("light"), "dark": template("dark")}),
        script_hashes=Markup(" ".join(_csp_hash(text) for text in scripts.values() if text)),  # noqa: S704  of our own files
        **{name: Markup(text) for name, text in scripts.items()},  # noqa: S704  our own files
    )


def whole(text: str) -> Markup:
    """Triples and intervals are not broken over two lines."""
    kept = re.sub(r"\d+-\d+-\d+|\d\.\d+× \([^)]*\)", r'<span class="whole">\g<0></span>', str(escape(text)))
    return Markup(kept)  # noqa: S704  escaped above; only our own tags are added


def _embedded(drawn: Drawn) -> Embedded:
    figure = drawn.figure.to_plotly_json()
    figure["layout"].pop("template", None)
    return Embedded(
        name=drawn.name,
        title=drawn.title,
        caption=drawn.caption,
        height=int(drawn.figure.layout.height),
        data=_json(figure),
    )


def _json(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in."""
    from plotly.utils import PlotlyJSONEncoder

    text = json.dumps(value, cls=PlotlyJSONEncoder, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


def _csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@lru_cache(maxsize=1)
def _plotly_js() -> str:
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return text
