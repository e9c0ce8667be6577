"""The history of a nightly job as one self-contained page, in the report's clothes."""

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from sweeper import __version__
from sweeper.analysis.figures.nights import draw_nights
from sweeper.analysis.figures.style import template
from sweeper.analysis.nightly.record import NightRecord, Words
from sweeper.analysis.nightly.verdict import marks_of
from sweeper.present.assets import asset
from sweeper.present.report import _csp_hash, _embedded, _json, _plotly_js


@dataclass(frozen=True, slots=True, kw_only=True)
class NightRow:
    """One night in the table."""

    night_id: str
    standing: str
    """regressed, improved, fine, learning or `could not run`."""
    detail: str


def render_history(nights: Sequence[NightRecord], words: Words, *, title: str, headline: str) -> str:
    """`nights` oldest first; `headline`: the last verdict."""
    figures = [_embedded(drawn) for drawn in draw_nights(nights)]
    scripts = {"js": asset("fit.js") + asset("report.js"), "plotly": _plotly_js() if figures else ""}
    environment = Environment(
        loader=FunctionLoader(asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("history.html.j2").render(
        title=title,
        headline=headline,
        figures=figures,
        rows=[night_row(night, nights) for night in reversed(nights)],
        words=words,
        version=__version__,
        css=Markup(asset("report.css")),  # noqa: S704  our own file
        templates=_json({"light": template("light"), "dark": template("dark")}),
        script_hashes=Markup(" ".join(_csp_hash(text) for text in scripts.values() if text)),  # noqa: S704  of our own files
        **{name: Markup(text) for name, text in scripts.items()},  # noqa: S704  our own files
    )


def night_row(night: NightRecord, nights: Sequence[NightRecord]) -> NightRow:
    """What is worth a line about one night."""
    if night.could_not_run:
        return NightRow(night_id=night.night_id, standing="could not run", detail=night.could_not_run)
    failed = [trial for trial in night.trials if trial.state == "failed" and not trial.expected]
    worse = [name.text for name, finding in night.findings if finding.standing in ("regressed", "drifting")]
    better = [name.text for name, finding in night.findings if finding.standing == "improved"]
    before = [one for one in nights if not one.could_not_run and one.night_id < night.night_id]
    changed = [mark.text for mark in marks_of([*before[-1:], night])]
    parts = [*(f"{trial.arm} failed: {trial.reason}" for trial in failed), *worse[:3], *better[:3], *changed]
    return NightRow(night_id=night.night_id, standing=_standing(night, worse, better), detail="; ".join(parts))


def _standing(night: NightRecord, worse: Sequence[str], better: Sequence[str]) -> str:
    failed = any(trial.state == "failed" and not trial.expected for trial in night.trials)
    if worse or failed:
        return "regressed"
    if better:
        return "improved"
    learning = all(finding.standing == "learning" for _, finding in night.findings)
    return "learning" if learning else "fine"
