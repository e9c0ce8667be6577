"""A hunt kept on disk, so that one that was cut goes on where it stood.

<out>/<begun>/hunt.json      the question and what each version gave so far; written whole after every measurement
<out>/<begun>/<nn>-<k>/      the runs: version nn, measured the k-th time
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from sweeper.errors import StoreError
from sweeper.store.codec import from_json, to_json
from sweeper.store.disk import Disk
from sweeper.store.layout import LOCK
from sweeper.store.lock import FolderLock

HUNT = "hunt.json"
RESUME_WITHIN = timedelta(hours=20)
"""As a night: readings of another day are no longer side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One version, measured once."""

    version: str
    values: tuple[float, ...] | None
    """Repeats of the quantity; None: it does not run."""
    why_not: str = ""
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntFile:
    question: Mapping[str, str]
    """Whatever makes another hunt of it: versions, trials, quantity, repeats, engine, revisions of the models."""
    begun_at: str
    probes: tuple[Probe, ...] = ()


class HuntFolder:
    """One hunt, held by this process until close()."""

    def __init__(self, path: Path, file: HuntFile, *, disk: Disk, now: Callable[[], datetime]) -> None:
        self.path = path
        self.probes = file.probes
        self._file = file
        self._disk = disk
        self._now = now
        disk.make_folder(path)
        self._lock = FolderLock(path)
        self._write()

    def kept(self, version: str, turn: int) -> Probe | None:
        """What this version gave when it was measured for the `turn`-th time, from 0."""
        of_version = [probe for probe in self.probes if probe.version == version]
        return of_version[turn] if turn < len(of_version) else None

    def keep(self, version: str, values: tuple[float, ...] | None, why_not: str = "") -> None:
        probe = Probe(version=version, values=values, why_not=why_not, at=self._now().isoformat(timespec="seconds"))
        self.probes = (*self.probes, probe)
        self._write()

    def close(self) -> None:
        self._lock.close()

    def _write(self) -> None:
        self._disk.write_whole(self.path / HUNT, to_json(replace(self._file, probes=self.probes)))


def open_hunt(
    out: Path,
    question: Mapping[str, str],
    *,
    fresh: bool,
    now: Callable[[], datetime],
    disk: Disk | None = None,
) -> HuntFolder:
    """The latest hunt of the same question if it is not too old; a new one otherwise. Raises StoreError: it is held."""
    begun = now()
    if not fresh:
        for path in sorted(out.glob(f"*/{HUNT}"), reverse=True):
            file = _read(path)
            if file is None or dict(file.question) != dict(question):
                continue
            if begun - datetime.fromisoformat(file.begun_at) < RESUME_WITHIN:
                return HuntFolder(path.parent, file, disk=disk or Disk(), now=now)
            break
    file = HuntFile(question=question, begun_at=begun.isoformat())
    return HuntFolder(out / _free_name(out, begun), file, disk=disk or Disk(), now=now)


def _read(path: Path) -> HuntFile | None:
    """None: of another version of Sweeper, or damaged; it is left alone."""
    try:
        file: HuntFile = from_json(HuntFile, path.read_bytes(), origin=str(path))
    except (OSError, StoreError):
        return None
    return file


def _free_name(out: Path, begun: datetime) -> str:
    name = f"{begun:%Y%m%d-%H%M%S}"
    taken = sum(1 for _ in out.glob(f"{name}*/{LOCK}"))
    return f"{name}-{taken}" if taken else name
