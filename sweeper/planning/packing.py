"""Chains of rigid pieces into windows of a row of units: rules of thumb, then a bounded search. Time is whole ticks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Window = tuple[int, ...]
"""Neighbouring places in the row of all units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What must be packed: `width` units side by side for `ticks`."""

    index: int
    """The caller's number for it."""
    width: int
    ticks: int


@dataclass(frozen=True, slots=True)
class Step:
    """A piece that has its place."""

    piece: Piece
    chain: int
    window: Window
    begin: int

    @property
    def end(self) -> int:
        return self.begin + self.piece.ticks


@dataclass(frozen=True, slots=True)
class _State:
    """Pieces are placed in the order of their begins: none begins before `last`, and no gap is ever filled later."""

    free: tuple[int, ...]
    last: int
    done: tuple[int, ...]
    """Pieces placed, by chain."""


_BEAM_SHARE = 24
_MOST_WORK = 800_000
"""Steps × pieces × windows: what a step costs grows with both, and no timetable may take seconds."""
_Rule = Callable[["Packing", _State, Step], tuple[int, ...]]
"""Of all possible next steps, the one with the smallest key is taken."""


class Packing:
    """One packing problem. An optimal packing, read in the order of its begins, is among those that this can build."""

    def __init__(
        self,
        chains: Sequence[Sequence[Piece]],
        windows: Mapping[int, Sequence[Window]],
        free: Sequence[int],
        spans: Sequence[tuple[int, int]],
        *,
        last: int = 0,
    ) -> None:
        """`free`: when each unit is free; `spans`: first place and end of every node; `windows`: by width.

        `last`: no piece begins before.
        """
        self._chains = chains
        self._windows = windows
        self._spans = spans
        self._start = _State(free=tuple(free), last=last, done=(0,) * len(chains))
        self._work = [_sums_ahead([piece.ticks for piece in chain]) for chain in chains]
        self._area = [_sums_ahead([piece.width * piece.ticks for piece in chain]) for chain in chains]
        self._binary = all(width & (width - 1) == 0 for width in windows)
        self._busy_end = max(free, default=0)
        self._best: tuple[Step, ...] = ()
        self._best_end = 0
        self._seen: set[tuple[object, ...]] = set()
        self._steps = 0

    def shortest(self, steps: int) -> tuple[Step, ...]:
        """The shortest packing found, in the order of begins; the chains in the order given when none is shorter."""
        floor = max(self._floor(self._start), self._busy_end)
        found = [self._by_rule(rule) for rule in _RULES[:1]]
        if self._cost(found[0]) > (floor, self._used_up(self._start)):
            found += [self._by_rule(rule) for rule in _RULES[1:]]
        self._best = min(found, key=self._cost)
        self._best_end = self._cost(self._best)[0]
        pieces = sum(map(len, self._chains))
        steps = min(steps, _MOST_WORK // max(1, pieces * sum(map(len, self._windows.values()))))
        if steps and pieces and self._best_end > floor:
            self._in_breadth(max(3, steps // (_BEAM_SHARE * pieces)))
            self._steps = steps
            self._seen.clear()
            self._search(self._start, (), floor)
        return self._best

    def _by_rule(self, rule: _Rule) -> tuple[Step, ...]:
        state, taken = self._start, []
        while options := list(self._options(state)):
            keys = [rule(self, state, one) for one in options]
            least = min(keys)
            equal = [one for one, key in zip(options, keys, strict=True) if key == least]
            step = equal[0] if len(equal) == 1 else min(equal, key=lambda one: self._snugness(state, one))
            taken.append(step)
            state = _after(state, step)
        return tuple(taken)

    def _in_breadth(self, width: int) -> None:
        """Place by place, only the most promising beginnings are kept."""
        beam: list[tuple[_State, tuple[Step, ...], int]] = [(self._start, (), self._busy_end)]
        for _ in range(sum(map(len, self._chains))):
            grown: list[tuple[tuple[int, ...], _State, tuple[Step, ...], int]] = []
            for state, taken, end in beam:
                for step in self._options(state):
                    following = _after(state, step)
                    whole = max(end, step.end)
                    floor = max(whole, self._floor(following))
                    if floor < self._best_end and self._is_new(following):
                        key = (floor, self._used_up(following), step.begin)
                        grown.append((key, following, (*taken, step), whole))
            grown.sort(key=lambda one: one[0])
            beam = [(state, taken, end) for _, state, taken, end in grown[:width]]
        if beam and beam[0][2] < self._best_end:
            self._best, self._best_end = beam[0][1], beam[0][2]

    def _search(self, state: _State, taken: tuple[Step, ...], floor: int) -> None:
        """Depth first, the most promising step first; gives up where nothing shorter can come, or after `steps`."""
        options = list(self._options(state))
        if not options:
            end = max(self._busy_end, *(step.end for step in taken))
            if end < self._best_end:
                self._best, self._best_end = taken, end
            return
        options.sort(key=lambda one: (*_earliest_widest(self, state, one), *self._snugness(state, one)))
        for step in options:
            if self._steps <= 0 or self._best_end <= floor:
                return
            following = _after(state, step)
            self._steps -= 1
            if max(step.end, self._floor(following)) >= self._best_end or not self._is_new(following):
                continue
            self._search(following, (*taken, step), floor)

    def _options(self, state: _State) -> Iterator[Step]:
        """Every next step; of chains with the same pieces left only the first, of windows alike only one."""
        alike: set[tuple[object, ...]] = set()
        for number, chain in enumerate(self._chains):
            left = chain[state.done[number] :]
            if not left:
                continue
            shape = tuple((piece.width, piece.ticks) for piece in left)
            if shape in alike:
                continue
            alike.add(shape)
            for window in self._windows[left[0].width]:
                begin = max(state.last, *(state.free[at] for at in window))
                yield Step(piece=left[0], chain=number, window=window, begin=begin)

    def _snugness(self, state: _State, step: Step) -> tuple[int, ...]:
        """Among steps that the rule finds equal: no unit kept waiting, then where the neighbours are busy anyway."""
        waiting = sum(step.begin - max(state.last, state.free[at]) for at in step.window)
        width, first = len(step.window), step.window[0]
        span = next((a, b) for a, b in self._spans if a <= first < b)
        wider = (first - span[0]) // (2 * width) * 2 * width + span[0]
        around = sum(max(state.free[at], step.begin) for at in range(wider, min(wider + 2 * width, span[1])))
        return (waiting, -around, first)

    def _floor(self, state: _State) -> int:
        """No packing that goes on from here ends earlier."""
        left = [piece for chain, done in zip(self._chains, state.done, strict=True) for piece in chain[done:]]
        if not left:
            return 0
        free = [max(at, state.last) for at in state.free]
        longest: dict[int, int] = {}
        for piece in left:
            longest[piece.width] = max(longest.get(piece.width, 0), piece.ticks)
        bounds = [
            min(max(free[at] for at in window) for window in self._windows[width]) + ticks
            for width, ticks in longest.items()
        ]
        bounds.append(-(-(sum(free) + sum(piece.width * piece.ticks for piece in left)) // len(free)))
        if self._binary:
            bounds.extend(self._wide_floor(width, left, free) for width in longest if width > 1)
        return max(bounds)

    def _wide_floor(self, width: int, left: Sequence[Piece], free: Sequence[int]) -> int:
        """All pieces at least this wide, spread evenly over the windows of this width."""
        windows = self._windows[width]
        ready = sum(max(free[at] for at in window) for window in windows)
        work = sum(piece.ticks * (piece.width // width) for piece in left if piece.width >= width)
        return -(-(ready + work) // len(windows))

    def _is_new(self, state: _State) -> bool:
        """Not met before, apart from the names of chains, halves and nodes."""
        left = sorted(
            tuple((piece.width, piece.ticks) for piece in chain[done:])
            for chain, done in zip(self._chains, state.done, strict=True)
            if done < len(chain)
        )
        free = [max(at, state.last) for at in state.free]
        nodes = sorted(_shape(free[first:end], self._binary) for first, end in self._spans)
        key = (state.last, tuple(left), tuple(nodes))
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _cost(self, taken: Sequence[Step]) -> tuple[int, int]:
        """The end of all, what is running included; then the unit time used up by then."""
        state = self._start
        for step in taken:
            state = _after(state, step)
        return max([self._busy_end, *(step.end for step in taken)]), self._used_up(state)

    def _used_up(self, state: _State) -> int:
        """Unit time that is gone or still needed: of two states, the smaller one has wasted less."""
        ahead = zip(self._area, state.done, strict=True)
        return sum(max(at, state.last) for at in state.free) + sum(areas[done] for areas, done in ahead)

    def work_left(self, state: _State, chain: int) -> int:
        return self._work[chain][state.done[chain]]


def _sums_ahead(values: Sequence[int]) -> list[int]:
    """By place: the sum from there to the end."""
    return [sum(values[at:]) for at in range(len(values) + 1)]


def _after(state: _State, step: Step) -> _State:
    free = list(state.free)
    for at in step.window:
        free[at] = step.end
    done = (*state.done[: step.chain], state.done[step.chain] + 1, *state.done[step.chain + 1 :])
    return _State(free=tuple(free), last=step.begin, done=done)


def _shape(free: Sequence[int], binary: bool) -> tuple[int, ...]:
    """Halves of a node can change places without any effect; what is left when all that is undone."""
    size = len(free)
    if not binary or size < 2 or size & (size - 1):
        return tuple(free)
    halves = sorted((_shape(free[: size // 2], binary), _shape(free[size // 2 :], binary)))
    return (*halves[0], *halves[1])


def _in_order(packing: Packing, state: _State, step: Step) -> tuple[int, ...]:
    return (step.piece.index, step.begin)


def _widest_first(packing: Packing, state: _State, step: Step) -> tuple[int, ...]:
    return (-step.piece.width, -packing.work_left(state, step.chain), -step.piece.ticks, step.begin)


def _largest_first(packing: Packing, state: _State, step: Step) -> tuple[int, ...]:
    return (-step.piece.width * packing.work_left(state, step.chain), step.begin)


def _narrowest_first(packing: Packing, state: _State, step: Step) -> tuple[int, ...]:
    return (step.piece.width, -packing.work_left(state, step.chain), -step.piece.ticks, step.begin)


def _earliest_widest(packing: Packing, state: _State, step: Step) -> tuple[int, ...]:
    return (step.begin, -step.piece.width, -packing.work_left(state, step.chain), -step.piece.ticks)


def _earliest_longest(packing: Packing, state: _State, step: Step) -> tuple[int, ...]:
    return (step.begin, -packing.work_left(state, step.chain), -step.piece.ticks)


def _earliest_largest(packing: Packing, state: _State, step: Step) -> tuple[int, ...]:
    return (step.begin, -step.piece.width * step.piece.ticks)


_RULES: tuple[_Rule, ...] = (
    _in_order,
    _earliest_widest,
    _earliest_longest,
    _widest_first,
    _earliest_largest,
    _largest_first,
    _narrowest_first,
)
