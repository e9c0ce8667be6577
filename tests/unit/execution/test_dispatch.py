"""The dispatcher in a simulated cluster: real decisions, a made-up clock, and everything that can go wrong."""

import heapq
import random
from dataclasses import dataclass, field

import pytest

from sweeper.core.trial import Arm, LaunchGroup, Plan, ServerConfig, ServerStart
from sweeper.execution.dispatch import Dispatcher
from sweeper.planning.placement import Node, Place, Room
from sweeper.planning.schedule import schedule

SERVER = ServerConfig(model_path="m", device="cuda", args={}, env={}, spec=None)


def plan_of(rng: random.Random, *, largest: int) -> Plan:
    """One to three blocks of a baseline and perhaps an arm, each block of one width."""
    arms: list[Arm] = []
    groups: list[LaunchGroup] = []
    for block in range(rng.choice([1, 2, 2, 3])):
        width = rng.choice([size for size in (1, 2, 4, 8) if size <= largest])
        for number in range(rng.randint(1, 2)):
            name = f"b{block}a{number}"
            arms.append(Arm(arm_id=name, label=name, server=SERVER, baseline_id=f"b{block}a0"))
            seconds = float(rng.randint(20, 400))
            groups.append(LaunchGroup(group_id=name, arm_id=name, gpus=width, trial_ids=(), estimate_s=seconds))
    order = schedule(groups, arms, starts=rng.choice([1, 1, 2]), mirrored=True)
    return Plan(experiment="x", arms=tuple(arms), trials=(), launch_groups=tuple(groups), schedule=order, repeats=1)


