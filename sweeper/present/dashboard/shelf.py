"""Which runs a results folder holds, and the only door to its files: nothing outside the folder is ever opened."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sweeper.store import layout
from sweeper.store.reader import find_runs

DEEPEST = 2


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RunKey:
    """A run as an address names it."""

    experiment: str
    run_id: str

    @property
    def url(self) -> str:
        return f"/run/{quote(self.experiment, safe='')}/{quote(self.run_id, safe='')}"

    @property
    def text(self) -> str:
        """As `/compare` takes it."""
        return f"{self.experiment}/{self.run_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A folder that looks like a run and cannot be shown."""

    name: str
    why: str


class Shelf:
    """Runs are looked up among those found on disk; an address never becomes a path."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self._root = results.resolve()

    def runs(self) -> dict[RunKey, Path]:
        """Newest first. Folders that lead outside the results folder are left out."""
        found = reversed(find_runs(self.results)) if self.results.is_dir() else ()
        return {key: path for path in found if (key := self._key(path)) is not None and self.holds(path)}

    def find(self, experiment: str, run_id: str) -> tuple[RunKey, Path] | None:
        """`latest` as the run id means the newest of the experiment."""
        runs = self.runs()
        if run_id == "latest":
            return next(((key, path) for key, path in runs.items() if key.experiment == experiment), None)
        key = RunKey(experiment=experiment, run_id=run_id)
        return (key, runs[key]) if key in runs else None

    def holds(self, path: Path) -> bool:
        """Whether `path`, all links followed, lies inside the results folder."""
        try:
            return path.resolve().is_relative_to(self._root)
        except (OSError, RuntimeError):
            return False

    def strays(self) -> tuple[Stray, ...]:
        """Folders where runs are expected that hold none."""
        return tuple(self._strays()) if self.results.is_dir() else ()

    def _strays(self) -> Iterator[Stray]:
        for folder in sorted(self.results.glob("*/*/")):
            name = str(folder.relative_to(self.results))
            if not self.holds(folder):
                yield Stray(name=name, why="leads outside the results folder")
            elif not (folder / layout.PLAN).exists() and any((folder / room).is_dir() for room in _ROOMS):
                yield Stray(name=name, why=f"has no {layout.PLAN}: not a run, or only half copied")
            elif self._key(folder) is None:
                yield Stray(name=name.encode(errors="replace").decode(), why="its name is not UTF-8")

    @staticmethod
    def _key(path: Path) -> RunKey | None:
        path = Path.cwd() / path
        try:
            path.name.encode(), path.parent.name.encode()
        except UnicodeEncodeError:
            return None
        return RunKey(experiment=path.parent.name, run_id=path.name)


_ROOMS = (layout.TRIALS, layout.GROUPS)
