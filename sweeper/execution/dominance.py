"""If 8-1-9 does not fit into memory, 16-1-17 does not either: which arms need not be tried any more. Pure."""

from dataclasses import replace

from sweeper.core.result import FailureClass
from sweeper.core.trial import Arm, Plan, SpecConfig

OUT_OF_MEMORY: frozenset[FailureClass] = frozenset({"oom_load", "oom_capture"})


def dominated_by(plan: Plan, failed: Arm) -> tuple[Arm, ...]:
    """Arms of the same server and draft that ask for at least as much in every size; none that expects a failure."""
    return tuple(
        arm for arm in plan.arms if arm.arm_id != failed.arm_id and arm.expect is None and _asks_for_more(arm, failed)
    )


def _asks_for_more(arm: Arm, failed: Arm) -> bool:
    more, less = arm.server.spec, failed.server.spec
    if more is None or less is None or replace(arm.server, spec=None) != replace(failed.server, spec=None):
        return False
    if _without_sizes(more) != _without_sizes(less):
        return False
    sizes = zip(_sizes(more), _sizes(less), strict=True)
    return all(here is not None and there is not None and here >= there for here, there in sizes)


def _sizes(spec: SpecConfig) -> tuple[int | None, ...]:
    return (spec.num_steps, spec.eagle_topk, spec.num_draft_tokens)


def _without_sizes(spec: SpecConfig) -> SpecConfig:
    return replace(spec, num_steps=None, eagle_topk=None, num_draft_tokens=None)
