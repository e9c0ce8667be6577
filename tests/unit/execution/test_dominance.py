from dataclasses import replace
from typing import Any

import pytest

from sweeper.core.trial import Plan
from sweeper.execution.dominance import refused_too
from sweeper.testing.plans import small_plan


def plan_of(**args: dict[str, Any]) -> Plan:
    """Arms a (baseline), b and c with these server arguments."""
    plan = small_plan(("1-1-2", "2-1-3", "3-1-4"))
    arms = [
        replace(arm, arm_id=name, label=name, server=replace(arm.server, device="cuda", args=args[name]))
        for name, arm in zip("abc", plan.arms, strict=True)
    ]
    return replace(plan, arms=tuple(arms))


@pytest.mark.parametrize(
    ("message", "skipped"),
    [
        ("bad launch argument --page-width 9", ["b", "c"]),
        ("bad launch argument --page-width=9 --other", ["b", "c"]),
        ("bad launch argument --page-width: it could be --page-width-a, --page-width-b", ["b", "c"]),
        ("bad launch argument --page-width: invalid int value: '9'", ["b"]),
        ("bad launch argument --pw/--page-width: invalid int value: '9'", ["b"]),
        ("bad launch argument --page-width-of-all: invalid int value: '9'", ["b"]),
        ("bad launch argument 9", ["b"]),
        ("bad launch argument --page", []),
        ("these two cannot go together", ["b"]),
    ],
)
def test_arms_with_the_refused_flag_are_refused_too_and_without_a_named_one_those_that_carry_all(
    message: str, skipped: list[str]
) -> None:
    plan = plan_of(a={"page_width": 9}, b={"page_width": 9, "wide": True}, c={"page_width": 12})
    assert [arm.label for arm in refused_too(plan, plan.arm("a"), message)] == skipped


def test_an_unknown_algorithm_refuses_every_arm_of_that_algorithm_and_no_baseline() -> None:
    plan = small_plan(("baseline", "2-1-3", "3-1-4"))
    found = refused_too(plan, plan.arm("2-1-3"), "unknown speculative algorithm EAGLE3")
    assert [arm.label for arm in found] == ["3-1-4"]
