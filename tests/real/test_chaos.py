"""A small part of the campaign of faults, and the campaign itself: a fault planted in Sweeper must be caught."""

from pathlib import Path

import pytest

from tests.chaos.campaign import run_fault
from tests.chaos.faults import Fault, every_fault

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


def fault(name: str) -> Fault:
    return next(one for one in every_fault() if one.name == name)


def test_the_list_holds_at_least_forty_distinct_faults() -> None:
    names = [one.name for one in every_fault()]
    assert len(names) == len(set(names)) >= 40


@pytest.mark.parametrize(
    "name",
    [
        "controller SIGKILL at measuring",
        "keeper and controller SIGKILL",
        "death in the middle of writing measurement.json",
        "disk full at a write",
        "killed, then measurement cut in half",
    ],
)
def test_nothing_is_lost_or_left_and_the_run_goes_on(name: str, tmp_path: Path) -> None:
    outcome = run_fault(fault(name), tmp_path / "place", seed=1)
    assert outcome.fine, outcome


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        ("plain-write", "death in the middle of writing measurement.json"),
        ("kill-by-name", "controller SIGKILL at run_started"),
        ("late-ledger", "controller SIGKILL at launching"),
    ],
)
def test_a_fault_planted_in_sweeper_is_caught(plant: str, name: str, tmp_path: Path) -> None:
    outcome = run_fault(fault(name), tmp_path / "place", seed=1, plant=plant)
    assert not outcome.fine, outcome
