"""Which runs a results folder and the histories of nightly jobs hold, and the only door to their files: nothing outside
these folders is ever opened."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sweeper.store import layout
from sweeper.store.reader import find_runs

NIGHTS = "nights"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NightRun:
    """A run of a night."""

    key: RunKey
    path: Path
    again: bool
    """The second measurement of what looked suspicious."""


class Shelf:
    """Runs are looked up among those found on disk; an address never becomes a path."""

    def __init__(self, results: Path, histories: tuple[Path, ...] = ()) -> None:
        """`histories`: of nightly jobs, outside the results folder."""
        self.results = results
        self._given = histories
        self._roots = tuple(folder.resolve() for folder in (results, *histories))

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
        return (key, runs[key]) if key in runs else self._find_in_nights(key)

    def _find_in_nights(self, key: RunKey) -> tuple[RunKey, Path] | None:
        nights = (night for history in self.histories().values() for night in self.nights(history).values())
        return next(((run.key, run.path) for runs in nights for run in runs if run.key == key), None)

    def histories(self) -> dict[str, Path]:
        """Name in an address → folder: those given, and those inside the results folder."""
        results = self.results
        inside = [results, *sorted(results.glob("*/")), *sorted(results.glob("*/*/"))] if results.is_dir() else []
        found = [(self._name(folder), folder) for folder in inside if self.holds(folder / NIGHTS)]
        found += [(folder.name or str(folder), folder) for folder in self._given]
        return {name: folder for name, folder in found if (folder / NIGHTS).is_dir()}

    def _name(self, folder: Path) -> str:
        return str(folder.relative_to(self.results)) if folder != self.results else self.results.resolve().name

    def nights(self, history: Path) -> dict[str, list[NightRun]]:
        """Night id → the runs that are still kept of it, the first measurement first."""
        found: dict[str, list[NightRun]] = {}
        for part in ("runs", "again"):
            for plan in sorted(history.glob(f"{NIGHTS}/*/{part}/*/*/{layout.PLAN}")):
                path, night = plan.parent, plan.parents[3].name
                if (key := self._key(path)) is not None and self.holds(path):
                    found.setdefault(night, []).append(NightRun(key=key, path=path, again=part == "again"))
        return found

    def holds(self, path: Path) -> bool:
        """Whether `path`, all links followed, lies inside the results folder or a history."""
        try:
            real = path.resolve()
        except (OSError, RuntimeError):
            return False
        return any(real.is_relative_to(root) for root in self._roots)

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
