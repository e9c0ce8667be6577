"""Which arms need not be tried any more: what is larger than what did not fit, what carries a refused flag. Pure."""

from dataclasses import replace

from sweeper.core.result import FailureClass
from sweeper.core.trial import Arm, Plan, ServerConfig, SpecConfig
from sweeper.engine.argv import server_words
from sweeper.engine.failures import refused_flags

OUT_OF_MEMORY: frozenset[FailureClass] = frozenset({"oom_load", "oom_capture"})


def dominated_by(plan: Plan, failed: Arm) -> tuple[Arm, ...]:
    """Arms of the same server and draft that ask for at least as much in every size; none that expects a failure."""
    return tuple(
        arm for arm in plan.arms if arm.arm_id != failed.arm_id and arm.expect is None and _asks_for_more(arm, failed)
    )


def refused_too(plan: Plan, failed: Arm, message: str) -> tuple[Arm, ...]:
    """Arms that carry what the engine refused `failed` for, as its bad_argument `message` names it.

    A message that names no flag refuses them all together: then these are the arms that carry every one of them.
    """
    refused = refused_flags(message)
    own = _flags(failed.server)
    if refused is None:
        return tuple(
            arm for arm in plan.arms if arm.arm_id != failed.arm_id and own.items() <= _flags(arm.server).items()
        )
    named = {flag for flag in own if any(option.startswith(flag) for option in refused.options)}
    exact = named & set(refused.options) or named  # without an exact one it was abbreviated

    def carries(flags: dict[str, tuple[str, ...]]) -> bool:
        return any(flag in flags and (refused.with_any_value or flags[flag] == own[flag]) for flag in exact)

    return tuple(arm for arm in plan.arms if arm.arm_id != failed.arm_id and carries(_flags(arm.server)))


def _flags(server: ServerConfig) -> dict[str, tuple[str, ...]]:
    """Flag to its values, as they stand on the command line."""
    found: dict[str, tuple[str, ...]] = {}
    option = ""
    for word in server_words(server):
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            found[option] = (value,) if equals else ()
        else:
            found[option] = (*found[option], word)
    return found


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
