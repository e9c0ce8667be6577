import pytest

from sweeper.errors import ConfigError
from sweeper.execution.selection import select
from sweeper.testing.plans import small_plan

PLAN = small_plan(("baseline", "3-1-4", "3-4-16", "5-1-6"), concurrency=(1, 4))


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("steps=3,topk=1", {"3-1-4-c1", "3-1-4-c4", "baseline-c1", "baseline-c4"}),
        ("arm=5-1-6,concurrency=4", {"5-1-6-c4", "baseline-c4"}),
        ("draft-tokens=16,concurrency=1", {"3-4-16-c1", "baseline-c1"}),
    ],
)
def test_matching_trials_come_with_their_baselines(only: str, expected: set[str]) -> None:
    assert select(PLAN, only) == expected


@pytest.mark.parametrize(
    ("only", "told"),
    [
        ("steps=7", "no trial matches; the arms are baseline, 3-1-4, 3-4-16, 5-1-6"),
        ("stepps=3", "unknown key stepps; known are"),
        ("steps", "is not KEY=VALUE"),
    ],
)
def test_a_condition_that_means_nothing_is_refused(only: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        select(PLAN, only)
