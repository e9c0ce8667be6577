"""Pages about runs: the list, one run, two runs."""

from dataclasses import dataclass
from math import ceil

from fastapi.responses import HTMLResponse

from sweeper.analysis.figures import FIGURES, Drawn
from sweeper.analysis.figures.versus import changes
from sweeper.analysis.verdict import ratio_words
from sweeper.errors import StoreError
from sweeper.present.dashboard.filters import SORTS, Filter, choices
from sweeper.present.dashboard.live import panel
from sweeper.present.dashboard.reading import Line, journal_line, journal_trials, line_of
from sweeper.present.dashboard.render import page
from sweeper.present.dashboard.room import NotHere, Room, Sight
from sweeper.present.dashboard.shelf import RunKey
from sweeper.present.document import STANDING_MARK
from sweeper.present.numbers import rate
from sweeper.store.layout import EVENTS

RUNS_A_PAGE = 40
LINES_A_PAGE = 100
STATES = ("better", "worse", "no difference", "undecided", "failed", "skipped", "pending")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Which page of how many."""

    number: int
    last: int

    @classmethod
    def of(cls, things: int, a_page: int, wanted: int) -> "Pages":
        last = max(1, ceil(things / a_page))
        return cls(number=min(wanted, last), last=last)

    def slice(self, a_page: int) -> slice:
        return slice((self.number - 1) * a_page, self.number * a_page)


def index(room: Room, find: str, number: int) -> HTMLResponse:
    """All runs, newest first, by experiment."""
    runs = room.shelf.runs()
    wanted = [key for key in runs if find.casefold() in key.text.casefold()]
    pages = Pages.of(len(wanted), RUNS_A_PAGE, number)
    shown = [
        (summary := room.summary(key, runs[key]), "" if summary.state == "broken" else room.headline(key, runs[key]))
        for key in wanted[pages.slice(RUNS_A_PAGE)]
    ]
    experiments: dict[str, list[tuple[object, str | None]]] = {}
    for summary, headline in shown:
        experiments.setdefault(summary.key.experiment, []).append((summary, headline))
    pending = any(headline is None for _, headline in shown)
    return page(
        "index.html.j2",
        experiments=experiments,
        strays=room.shelf.strays(),
        results=str(room.shelf.results),
        exists=room.shelf.results.is_dir(),
        histories=() if runs else tuple(room.shelf.histories()),
        found=len(wanted),
        all_runs=len(runs),
        find=find,
        pages=pages,
        refresh_s=2 if pending or not runs else 5,
    )


def run(room: Room, experiment: str, run_id: str, chosen: Filter) -> HTMLResponse:
    """The report of one run with filters; what goes on now above it."""
    sight = room.sight(experiment, run_id)
    reading = room.reading(sight.key, sight.path)
    if reading:
        outcomes = reading.outcomes(chosen)
        pages = Pages.of(len(outcomes), LINES_A_PAGE, chosen.page)
        lines = [line_of(entry, chosen) for entry in outcomes[pages.slice(LINES_A_PAGE)]]
        found = len(outcomes)
    else:
        every = journal_trials(sight.now, chosen)
        pages, found = Pages.of(len(every), LINES_A_PAGE, chosen.page), len(every)
        lines = [journal_line(sight.now, *entry) for entry in every[pages.slice(LINES_A_PAGE)]]
    return page(
        "run.html.j2",
        sight=sight,
        key=sight.key,
        doc=reading.document if reading else None,
        reading=reading,
        panel=panel(room, sight.key, sight.path, sight.now) if sight.state == "running" else None,
        chosen=chosen,
        choices=choices(sight.plan),
        categories=reading.categories if reading else (),
        sorts=SORTS,
        states=STATES,
        tables=_by_load(lines) if chosen.sort == "plan" else [("", lines)],
        found=found,
        trials=len(sight.plan.trials),
        pages=pages,
        figures=tuple(FIGURES) if reading and sight.now.measured else (),
        empty=_emptiness(sight),
        refresh_s=0 if reading else 1,
    )


def _by_load(lines: list[Line]) -> list[tuple[str, list[Line]]]:
    tables: dict[str, list[Line]] = {}
    for line in lines:
        tables.setdefault(line.load, []).append(line)
    return list(tables.items())


def _emptiness(sight: Sight) -> str:
    """Why there is nothing to see, and what to do; empty when there is."""
    if sight.now.measured or sight.state == "running":
        return ""
    if not (sight.path / EVENTS).exists():
        return "Nothing has happened in this run yet: it was planned, and stopped before its first server."
    if sight.state == "interrupted":
        return "This run stopped before anything was measured. The same `sweeper run` command goes on where it stood."
    return "Nothing was measured: every trial failed or was skipped. The reasons stand below."


def broken(room: Room, experiment: str, run_id: str, problem: str) -> HTMLResponse:
    key, path = room.find(experiment, run_id)
    return page("broken.html.j2", key=key, problem=problem, folder=str(path), status=500)


def parse_key(text: str) -> RunKey | None:
    experiment, slash, run_id = text.rpartition("/")
    return RunKey(experiment=experiment, run_id=run_id) if slash else None


def compare(room: Room, first: str, second: str) -> HTMLResponse:
    """Any two runs; asks for them when they are not named."""
    keys = list(room.shelf.runs())
    named = [parse_key(text) for text in (first, second)]
    problem, result, sides = "", None, []
    if all(named):
        try:
            sides = [room.sight(key.experiment, key.run_id) for key in named if key]
            result = room.compared(*sides)
        except (StoreError, NotHere) as error:
            problem = str(error)
    elif first or second:
        problem = "Choose two runs."
    return page(
        "compare.html.j2",
        keys=keys,
        first=first,
        second=second,
        sides=sides,
        result=result,
        problem=problem,
        mark=STANDING_MARK,
        rate=rate,
        ratio=ratio_words,
        refresh_s=1 if len(sides) == 2 and result is None and not problem else 0,
    )


def compare_figure(room: Room, first: str, second: str) -> Drawn | None:
    sides = []
    for text in (first, second):
        key = parse_key(text)
        if key is None:
            raise NotHere("No such run.")
        sides.append(room.sight(key.experiment, key.run_id))
    result = room.compared(*sides)
    return changes(result, sides[0].plan.arms) if result else None
