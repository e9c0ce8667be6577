"""The nightly job's history: every watched quantity night by night."""

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from fastapi.responses import HTMLResponse

from sweeper.analysis.figures import Drawn
from sweeper.analysis.figures.nights import draw_quantity
from sweeper.analysis.nightly.policy import WORDS, Quantity
from sweeper.analysis.nightly.record import NightRecord, Words
from sweeper.errors import StoreError
from sweeper.present.dashboard.kept import signature
from sweeper.present.dashboard.render import page
from sweeper.present.dashboard.room import PATIENCE_S, NotHere, Room
from sweeper.present.dashboard.shelf import NIGHTS
from sweeper.present.history_page import night_row
from sweeper.store.codec import from_json

NIGHT, WORDS_FILE, VERDICT = "night.json", "words.json", "verdict.json"
ROWS = 400
"""More than a year; older nights stay in the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A history as far as it can be read."""

    nights: tuple[NightRecord, ...]
    words: Words
    sentence: str
    """Of the last night; empty before the first has ended."""
    problems: tuple[str, ...]

    def figure(self, quantity: Quantity) -> Drawn | None:
        watched = any(name.quantity == quantity for night in self.nights for name, _ in night.findings)
        return draw_quantity(quantity, self.nights) if watched else None


def nightly(room: Room, name: str) -> HTMLResponse:
    found = room.shelf.histories()
    if name and name not in found:
        raise NotHere("There is no such history.")
    chosen = name or next(iter(found), "")
    past = _past(room, chosen, found[chosen]) if chosen else None
    runs = room.shelf.nights(found[chosen]) if chosen else {}
    ended = {night.night_id for night in past.nights} if past else set()
    quantities = {each.quantity for night in past.nights for each, _ in night.findings} if past else set()
    return page(
        "nightly.html.j2",
        names=list(found),
        chosen=chosen,
        url=quote(chosen, safe=""),
        past=past,
        rows=[night_row(night, past.nights) for night in reversed(past.nights[-ROWS:])] if past else [],
        runs=runs,
        unended=[(night, kept) for night, kept in runs.items() if past and night not in ended],
        quantities=[(key, words[:1].upper() + words[1:]) for key, words in WORDS.items() if key in quantities],
        results=str(room.shelf.results),
        refresh_s=1 if chosen and past is None else 0,
    )


def nightly_figure(room: Room, name: str, quantity: str) -> Drawn | None:
    found = room.shelf.histories()
    known = next((known for known in WORDS if known == quantity), None)
    if name not in found or known is None:
        raise NotHere("There is no such history.")
    past = _past(room, name, found[name], patience_s=None)
    return past.figure(known) if past else None


def _past(room: Room, name: str, folder: Path, patience_s: float | None = PATIENCE_S) -> Past | None:
    """None: still being read."""
    signed = signature(folder, NIGHTS, WORDS_FILE, VERDICT)
    return room.pasts.get(name, signed, lambda: read_past(folder), patience_s=patience_s)


def read_past(folder: Path) -> Past:
    """Oldest night first; what cannot be read is named, and leaves a gap."""
    nights, problems = [], []
    for file in sorted((folder / NIGHTS).glob(f"*/{NIGHT}")):
        try:
            nights.append(from_json(NightRecord, file.read_bytes(), origin=f"night {file.parent.name}"))
        except (StoreError, OSError) as error:
            problems.append(str(error))
    words = Words()
    try:
        if (folder / WORDS_FILE).exists():
            words = from_json(Words, (folder / WORDS_FILE).read_bytes(), origin=WORDS_FILE)
    except (StoreError, OSError) as error:
        problems.append(str(error))
    return Past(nights=tuple(nights), words=words, sentence=_sentence(folder), problems=tuple(problems))


def _sentence(folder: Path) -> str:
    try:
        return str(json.loads((folder / VERDICT).read_bytes())["sentence"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
