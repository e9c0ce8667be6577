"""Against exhaustive search written independently of the scheduler."""

import random
from collections.abc import Iterator, Sequence
from functools import cache

import pytest

from sweeper.core.trial import ServerStart
from sweeper.planning.placement import Busy, Job, Node, Place, Placed, Room, makespan_s, timetable

Free = tuple[tuple[int, ...], ...]
"""When each GPU of each node is free."""


def job(name: str, gpus: int, seconds: float, *, chain: str | None = None, start: int = 0) -> Job:
    return Job(key=ServerStart(group_id=name, start=start), gpus=gpus, seconds=seconds, chain=chain or name)


def node(size: int = 8, name: str = "n") -> Node:
    return Node(name=name, units=tuple(range(size)))


def random_jobs(rng: random.Random, count: int, *, widest: int = 8, chains: int | None = None) -> list[Job]:
    widths = [width for width in (1, 2, 4, 8) if width <= widest]
    return [
        job(
            f"g{index}",
            rng.choice(widths),
            float(rng.randint(3, 60)),
            chain=None if chains is None else f"c{rng.randrange(chains)}",
        )
        for index in range(count)
    ]


def moves(ahead: Sequence[Sequence[Job]], free: Free, last: int) -> Iterator[tuple[int, int, int, int]]:
    """Every way to begin one more server, none before `last`: (chain, node, first GPU, begin)."""
    for chain, jobs in enumerate(ahead):
        if not jobs:
            continue
        width = jobs[0].gpus
        for number, units in enumerate(free):
            for first in range(0, len(units) - width + 1, width):
                yield chain, number, first, max(last, *units[first : first + width])


def taken(free: Free, number: int, first: int, width: int, end: int) -> Free:
    units = list(free[number])
    units[first : first + width] = [end] * width
    return (*free[:number], tuple(units), *free[number + 1 :])


def chains_of(jobs: Sequence[Job]) -> tuple[tuple[Job, ...], ...]:
    return tuple(tuple(one for one in jobs if one.chain == name) for name in dict.fromkeys(one.chain for one in jobs))


def shortest_s(jobs: Sequence[Job], free: Free) -> int:
    """The least makespan, by trying everything."""

    @cache
    def least(ahead: tuple[tuple[Job, ...], ...], free: Free, last: int) -> int:
        best = None
        for chain, number, first, begin in moves(ahead, free, last):
            one, *rest = ahead[chain]
            end = begin + int(one.seconds)
            following = (*ahead[:chain], tuple(rest), *ahead[chain + 1 :])
            whole = max(end, least(following, taken(free, number, first, one.gpus, end), begin))
            best = whole if best is None else min(best, whole)
        return best or 0

    return least(chains_of(jobs), free, 0)


def is_possible_within(limit_s: float, jobs: Sequence[Job], free: Free) -> bool:
    """Is there any timetable of at most this length? Exhaustive; gives up a branch only when its GPU time runs out."""
    dead: set[tuple[object, ...]] = set()

    def halves(units: tuple[int, ...]) -> tuple[int, ...]:
        if len(units) == 1:
            return units
        middle = len(units) // 2
        return sum(sorted((halves(units[:middle]), halves(units[middle:]))), ())

    def reachable(ahead: tuple[tuple[Job, ...], ...], free: Free, last: int) -> bool:
        work = sum(int(one.seconds) * one.gpus for jobs in ahead for one in jobs)
        if work == 0:
            return True
        if sum(limit_s - max(at, last) for units in free for at in units) < work:
            return False
        shapes = tuple(sorted(tuple((one.gpus, one.seconds) for one in jobs) for jobs in ahead if jobs))
        nodes = tuple(sorted(halves(tuple(max(at, last) for at in units)) for units in free))
        if (key := (shapes, nodes, last)) in dead:
            return False
        dead.add(key)
        for chain, number, first, begin in moves(ahead, free, last):
            one, *rest = ahead[chain]
            end = begin + int(one.seconds)
            following = (*ahead[:chain], tuple(rest), *ahead[chain + 1 :])
            if end <= limit_s and reachable(following, taken(free, number, first, one.gpus, end), begin):
                return True
        return False

    return max(one.seconds for one in jobs) <= limit_s and reachable(chains_of(jobs), free, 0)


