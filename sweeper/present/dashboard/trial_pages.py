"""Pages below a run: one trial, one request, one server's log."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fastapi.responses import HTMLResponse

from sweeper.analysis.figures import Drawn
from sweeper.analysis.figures.request import token_course, waterfall
from sweeper.analysis.points import load_words
from sweeper.core.result import Measurement
from sweeper.core.sample import Sample
from sweeper.core.trial import Arm, Trial
from sweeper.engine.argv import paste_line
from sweeper.errors import StoreError
from sweeper.present.dashboard import logs
from sweeper.present.dashboard.filters import Filter
from sweeper.present.dashboard.reading import line_of, why
from sweeper.present.dashboard.render import page
from sweeper.present.dashboard.room import NotHere, Room, Sight
from sweeper.present.dashboard.run_pages import Pages
from sweeper.present.launch_command import paste_command, wrapped
from sweeper.present.numbers import fixed, milliseconds, percent, rate
from sweeper.store import layout

REQUESTS_A_PAGE = 50
REQUEST_SORTS = {
    "order": "order of sending",
    "slowest": "slowest first",
    "ttft": "latest first token first",
    "errors": "failed first",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which requests of a trial are looked at."""

    start: int | None
    repeat: int | None
    category: str
    sort: str
    page: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine:
    index: int
    category: str
    tokens: str
    ttft: str
    e2e: str
    tpot: str
    accept: str
    ending: str
    failed: bool


def trial(room: Room, sight: Sight, trial_id: str, chosen: Chosen) -> HTMLResponse:
    """What became of one trial, its measurements, and the requests of one of them."""
    found, arm = sight.trial(trial_id)
    measurements, problems = room.measurements(sight, trial_id)
    reading = room.reading(sight.key, sight.path)
    outcome = (
        next((one for one in reading.comparison.outcomes if one.trial.trial_id == trial_id), None) if reading else None
    )
    one = _choose(measurements, chosen)
    samples, problem = _samples(room, sight, one)
    problems += [problem] if problem else []
    taken = _sorted([sample for sample in samples if chosen.category in ("", sample.category)], chosen.sort)
    pages = Pages.of(len(taken), REQUESTS_A_PAGE, chosen.page)
    return page(
        "trial.html.j2",
        sight=sight,
        key=sight.key,
        trial=found,
        arm=arm,
        load=load_words(found.load),
        line=line_of(outcome, Filter()) if outcome else None,
        outcome=outcome,
        why=why(outcome) if outcome else "",
        measurements=measurements,
        one=one,
        requests=[request_line(sample) for sample in taken[pages.slice(REQUESTS_A_PAGE)]],
        found=len(taken),
        pages=pages,
        chosen=chosen,
        categories=sorted({sample.category for sample in samples}),
        sorts=REQUEST_SORTS,
        problems=problems,
        command=_command(sight, arm, reading.run if reading else None),
        groups=[group.group_id for group in sight.plan.launch_groups if trial_id in group.trial_ids],
        rate=rate,
        fixed=fixed,
        ms=milliseconds,
        percent=percent,
        refresh_s=0,
    )


def _command(sight: Sight, arm: Arm, run: object) -> str:
    from sweeper.core.run import RunData

    return wrapped(paste_command(run, arm)) if isinstance(run, RunData) else wrapped(paste_line(arm.server))


def _choose(measurements: Sequence[Measurement], chosen: Chosen) -> Measurement | None:
    """The one asked for, or the last."""
    asked = [one for one in measurements if (one.start, one.repeat) == (chosen.start, chosen.repeat)]
    return asked[0] if asked else measurements[-1] if measurements else None


def _samples(room: Room, sight: Sight, one: Measurement | None) -> tuple[Sequence[Sample], str]:
    if one is None:
        return (), ""
    try:
        return room.samples(sight, one), ""
    except (StoreError, NotHere) as error:
        return (), f"its requests: {error}"


def _sorted(samples: list[Sample], order: str) -> list[Sample]:
    if order == "slowest":
        return sorted(samples, key=lambda one: one.send_ns - one.end_ns)
    if order == "ttft":
        return sorted(samples, key=lambda one: one.send_ns - (one.chunk_ns[0] if one.chunk_ns else one.send_ns))
    if order == "errors":
        return sorted(samples, key=lambda one: one.ok)
    return samples


