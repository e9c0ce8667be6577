from hypothesis import given
from hypothesis import strategies as st

from sweeper.core.trial import Arm, LaunchGroup, ServerConfig
from sweeper.planning.schedule import schedule, slots

SERVER = ServerConfig(model_path="m", device="cpu", args={}, env={}, spec=None)


def arms_and_groups(text: str) -> tuple[list[Arm], list[LaunchGroup]]:
    """`xAB yC`: blocks, each beginning with its baseline."""
    arms = [
        Arm(arm_id=name, label=name, server=SERVER, baseline_id=block[0]) for block in text.split() for name in block
    ]
    return arms, [LaunchGroup(group_id=a.arm_id, arm_id=a.arm_id, gpus=1, trial_ids=()) for a in arms]


def order(text: str, *, starts: int, mirrored: bool = True) -> str:
    arms, groups = arms_and_groups(text)
    return " ".join(f"{s.group_id}{s.start}" for s in schedule(groups, arms, starts=starts, mirrored=mirrored))


def test_starts_run_forwards_then_backwards() -> None:
    assert order("xAB", starts=3) == "x0 A0 B0 B1 A1 x1 x2 A2 B2"


def test_a_single_start_has_its_baseline_first_and_last() -> None:
    assert order("xAB", starts=1) == "x0 A0 B0 x1"


def test_a_single_start_brackets_every_block_by_its_own_baseline() -> None:
    assert order("xAB yC", starts=1) == "x0 A0 B0 x1 y0 C0 y1"


def test_a_lone_baseline_is_started_once() -> None:
    assert order("x", starts=1) == "x0"


def test_given_order_is_kept() -> None:
    assert order("xA", starts=2, mirrored=False) == "x0 A0 x1 A1"
    assert order("xA", starts=1, mirrored=False) == "x0 A0"


@given(st.integers(1, 6), st.integers(2, 5))
def test_each_group_starts_as_often_as_asked_and_counts_from_zero(arms: int, starts: int) -> None:
    names = "xABCDEF"[: arms + 1]
    entries = order(names, starts=starts).split()
    for name in names:
        assert [entry for entry in entries if entry[0] == name] == [f"{name}{k}" for k in range(starts)]


def test_slots_are_disjoint_neighbours() -> None:
    assert slots(range(8), 4) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert slots([4, 5, 6, 7], 3) == ((4, 5, 6),)
    assert slots([0], 2) == ()