def assert_sound(placed: Sequence[Placed], jobs: Sequence[Job], nodes: Sequence[Node]) -> None:
    """Everything is placed once, on aligned neighbours, nothing twice at a time, chains in their order."""
    assert sorted(one.job.key.group_id for one in placed) == sorted(one.key.group_id for one in jobs)
    sizes = {one.name: one.units for one in nodes}
    for one in placed:
        units, first = sizes[one.place.node], sizes[one.place.node].index(one.place.units[0])
        assert one.place.units == units[first : first + one.job.gpus]
        assert first % one.job.gpus == 0
        assert one.end_s - one.begin_s == pytest.approx(one.job.seconds)
    for index, one in enumerate(placed):
        for other in placed[index + 1 :]:
            together = one.begin_s < other.end_s and other.begin_s < one.end_s
            shared = one.place.node == other.place.node and set(one.place.units) & set(other.place.units)
            assert not (together and shared), (one, other)
    for chain in chains_of(jobs):
        begins = {one.job.key: one.begin_s for one in placed}
        assert [begins[one.key] for one in chain] == sorted(begins[one.key] for one in chain)


@pytest.mark.parametrize("seed", range(16))
def test_small_cases_are_as_short_as_trying_everything(seed: int) -> None:
    rng = random.Random(seed)
    jobs = random_jobs(rng, rng.randint(2, 5), widest=4, chains=rng.choice([None, 2, 3]))
    nodes = [node(4)]
    placed = timetable(jobs, Room(nodes=tuple(nodes)))
    assert_sound(placed, jobs, nodes)
    assert makespan_s(placed) == shortest_s(jobs, ((0, 0, 0, 0),))


@pytest.mark.parametrize("seed", range(3))
def test_mixed_sizes_on_a_whole_node_are_as_short_as_trying_everything(seed: int) -> None:
    rng = random.Random(1000 + seed)
    jobs = random_jobs(rng, 4)
    placed = timetable(jobs, Room(nodes=(node(),)))
    assert makespan_s(placed) == shortest_s(jobs, ((0,) * 8,))


@pytest.mark.parametrize(
    ("count", "seed"), [*((n, seed) for n in (7, 8, 9) for seed in range(2)), (9, 5), (10, 1), (10, 2)]
)
def test_up_to_ten_groups_end_within_five_percent_of_the_shortest_possible(count: int, seed: int) -> None:
    rng = random.Random(100 * count + seed)
    jobs = random_jobs(rng, count, chains=rng.choice([None, None, 3]))
    placed = timetable(jobs, Room(nodes=(node(),)))
    assert_sound(placed, jobs, [node()])
    assert not is_possible_within(makespan_s(placed) / 1.05 - 1e-6, jobs, ((0,) * 8,))


@pytest.mark.parametrize("seed", range(3))
def test_four_nodes_of_eight_end_within_five_percent_of_the_shortest_possible(seed: int) -> None:
    jobs = random_jobs(random.Random(7000 + seed), 10)
    nodes = tuple(node(name=f"n{number}") for number in range(4))
    placed = timetable(jobs, Room(nodes=nodes))
    assert_sound(placed, jobs, nodes)
    assert not is_possible_within(makespan_s(placed) / 1.05 - 1e-6, jobs, ((0,) * 8,) * 4)


def test_the_exhaustive_search_would_notice_a_bad_timetable() -> None:
    jobs = [job("wide", 8, 10), *(job(f"n{index}", 1, 10) for index in range(8))]
    assert shortest_s(jobs[:5], ((0,) * 8,)) == 20
    assert is_possible_within(20, jobs, ((0,) * 8,))
    assert not is_possible_within(19, jobs, ((0,) * 8,))


def test_the_whole_sweep_of_eight_four_two_and_one_leaves_no_gpu_idle() -> None:
    jobs = [job(f"tp{width}-{index}", width, 100, chain=f"tp{width}") for width in (1, 2, 4, 8) for index in range(8)]
    placed = timetable(jobs, Room(nodes=(node(),)))
    assert_sound(placed, jobs, [node()])
    assert makespan_s(placed) == 100 + 200 + 400 + 800