@dataclass
class Simulation:
    """A cluster whose servers start, fail, die, vanish with their node, and are cancelled, by chance."""

    seed: int
    exclusive: bool = False
    now_s: float = 0.0
    taken: dict[tuple[str, int], ServerStart] = field(default_factory=dict)
    places: dict[ServerStart, Place] = field(default_factory=dict)
    begun: list[ServerStart] = field(default_factory=list)
    tries: dict[ServerStart, int] = field(default_factory=dict)
    what_happened: set[str] = field(default_factory=set)
    ends: list[tuple[float, int, str, ServerStart]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        size = self.rng.choice([2, 4, 8])
        self.nodes = [Node(name=f"n{k}", units=tuple(range(size))) for k in range(self.rng.choice([1, 1, 2, 3]))]
        self.plan = plan_of(self.rng, largest=size)
        self.pending = list(self.plan.schedule)
        self.cancelled: list[ServerStart] = []
        self.groups = {group.group_id: group for group in self.plan.launch_groups}
        self.chain = {arm.arm_id: arm.baseline_id for arm in self.plan.arms}
        self.dispatcher = Dispatcher(self.plan, lambda: self.now_s, steps=0)

    def run(self) -> None:
        while self.pending or self.places:
            room = Room(nodes=tuple(self.nodes), exclusive=self.exclusive)
            choice = self.dispatcher.choose(tuple(self.pending), room)
            if choice is not None:
                assert choice.place is not None
                self.begin(choice.entry, choice.place)
            else:
                assert self.places, "nothing runs and nothing may begin"
                self.next_end()

    def begin(self, entry: ServerStart, place: Place) -> None:
        width = self.groups[entry.group_id].gpus
        sizes = {node.name: node.units for node in self.nodes}
        assert place.node in sizes, "a lost node gets no server"
        assert place.units in [sizes[place.node][at : at + width] for at in range(0, len(sizes[place.node]), width)]
        kept = sizes[place.node] if self.exclusive else place.units
        assert not [unit for unit in kept if (place.node, unit) in self.taken], "a GPU given twice"
        ahead = self.pending[: self.pending.index(entry)]
        if self.exclusive:
            assert not ahead
        assert not [one for one in ahead if self.chain[one.group_id] == self.chain[entry.group_id]]
        self.pending.remove(entry)
        self.begun.append(entry)
        self.tries[entry] = self.tries.get(entry, 0) + 1
        self.places[entry] = place
        self.taken.update({(place.node, unit): entry for unit in place.units})
        self.dispatcher.began(entry, place)
        seconds = (self.groups[entry.group_id].estimate_s or 1.0) * self.rng.uniform(0.5, 3.0)
        fate = self.rng.choices(["well", "start fails", "dies", "node lost", "cancels another"], [70, 10, 8, 4, 8])[0]
        if fate in ("start fails", "dies"):
            seconds *= 0.1 if fate == "start fails" else self.rng.random()
        heapq.heappush(self.ends, (self.now_s + seconds, len(self.begun), fate, entry))

    def next_end(self) -> None:
        self.now_s, _, fate, entry = heapq.heappop(self.ends)
        if entry not in self.places:
            return  # it went with its node
        self.what_happened.add(fate)
        lost = [entry]
        if fate == "node lost" and len(self.nodes) > 1:
            name = self.places[entry].node
            lost = [one for one, place in self.places.items() if place.node == name]
            self.nodes = [node for node in self.nodes if node.name != name]
        if fate == "cancels another" and self.pending:
            self.cancelled.append(self.pending.pop(self.rng.randrange(len(self.pending))))
        for one in lost:
            place = self.places.pop(one)
            for unit in place.units:
                del self.taken[(place.node, unit)]
            self.dispatcher.ended(one, whole=fate in ("well", "cancels another"))
            if fate in ("start fails", "node lost") and self.tries[one] == 1:
                self.pending.insert(0, one)  # as the controller does: tried once more, at once


def test_no_gpu_is_ever_given_twice_in_a_thousand_random_runs_with_failures() -> None:
    seen: set[str] = set()
    for seed in range(1000):
        simulation = Simulation(seed=seed, exclusive=seed % 10 == 0)
        simulation.run()
        assert not simulation.taken
        assert {*simulation.begun, *simulation.cancelled} == set(simulation.plan.schedule)
        seen |= simulation.what_happened
    assert seen == {"well", "start fails", "dies", "node lost", "cancels another"}


def one_block(*widths: int, seconds: float = 100.0) -> Plan:
    """Every group a chain of its own."""
    arms = [Arm(arm_id=f"g{k}", label=f"g{k}", server=SERVER, baseline_id=f"g{k}") for k in range(len(widths))]
    groups = [
        LaunchGroup(group_id=f"g{k}", arm_id=f"g{k}", gpus=width, trial_ids=(), estimate_s=seconds)
        for k, width in enumerate(widths)
    ]
    order = tuple(ServerStart(group_id=group.group_id, start=0) for group in groups)
    return Plan(experiment="x", arms=tuple(arms), trials=(), launch_groups=tuple(groups), schedule=order, repeats=1)


ROOM = Room(nodes=(Node(name="n", units=tuple(range(8))),))


def test_a_wide_server_waits_for_its_room_rather_than_for_ever() -> None:
    plan = one_block(8, *[1] * 30)
    now_s = 0.0
    dispatcher = Dispatcher(plan, lambda: now_s, steps=0)
    pending = list(plan.schedule)
    running: dict[ServerStart, float] = {}
    began_wide = None
    while pending:
        choice = dispatcher.choose(tuple(pending), ROOM)
        if choice is None:
            entry = min(running, key=lambda one: running[one])
            now_s = running.pop(entry)
            dispatcher.ended(entry, whole=True)
            continue
        pending.remove(choice.entry)
        dispatcher.began(choice.entry, choice.place)
        running[choice.entry] = now_s + 100
        if choice.entry.group_id == "g0":
            began_wide = now_s
    assert began_wide is not None
    assert max(running.values()) == pytest.approx(500)


def test_a_server_that_fits_on_no_node_is_handed_to_the_pool_when_its_turn_comes() -> None:
    plan = one_block(16, 1)
    choice = Dispatcher(plan, lambda: 0.0).choose(plan.schedule, ROOM)
    assert choice is not None
    assert (choice.entry.group_id, choice.place) == ("g0", None)


def test_with_nothing_left_nothing_is_chosen() -> None:
    assert Dispatcher(one_block(1), lambda: 0.0).choose((), ROOM) is None


def test_starts_slower_than_expected_are_expected_to_stay_so() -> None:
    plan = one_block(8, 4, 4, seconds=100)
    now_s = 0.0
    dispatcher = Dispatcher(plan, lambda: now_s)
    first = dispatcher.choose(plan.schedule, ROOM)
    assert first is not None
    dispatcher.began(first.entry, first.place)
    now_s = 300.0
    assert dispatcher.choose([one for one in plan.schedule if one != first.entry], ROOM) is None, "it still runs"
    dispatcher.ended(first.entry, whole=True)
    left = [one for one in plan.schedule if one != first.entry]
    second = dispatcher.choose(left, ROOM)
    assert second is not None
