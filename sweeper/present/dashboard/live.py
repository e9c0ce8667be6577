"""A run that is going on, as its panel shows it, and the stream that keeps the panel fresh."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from sweeper.engine.log import Pace, pace_of
from sweeper.present.dashboard import logs
from sweeper.present.dashboard.journal import ArmNow, Journal, RunNow
from sweeper.present.dashboard.render import duration, fragment
from sweeper.present.dashboard.room import Room, Sight
from sweeper.present.dashboard.shelf import RunKey
from sweeper.store import layout

TICK_S = 0.5
HEARTBEAT_TICKS = 30
MOST_WATCHERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerNow:
    """One server that is up or coming up."""

    arm: ArmNow
    log_url: str
    tail: tuple[str, ...]
    pace: Pace | None
    """What the engine itself said last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    now: RunNow
    servers: tuple[ServerNow, ...]
    percent: float
    elapsed: str
    eta: str
    sentence: str
    """For a screen reader: changes only when something was measured."""


def panel(room: Room, key: RunKey, path: Path, now: RunNow) -> Panel:
    moment = datetime.now(UTC)
    began = now.began or moment
    eta = duration(now.eta_s(moment))
    return Panel(
        now=now,
        servers=tuple(_server(room, key, path, arm) for arm in now.arms.values() if arm.busy and arm.group_id),
        percent=100 * now.measured / now.total if now.total else 0.0,
        elapsed=duration((moment - began).total_seconds()),
        eta=eta,
        sentence=f"{now.measured} of {now.total} measurements, about {eta} to go",
    )


def _server(room: Room, key: RunKey, path: Path, arm: ArmNow) -> ServerNow:
    file = layout.start_dir(path, arm.group_id, arm.start) / layout.SERVER_LOG
    tail = logs.tail(file) if room.shelf.holds(file) else ()
    return ServerNow(
        arm=arm,
        log_url=f"{key.url}/log/{arm.group_id}/{arm.start}",
        tail=tail,
        pace=_last_pace(tail),
    )


def _last_pace(lines: Iterable[str]) -> Pace | None:
    return next((pace for line in reversed(tuple(lines)) if (pace := pace_of(line))), None)


class Watchers:
    """How many streams are open; each costs a look at a few files twice a second."""

    def __init__(self) -> None:
        self.open = 0

    @property
    def full(self) -> bool:
        return self.open >= MOST_WATCHERS


async def stream(room: Room, sight: Sight, watchers: Watchers) -> AsyncIterator[bytes]:
    """Server-sent events: `panel` with HTML, `measured` when there is more to show below, `ended` as the last one."""
    watchers.open += 1
    try:
        async for event in _events(room, sight):
            yield event
    finally:
        watchers.open -= 1


async def _events(room: Room, sight: Sight) -> AsyncIterator[bytes]:
    journal, now = Journal(sight.path), RunNow(plan=sight.plan)
    shown, measured = b"", -1
    for tick in count():
        if room.closing.is_set():
            return
        html, running = await asyncio.to_thread(_look, room, sight, journal, now)
        if html != shown:
            shown = html
            yield _event("panel", html.decode())
        elif tick % HEARTBEAT_TICKS == 0:
            yield b": still here\n\n"
        if measured not in (-1, now.measured):
            yield _event("measured", now.measured)
        measured = now.measured
        if not running:
            yield _event("ended", "interrupted" if now.interrupted or not now.over else "finished")
            return
        await asyncio.sleep(TICK_S)


def _look(room: Room, sight: Sight, journal: Journal, now: RunNow) -> tuple[bytes, bool]:
    for event in journal.new_events():
        now.take(event)
    running = not now.over and room.locks.held(sight.path)
    return fragment("_panel.html.j2", panel=panel(room, sight.key, sight.path, now), key=sight.key), running


def _event(name: str, data: object) -> bytes:
    """JSON has no line breaks of its own, so one `data:` line holds it."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
