"""One configuration under several names: what their comparison says is what this run calls noise (an A/A test)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from sweeper.analysis.matched import unequal_arguments
from sweeper.analysis.outcome import Outcome
from sweeper.analysis.statistics import Blocks, Cell, Decision, contrast
from sweeper.analysis.winners import Pair
from sweeper.core.trial import Arm, LoadPoint, ServerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Twins:
    """All names of one configuration at one load point."""

    load: str
    point: LoadPoint
    arms: tuple[Arm, ...]
    pairs: tuple[Pair, ...]
    """Each name against each other one."""
    alone: bool
    """Nothing but these was held against this baseline: the A/A is the whole question."""


def find_twins(outcomes: Sequence[Outcome], rates: Mapping[Cell, Blocks], decision: Decision) -> tuple[Twins, ...]:
    """One per load point, baseline and configuration that was measured under more than one name."""
    races: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.estimate and Cell(outcome.arm.arm_id, outcome.load) in rates:
            races.setdefault((outcome.arm.baseline_id, outcome.load), []).append(outcome)
    asked = {entry.arm.arm_id: entry.arm.baseline_id for entry in outcomes if not entry.arm.is_baseline}
    found = []
    for (family, _), runners in races.items():
        rivals = sum(baseline == family for baseline in asked.values())
        for group in _alike(runners):
            if len(group) > 1:
                found.append(_twins(group, rates, decision, alone=len(group) == rivals))
    return tuple(found)


def _twins(group: Sequence[Outcome], rates: Mapping[Cell, Blocks], decision: Decision, *, alone: bool) -> Twins:
    pairs = list(combinations(group, 2))
    blocks = [tuple(rates[Cell(one.arm.arm_id, one.load)] for one in pair) for pair in pairs]
    estimates = contrast([(first, second) for first, second in blocks], decision.noise)
    return Twins(
        load=group[0].load,
        point=group[0].trial.load,
        arms=tuple(one.arm for one in group),
        pairs=tuple(
            Pair(first=first.arm, second=second.arm, estimate=estimate)
            for (first, second), estimate in zip(pairs, estimates, strict=True)
        ),
        alone=alone,
    )


def _alike(runners: Sequence[Outcome]) -> list[list[Outcome]]:
    """Groups of names whose server was asked for alike, but for what the engine resolves, and resolved alike."""
    groups: dict[object, list[list[Outcome]]] = {}
    for runner in runners:
        known = groups.setdefault(_ran(runner), [])
        group = next((group for group in known if _same(group[0], runner)), None)
        if group is None:
            known.append([runner])
        else:
            group.append(runner)
    return [group for known in groups.values() for group in known]


def _ran(outcome: Outcome) -> object:
    if outcome.numbers is None:
        return outcome.arm.arm_id
    ran = outcome.numbers.effective
    return ran.algorithm, ran.num_steps, ran.eagle_topk, ran.num_draft_tokens, ran.max_running_requests


def _same(first: Outcome, second: Outcome) -> bool:
    if first.numbers is None or second.numbers is None or first.arm.captured_layers != second.arm.captured_layers:
        return False
    raw = first.numbers.effective.raw, second.numbers.effective.raw
    return _asked(first.arm) == _asked(second.arm) and not unequal_arguments(*raw)


def _asked(arm: Arm) -> ServerConfig:
    """The request without what `effective` and the captured layers answer for."""
    spec = arm.server.spec
    if spec is not None:
        layers = spec.aux_layer_ids if arm.captured_layers is None else None
        spec = replace(spec, num_steps=None, eagle_topk=None, num_draft_tokens=None, aux_layer_ids=layers)
    return replace(arm.server, spec=spec)
