"""What is left for people and machines in the morning: verdict.json, summary.md, junit.xml, history.html."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Any

from sweeper.analysis.nightly.record import NightRecord
from sweeper.analysis.nightly.sentence import notes, sentence, told
from sweeper.analysis.nightly.verdict import Judged, Verdict
from sweeper.nightly.history import JUNIT, PAGE, SUMMARY, VERDICT, History
from sweeper.present.markdown import cell
from sweeper.store.codec import to_json, to_plain

_CONTROL = {code: " " for code in (*range(9), 11, 12, *range(14, 32))}
"""XML knows no such characters, not even escaped."""


def write_outputs(history: History, nights: Sequence[NightRecord], verdict: Verdict) -> None:
    """Into the night's folder and, as the latest, into the history's. The page last: it is the only large one."""
    write_verdict(history, verdict)
    write_page(history, nights, verdict)


def write_verdict(history: History, verdict: Verdict) -> None:
    """verdict.json, summary.md, junit.xml: of this night, and as the latest."""
    folder = history.folder(verdict.night_id)
    files = {
        VERDICT: to_json(verdict_document(verdict)),
        SUMMARY: summary(verdict).encode(),
        JUNIT: junit(verdict),
    }
    for name, data in files.items():
        history.write(folder / name, data)
        history.write(history.root / name, data)


def write_page(history: History, nights: Sequence[NightRecord], verdict: Verdict) -> None:
    """history.html over all nights."""
    from sweeper.present.history_page import render_history

    page = render_history(nights, history.words(), title=verdict.experiment, headline=sentence(verdict))
    history.write(history.root / PAGE, page.encode())


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """One JSON document: the sentence first, then what it rests on."""
    return {
        "state": verdict.state,
        "sentence": sentence(verdict),
        "night_id": verdict.night_id,
        "experiment": verdict.experiment,
        "could_not_run": verdict.could_not_run,
        "alarms": [_alarm(one) for one in verdict.alarms],
        "failures": list(verdict.failures),
        "absent": list(verdict.absent),
        "new_levels": list(verdict.new_levels),
        "doctor": list(verdict.doctor),
        "marks": [to_plain(mark) for mark in verdict.marks],
        "notes": list(notes(verdict)),
        "series": [_series(one) for one in verdict.judged],
    }


def summary(verdict: Verdict) -> str:
    """Markdown for a job summary or a pull request."""
    lines = [f"## {cell(verdict.experiment)}, night {verdict.night_id}", "", f"**{cell(sentence(verdict))}**"]
    blocks = {
        "Alarms": [told(one) for one in verdict.alarms],
        "Failures": list(verdict.failures),
        "Improved": [told(one) for one in verdict.judged if one.finding.standing == "improved"],
        "Notes": list(notes(verdict)),
    }
    for title, entries in blocks.items():
        if entries:
            lines += ["", f"### {title}", "", *(f"- {cell(entry)}" for entry in entries)]
    if verdict.judged:
        lines += ["", "| series | level | tonight | change | standing |", "|---|---:|---:|---:|---|"]
        lines += [_row(one) for one in verdict.judged]
    return "\n".join(lines) + "\n"


def junit(verdict: Verdict) -> bytes:
    """One test case a series and a failed trial; regressions are failures, what could not be told is skipped."""
    suite = ET.Element("testsuite", name=f"sweeper nightly {verdict.experiment}", timestamp=_iso(verdict.night_id))
    for one in verdict.judged:
        case = _case(suite, one.name.place, one.name.text)
        if one.alarms:
            _child(case, "failure", told(one))
        elif one.finding.standing == "learning":
            _child(case, "skipped", told(one))
        elif one.muted and one.finding.standing in ("regressed", "drifting"):
            _child(case, "skipped", f"muted until {one.muted.until}: {one.muted.note}")
    for text in verdict.failures:
        _child(_case(suite, text.partition(":")[0], "trial"), "failure", text)
    for text in verdict.absent:
        _child(_case(suite, "absent", text.partition(" is absent")[0]), "skipped", text)
    if verdict.could_not_run:
        _child(_case(suite, "night", "the night ran"), "error", verdict.could_not_run)
    counts = {"tests": "testcase", "failures": "testcase/failure", "errors": "testcase/error"}
    counts["skipped"] = "testcase/skipped"
    for name, path in counts.items():
        suite.set(name, str(len(suite.findall(path))))
    root = ET.Element("testsuites")
    root.append(suite)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _case(suite: ET.Element, place: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_clean(place), name=_clean(name))


def _child(case: ET.Element, kind: str, message: str) -> None:
    ET.SubElement(case, kind, message=_clean(message)).text = _clean(message)


def _clean(text: str) -> str:
    return text.translate(_CONTROL)


def _iso(night_id: str) -> str:
    date, _, time = night_id.partition("-")
    return f"{date[:4]}-{date[4:6]}-{date[6:8]}T{time[:2]}:{time[2:4]}:{time[4:6]}"


def _alarm(one: Judged) -> dict[str, Any]:
    finding = one.finding
    return {
        "series": one.name.text,
        "quantity": one.name.quantity,
        "arm": one.name.arm,
        "load": one.name.load,
        "trial_id": one.trial_id,
        "since": finding.since,
        "change": finding.change,
        "standing": finding.standing,
        "confirmed": finding.confirmed,
        "changed_with": [mark.text for mark in one.changed_with],
        "cause": one.cause.text if one.cause else None,
        "text": told(one),
    }


def _series(one: Judged) -> dict[str, Any]:
    finding = one.finding
    return {
        "series": one.name.text,
        "trial_id": one.trial_id,
        "standing": finding.standing,
        "muted": one.muted is not None,
        "value": finding.night.value,
        "level": finding.level,
        "spread": finding.spread,
        "nights": finding.nights,
        "change": finding.change,
        "deviations": finding.deviations,
        "z": finding.z,
        "since": finding.since,
    }


def _row(one: Judged) -> str:
    finding = one.finding
    level = "–" if finding.level is None else f"{finding.level:.4g}"
    change = "–" if finding.change is None else f"{finding.change:+.1%}"
    standing = f"{finding.standing} (muted)" if one.muted else finding.standing
    return f"| {cell(one.name.text)} | {level} | {finding.night.value:.4g} | {change} | {standing} |"