def test_a_sweep_of_32_groups_with_starts_in_mirrored_order_leaves_few_gpus_idle() -> None:
    rng = random.Random(5)
    jobs: list[Job] = []
    for width in (1, 2, 4, 8):
        block = [(f"tp{width}-{index}", rng.uniform(200, 260)) for index in range(8)]
        jobs += [job(name, width, seconds, chain=f"tp{width}") for name, seconds in block]
        jobs += [job(name, width, seconds, chain=f"tp{width}", start=1) for name, seconds in reversed(block)]
    placed = timetable(jobs, Room(nodes=(node(),)))
    busy = sum(one.gpus * one.seconds for one in jobs) / 8
    assert makespan_s(placed) <= 1.08 * busy
    begins = {one.job.key: one.begin_s for one in placed}
    for chain in chains_of(jobs):
        assert [begins[one.key] for one in chain] == sorted(begins[one.key] for one in chain)


def test_a_baseline_begins_first_and_ends_the_chain_also_when_it_is_the_shortest() -> None:
    names = ["baseline", "a", "b", "baseline-again"]
    jobs = [job(name, 4, seconds, chain="c") for name, seconds in zip(names, (5, 50, 50, 5), strict=True)]
    placed = timetable(jobs, Room(nodes=(node(),)))
    assert [one.job.key.group_id for one in placed] == names


def test_on_a_tie_the_order_given_is_kept() -> None:
    jobs = [job(name, 1, 10) for name in "dacb"]
    placed = timetable(jobs, Room(nodes=(node(1),)))
    assert [one.job.key.group_id for one in placed] == list("dacb")


def test_an_exclusive_node_runs_one_at_a_time_in_the_order_given() -> None:
    jobs = [job("a", 1, 10), job("b", 8, 5), job("c", 1, 1)]
    placed = timetable(jobs, Room(nodes=(node(),), exclusive=True))
    assert [(one.job.key.group_id, one.begin_s) for one in placed] == [("a", 0), ("b", 10), ("c", 15)]


def test_exclusive_nodes_share_the_work() -> None:
    jobs = [job(name, 2, 10) for name in "abcd"]
    placed = timetable(jobs, Room(nodes=(node(name="x"), node(name="y")), exclusive=True))
    assert makespan_s(placed) == 20
    assert {one.place.node for one in placed} == {"x", "y"}


def test_what_is_running_keeps_its_place() -> None:
    running = Busy(place=Place(node="n", units=(2, 3)), seconds=30)
    placed = timetable([job("wide", 8, 10), job("narrow", 2, 10)], Room(nodes=(node(),)), busy=[running])
    begins = {one.job.key.group_id: one.begin_s for one in placed}
    assert begins == {"narrow": 0, "wide": 30}


def test_a_narrow_server_goes_where_it_breaks_no_wide_window() -> None:
    running = Busy(place=Place(node="n", units=(0,)), seconds=100)
    placed = timetable([job("narrow", 1, 100)], Room(nodes=(node(),)), busy=[running])
    assert placed[0].place.units == (1,)


def test_what_fits_on_no_node_is_left_out() -> None:
    assert timetable([job("wide", 16, 10)], Room(nodes=(node(),))) == ()


def test_gpus_of_a_node_that_was_given_some_of_them_keep_their_ids() -> None:
    some = Node(name="n", units=(4, 5, 6, 7))
    placed = timetable([job("a", 2, 10), job("b", 2, 10)], Room(nodes=(some,)))
    assert {one.place.units for one in placed} == {(4, 5), (6, 7)}


def test_beside_a_server_that_runs_long_nobody_waits_without_need() -> None:
    running = Busy(place=Place(node="n", units=(0,)), seconds=1000)
    jobs = [job("wide", 8, 10), job("half", 4, 100), job("narrow", 1, 100)]
    placed = timetable(jobs, Room(nodes=(node(),)), busy=[running])
    begins = {one.job.key.group_id: one.begin_s for one in placed}
    assert begins == {"half": 0, "narrow": 0, "wide": 1000}


def test_thousands_of_starts_are_laid_out_part_by_part_in_order_and_without_holes() -> None:
    jobs = [job(f"g{index}", (1, 2, 4)[index % 3], 10.0 + index % 7, chain=f"c{index % 3}") for index in range(300)]
    placed = timetable(jobs, Room(nodes=(node(),)), steps=0)
    assert_sound(placed, jobs, [node()])
    assert makespan_s(placed) <= 1.1 * sum(one.gpus * one.seconds for one in jobs) / 8
