"""Which server runs where and when, so that all end early. `plan`, its estimate and the run ask the same function.

A server takes a window of neighbouring GPUs of one node: 2 begin at an even place, 4 at a multiple of four. So it stays
on one side of the host, and wide servers find room. Starts of one chain (a baseline and its arms) begin in the order
given, possibly side by side; chains mix freely.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sweeper.core.trial import Plan, ServerStart
from sweeper.planning.packing import Packing, Piece, Step
from sweeper.planning.schedule import slots

SEARCH_STEPS = 10_000
"""Placements looked at beyond the rules of thumb: about half a second."""
HORIZON = 64
"""Starts laid out together; what comes after them follows on, as thousands would take for ever."""
_TICKS_PER_S = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine: its GPUs by physical id (or CPU slots by number), neighbours together."""

    name: str
    units: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Where servers can run."""

    nodes: tuple[Node, ...]
    exclusive: bool = False
    """One server at a time on a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What one server takes."""

    node: str
    units: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One server start to be placed."""

    key: ServerStart
    gpus: int
    seconds: float
    chain: str
    """Starts of the same chain begin in the order in which they are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """A place that is taken now, for as long as is expected."""

    place: Place
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One line of a timetable; seconds from now."""

    job: Job
    place: Place
    begin_s: float
    end_s: float


def jobs_of(plan: Plan) -> tuple[Job, ...]:
    """Every start of the plan's schedule; a chain is a baseline with its arms."""
    groups = {group.group_id: group for group in plan.launch_groups}
    baseline_of = {arm.arm_id: arm.baseline_id for arm in plan.arms}
    return tuple(
        Job(
            key=entry,
            gpus=groups[entry.group_id].gpus,
            seconds=groups[entry.group_id].estimate_s or 1.0,
            chain=baseline_of[groups[entry.group_id].arm_id],
        )
        for entry in plan.schedule
    )


def room_of(gpu_count: int, *, nodes: int = 1, exclusive: bool) -> Room:
    """So many nodes of so many GPUs; one alone has no name."""
    names = [f"node {number}" for number in range(1, nodes + 1)] if nodes > 1 else [""]
    return Room(nodes=tuple(Node(name=name, units=tuple(range(gpu_count))) for name in names), exclusive=exclusive)


def timetable(
    jobs: Sequence[Job], room: Room, *, busy: Sequence[Busy] = (), steps: int = SEARCH_STEPS
) -> tuple[Placed, ...]:
    """Every job that fits on a node, in the order of begins: the shortest timetable found, on a tie the order given.

    In an exclusive room all begin in exactly the order given. `steps`: how far to search for a shorter timetable than
    the rules of thumb find.
    """
    placeable = [job for job in jobs if fits(job.gpus, room.nodes)]
    if room.exclusive:
        return tuple(_in_turn(placeable, room.nodes, busy))
    return tuple(_packed(placeable, room.nodes, busy, steps))


def fits(gpus: int, nodes: Iterable[Node]) -> bool:
    """Can a server of this size ever run on one of these nodes?"""
    return any(len(node.units) >= gpus for node in nodes)


def makespan_s(placed: Sequence[Placed]) -> float:
    return max((one.end_s for one in placed), default=0.0)


def _in_turn(jobs: Sequence[Job], nodes: Sequence[Node], busy: Sequence[Busy]) -> list[Placed]:
    free = {node.name: max([0.0, *(b.seconds for b in busy if b.place.node == node.name)]) for node in nodes}
    placed: list[Placed] = []
    begin = 0.0
    for job in jobs:
        fitting = [node for node in nodes if len(node.units) >= job.gpus]
        node = min(fitting, key=lambda one: max(free[one.name], begin))
        begin = max(free[node.name], begin)
        free[node.name] = begin + job.seconds
        place = Place(node=node.name, units=slots(node.units, job.gpus)[0])
        placed.append(Placed(job=job, place=place, begin_s=begin, end_s=free[node.name]))
    return placed


def _packed(jobs: Sequence[Job], nodes: Sequence[Node], busy: Sequence[Busy], steps: int) -> list[Placed]:
    places = [(node.name, unit) for node in nodes for unit in node.units]
    free, last = list(_free(places, busy)), 0
    taken: list[Step] = []
    for first in range(0, len(jobs), HORIZON):
        chains: dict[str, list[Piece]] = {}
        for index, job in enumerate(jobs[first : first + HORIZON], start=first):
            piece = Piece(index=index, width=job.gpus, ticks=max(1, round(job.seconds * _TICKS_PER_S)))
            chains.setdefault(job.chain, []).append(piece)
        windows = _windows(jobs[first : first + HORIZON], nodes)
        packing = Packing(list(chains.values()), windows, free, _bounds(nodes), last=last)
        for step in packing.shortest(steps):
            taken.append(step)
            last = step.begin
            for at in step.window:
                free[at] = step.end
    return [
        Placed(
            job=jobs[step.piece.index],
            place=Place(node=places[step.window[0]][0], units=tuple(places[at][1] for at in step.window)),
            begin_s=step.begin / _TICKS_PER_S,
            end_s=step.end / _TICKS_PER_S,
        )
        for step in taken
    ]


def _windows(jobs: Sequence[Job], nodes: Sequence[Node]) -> dict[int, list[tuple[int, ...]]]:
    """By size: the windows of neighbours, as places in the row of all nodes' units."""
    return {
        size: [window for first, end in _bounds(nodes) for window in slots(range(first, end), size)]
        for size in sorted({job.gpus for job in jobs})
    }


def _free(places: Sequence[tuple[str, int]], busy: Sequence[Busy]) -> tuple[int, ...]:
    taken = {(one.place.node, unit): one.seconds for one in busy for unit in one.place.units}
    return tuple(round(max(0.0, taken.get(place, 0.0)) * _TICKS_PER_S) for place in places)


def _bounds(nodes: Sequence[Node]) -> list[tuple[int, int]]:
    """First place and end of each node in the row of all units."""
    bounds: list[tuple[int, int]] = []
    for node in nodes:
        first = bounds[-1][1] if bounds else 0
        bounds.append((first, first + len(node.units)))
    return bounds
