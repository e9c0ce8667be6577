"""The nightly job's history: every watched quantity night by night."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from fastapi.responses import HTMLResponse

from sweeper.analysis.figures import Drawn
from sweeper.analysis.figures.nights import draw_nights
from sweeper.analysis.nightly.policy import WORDS
from sweeper.analysis.nightly.record import NightRecord, Words
from sweeper.errors import StoreError
from sweeper.present.dashboard.kept import signature
from sweeper.present.dashboard.render import page
from sweeper.present.dashboard.room import PATIENCE_S, NotHere, Room
from sweeper.present.history_page import night_row
from sweeper.store.codec import from_json

NIGHTS, NIGHT, WORDS_FILE = "nights", "night.json", "words.json"
ROWS = 400
"""More than a year; older nights stay in the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A history as far as it can be read."""

    nights: tuple[NightRecord, ...]
    words: Words
    problems: tuple[str, ...]

    def figure(self, name: str) -> Drawn | None:
        return next((drawn for drawn in draw_nights(self.nights) if drawn.name == name), None)


def histories(room: Room) -> dict[str, Path]:
    """Name in an address → folder: those given, and those inside the results folder."""
    results = room.shelf.results
    inside = [results, *sorted(results.glob("*/")), *sorted(results.glob("*/*/"))] if results.is_dir() else []
    found = {_name(folder, results): folder for folder in inside if room.shelf.holds(folder / NIGHTS)}
    found |= {folder.name or str(folder): folder for folder in room.histories}
    return {name: folder for name, folder in found.items() if (folder / NIGHTS).is_dir()}


def nightly(room: Room, name: str) -> HTMLResponse:
    found = histories(room)
    if name and name not in found:
        raise NotHere("There is no such history.")
    chosen = name or next(iter(found), "")
    past = _past(room, chosen, found[chosen]) if chosen else None
    quantities = {each.quantity for night in past.nights for each, _ in night.findings} if past else set()
    return page(
        "nightly.html.j2",
        names=list(found),
        chosen=chosen,
        url=quote(chosen, safe=""),
        past=past,
        rows=[night_row(night, past.nights) for night in reversed(past.nights[-ROWS:])] if past else [],
        quantities=[(key, words[:1].upper() + words[1:]) for key, words in WORDS.items() if key in quantities],
        results=str(room.shelf.results),
        refresh_s=1 if chosen and past is None else 0,
    )


def nightly_figure(room: Room, name: str, quantity: str) -> Drawn | None:
    found = histories(room)
    if name not in found or quantity not in WORDS:
        raise NotHere("There is no such history.")
    past = _past(room, name, found[name], patience_s=None)
    return past.figure(quantity) if past else None


def _name(folder: Path, results: Path) -> str:
    return str(folder.relative_to(results)) if folder != results else results.resolve().name


def _past(room: Room, name: str, folder: Path, patience_s: float | None = PATIENCE_S) -> Past | None:
    """None: still being read."""
    signed = signature(folder, NIGHTS, WORDS_FILE, "verdict.json")
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
    return Past(nights=tuple(nights), words=words, problems=tuple(problems))
