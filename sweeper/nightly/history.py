"""The history folder: one folder a night, written whole, and what people told the job.

<history>/
  nights/<night id>/night.json verdict.json summary.md junit.xml   kept for ever
  nights/<night id>/runs/ again/                                   the runs: pruned (retention)
  open.json                                                        a night that has begun and not ended
  words.json                                                       accepted levels, muted series
  verdict.json summary.md junit.xml history.html                   of the last night
  .lock
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sweeper.analysis.nightly.record import Accepted, Muted, NightRecord, Words
from sweeper.errors import StoreError
from sweeper.store.codec import from_json, to_json
from sweeper.store.disk import Disk

NIGHTS = "nights"
NIGHT = "night.json"
VERDICT = "verdict.json"
SUMMARY = "summary.md"
JUNIT = "junit.xml"
PAGE = "history.html"
OPEN = "open.json"
WORDS = "words.json"
LOCK = ".lock"
RUNS, AGAIN = "runs", "again"
RESUME_WITHIN = timedelta(hours=20)
"""A night that was cut is gone on with until then; later it is another night."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenNight:
    night_id: str
    experiment: str
    begun_at: str


class History:
    """One folder, one experiment. Reading needs no lock; `locked` keeps a second writer out."""

    def __init__(self, root: Path, *, disk: Disk | None = None) -> None:
        self.root = root
        self._disk = disk or Disk()

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """False: another process holds it. The lock is the kernel's and ends with its holder."""
        self._disk.make_folder(self.root)
        file = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            ours = _take(file)
            if ours:
                os.ftruncate(file, 0)
                os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
            yield ours
        finally:
            os.close(file)

    def running(self) -> bool:
        """Whether somebody holds the lock now."""
        try:
            file = os.open(self.root / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def holder(self) -> str:
        """Process id of the last holder of the lock."""
        try:
            return (self.root / LOCK).read_text().strip() or "unknown"
        except OSError:
            return "unknown"

    def nights(self) -> tuple[NightRecord, ...]:
        """Oldest first. Raises StoreError for a night that cannot be read: a hole would shift the level."""
        files = sorted((self.root / NIGHTS).glob(f"*/{NIGHT}"))
        return tuple(from_json(NightRecord, _read(file), origin=str(file)) for file in files)

    def words(self) -> Words:
        file = self.root / WORDS
        words: Words = from_json(Words, _read(file), origin=str(file)) if file.exists() else Words()
        return words

    def add(self, word: Accepted | Muted) -> None:
        words = self.words()
        if isinstance(word, Accepted):
            words = Words(accepted=(*words.accepted, word), muted=words.muted)
        else:
            words = Words(accepted=words.accepted, muted=(*words.muted, word))
        self.write(self.root / WORDS, to_json(words))

    def unmute(self, pattern: str) -> int:
        """Takes mutes of this very pattern back; returns how many there were."""
        words = self.words()
        kept = tuple(mute for mute in words.muted if mute.pattern != pattern)
        self.write(self.root / WORDS, to_json(Words(accepted=words.accepted, muted=kept)))
        return len(words.muted) - len(kept)

    def begin(self, experiment: str, now: datetime) -> OpenNight:
        """The night that was cut, if it is of this experiment and not too old; a new one otherwise."""
        current = self.open_night()
        if current and current.experiment == experiment:
            age = now - datetime.fromisoformat(current.begun_at)
            if age < RESUME_WITHIN:
                return current
        night = OpenNight(night_id=f"{now:%Y%m%d-%H%M%S}", experiment=experiment, begun_at=now.isoformat())
        self._disk.make_folder(self.folder(night.night_id))
        self.write(self.root / OPEN, to_json(night))
        return night

    def open_night(self) -> OpenNight | None:
        file = self.root / OPEN
        if not file.exists():
            return None
        night: OpenNight = from_json(OpenNight, _read(file), origin=str(file))
        return night

    def finish(self, record: NightRecord) -> None:
        """night.json is the marker: afterwards the night belongs to the history."""
        self.write(self.folder(record.night_id) / NIGHT, to_json(record))
        (self.root / OPEN).unlink(missing_ok=True)

    def folder(self, night_id: str) -> Path:
        return self.root / NIGHTS / night_id

    def write(self, path: Path, data: bytes) -> None:
        self._disk.write_whole(path, data)


def _take(file: int) -> bool:
    """Tried for a second: `running` of another process may hold it for a moment."""
    for attempt in range(5):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt < 4:
                time.sleep(0.25)
            continue
        return True
    return False


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error.strerror}") from error
