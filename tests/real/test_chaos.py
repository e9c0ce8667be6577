"""A small part of the campaign of faults, and the campaign itself: a fault planted in Sweeper must be caught."""

from pathlib import Path

import pytest

from tests.chaos.campaign import Outcome, run_fault
from tests.chaos.faults import Fault, every_fault
from tests.chaos.journal import Journal

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


def outcome_of(one: Fault) -> Outcome:
    return Outcome(one.name, exit_code=-9, lost=0, leaked=("a keeper",), foreign=0, resumed=True, seconds=1.0)


def test_a_campaign_that_was_cut_goes_on_where_it_stopped(tmp_path: Path) -> None:
    faults = every_fault()[:3]
    Journal(tmp_path / "journal", faults).add(1, outcome_of(faults[1]))
    again = Journal(tmp_path / "journal", faults)
    assert again.left() == [0, 2]
    assert again.ordered() == [outcome_of(faults[1])]


def test_a_journal_of_another_list_of_faults_is_refused(tmp_path: Path) -> None:
    faults = every_fault()[:3]
    Journal(tmp_path / "journal", faults).add(1, outcome_of(faults[1]))
    with pytest.raises(ValueError, match="number 2 is another fault now"):
        Journal(tmp_path / "journal", faults[1:])
