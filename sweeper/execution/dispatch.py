"""Which start begins next, and where: the plan's timetable, asked again with what is running now."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sweeper.core.trial import Plan, ServerStart
from sweeper.planning.placement import HORIZON, SEARCH_STEPS, Busy, Job, Place, Room, fits, jobs_of, timetable

_OVERDUE = 0.05
"""What is left, as a share of what was expected, of a start that should have ended by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A start that may begin now; no place: on no single node is there room for it, the pool must say what then."""

    entry: ServerStart
    place: Place | None


@dataclass(frozen=True, slots=True)
class _Running:
    place: Place | None
    begun_s: float


class Dispatcher:
    """Knows what runs where and since when; plans anew at every question, so that failures and delays are answered."""

    def __init__(self, plan: Plan, clock: Callable[[], float], *, steps: int = SEARCH_STEPS) -> None:
        self._plan = plan
        self._clock = clock
        self._steps = steps
        self._jobs = {job.key: job for job in jobs_of(plan)}
        self._running: dict[ServerStart, _Running] = {}
        self._now: list[Choice] = []
        """The rest of what the last timetable began at once; void as soon as anything else happens."""
        self._room: Room | None = None
        self._asked: Place | None = None
        self._expected_s = 0.0
        self._taken_s = 0.0

    def choose(self, pending: Sequence[ServerStart], room: Room) -> Choice | None:
        """None: the shortest timetable has nothing beginning before something ends. `pending` in the run's order."""
        if not pending:
            return None
        if self._now and self._now[0].entry in pending and room == self._room:
            return self._chosen(self._now.pop(0))
        head = pending[0]
        if not fits(self._jobs[head].gpus, room.nodes):
            return Choice(entry=head, place=None)
        pace = self._pace()
        jobs = [self._at_pace(self._jobs[entry], pace) for entry in pending[:HORIZON]]
        first, *later = timetable(jobs, room, busy=self._busy(pace), steps=self._steps)
        if first.begin_s > 0 and self._running:
            return None
        self._room = room
        self._now = [Choice(entry=one.job.key, place=one.place) for one in later if one.begin_s <= 0]
        return self._chosen(Choice(entry=first.job.key, place=first.place))

    def _chosen(self, choice: Choice) -> Choice:
        self._asked = choice.place
        return choice

    def began(self, entry: ServerStart, place: Place | None) -> None:
        """`place`: what the pool really gave; from elsewhere than it was asked for, everything is planned anew."""
        self._running[entry] = _Running(place, self._clock())
        if place != self._asked:
            self._now = []

    def ended(self, entry: ServerStart, *, whole: bool) -> None:
        """`whole`: it measured all it owed; only then its time says something about the others'."""
        self._now = []
        running = self._running.pop(entry)
        if whole:
            self._taken_s += self._clock() - running.begun_s
            self._expected_s += self._jobs[entry].seconds

    def _pace(self) -> float:
        """Real seconds for one expected second, so far."""
        return self._taken_s / self._expected_s if self._taken_s > 0 and self._expected_s > 0 else 1.0

    def _at_pace(self, job: Job, pace: float) -> Job:
        return Job(key=job.key, gpus=job.gpus, seconds=job.seconds * pace, chain=job.chain)

    def _busy(self, pace: float) -> list[Busy]:
        now_s = self._clock()
        found = []
        for entry, running in self._running.items():
            if running.place is not None:
                whole_s = self._jobs[entry].seconds * pace
                left_s = max(whole_s - (now_s - running.begun_s), _OVERDUE * whole_s)
                found.append(Busy(place=running.place, seconds=left_s))
        return found