def request_line(sample: Sample) -> RequestLine:
    first_ns = sample.chunk_ns[0] if sample.chunk_ns else None
    decoded = (sample.output_tokens or 0) - (sample.chunk_tokens[0] if sample.chunk_tokens else 0)
    tpot = (
        (sample.end_ns - first_ns) / 1e6 / decoded
        if first_ns is not None and decoded > 0 and sample.chunk_tokens
        else None
    )
    spec = sample.spec
    accept = (
        1 + spec.correct_drafts / spec.verify_steps
        if spec and spec.verify_steps and spec.correct_drafts is not None
        else None
    )
    return RequestLine(
        index=sample.index,
        category=sample.category,
        tokens=rate_or_dash(sample.output_tokens),
        ttft=milliseconds(None if first_ns is None else (first_ns - sample.send_ns) / 1e6),
        e2e=milliseconds((sample.end_ns - sample.send_ns) / 1e6),
        tpot=milliseconds(tpot),
        accept=fixed(accept),
        ending=f"{sample.error.kind}: {sample.error.message}" if sample.error else sample.finish_reason or "unknown",
        failed=not sample.ok,
    )


def rate_or_dash(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"


def one_request(room: Room, sight: Sight, place: "Place") -> HTMLResponse:
    """The token time line of one request."""
    found, arm, one, sample = _find(room, sight, place)
    samples = room.samples(sight, one)
    begin = min(entry.send_ns for entry in samples)
    sent = datetime.fromisoformat(one.started_at) + timedelta(microseconds=(sample.send_ns - begin) / 1000)
    indices = sorted(entry.index for entry in samples)
    at = indices.index(sample.index)
    return page(
        "request.html.j2",
        sight=sight,
        key=sight.key,
        trial=found,
        arm=arm,
        load=load_words(found.load),
        one=one,
        sample=sample,
        line=request_line(sample),
        sent=sent,
        before=indices[at - 1] if at else None,
        after=indices[at + 1] if at + 1 < len(indices) else None,
        refresh_s=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A measurement of a trial, and one request of it (None: all)."""

    trial_id: str
    start: int
    repeat: int
    index: int | None = None


def request_figure(room: Room, sight: Sight, place: Place) -> Drawn | None:
    """The token course of one request, or the waterfall of all."""
    if place.index is None:
        return waterfall(room.samples(sight, _measurement(room, sight, place)))
    return token_course(_find(room, sight, place)[3])


def _find(room: Room, sight: Sight, place: Place) -> tuple[Trial, Arm, Measurement, Sample]:
    found, arm = sight.trial(place.trial_id)
    one = _measurement(room, sight, place)
    sample = next((entry for entry in room.samples(sight, one) if entry.index == place.index), None)
    if sample is None:
        raise NotHere("This measurement has no such request.")
    return found, arm, one, sample


def _measurement(room: Room, sight: Sight, place: Place) -> Measurement:
    sight.trial(place.trial_id)
    measurements, _ = room.measurements(sight, place.trial_id)
    one = next((entry for entry in measurements if (entry.start, entry.repeat) == (place.start, place.repeat)), None)
    if one is None:
        raise NotHere("This trial has no such measurement (yet).")
    return one


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """What of a log: from a byte on, from a moment (ISO 8601) on, or the lines that hold a word; nothing: its end."""

    begin: int | None
    find: str
    moment: str


def log(room: Room, sight: Sight, group_id: str, start: int, chosen: LogPlace) -> HTMLResponse:
    """A window of one server's log."""
    group = next((entry for entry in sight.plan.launch_groups if entry.group_id == group_id), None)
    if group is None:
        raise NotHere("This run has no such server.")
    arm = sight.plan.arm(group.arm_id)
    window, problem = None, ""
    try:
        file = room.inside(layout.start_dir(sight.path, group_id, start) / layout.SERVER_LOG)
        begin = chosen.begin
        if chosen.moment and begin is None:
            begin = logs.offset_at(file, datetime.fromisoformat(chosen.moment))
        window = logs.search(file, chosen.find) if chosen.find else logs.window(file, begin)
    except NotHere:
        problem = "This server has no log here: it was not started yet, or its log was not copied."
    except (OSError, ValueError) as error:
        problem = f"The log cannot be read: {error}"
    return page(
        "log.html.j2",
        sight=sight,
        key=sight.key,
        arm=arm,
        group_id=group_id,
        start=start,
        window=window,
        problem=problem,
        find=chosen.find,
        before=max(0, window.begin - logs.WINDOW_BYTES) if window and window.begin and not chosen.find else None,
        after=window.end if window and window.end < window.size_bytes and not chosen.find else None,
        refresh_s=0,
    )
