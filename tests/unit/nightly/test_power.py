"""The simulation behind docs/nightly.md, small: the shipped decision keeps its promises."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[3] / "benchmarks" / "nightly_power.py"


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nightly_power", FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["nightly_power"] = module
    spec.loader.exec_module(module)
    return module


def test_quiet_nights_raise_few_alarms(simulation: ModuleType) -> None:
    years = [simulation.quiet_year(simulation.Setting(), seed, nights=120) for seed in range(3)]
    assert sum(year.alarms for year in years) <= 2
    assert sum(year.again for year in years) / 3 < 2


def test_a_step_of_five_per_cent_is_seen_on_its_first_night_and_dated(simulation: ModuleType) -> None:
    power = simulation.step_power(simulation.Setting(), 0.05, runs=30, seed=11, workers=1)
    assert power.first_night >= 0.9 and power.two_nights >= 0.96
    assert power.dated >= 0.9


def test_a_step_of_three_per_cent_is_seen_within_a_week(simulation: ModuleType) -> None:
    assert simulation.step_power(simulation.Setting(), 0.03, runs=30, seed=12, workers=1).week >= 0.9


def test_a_slow_drift_is_called_a_drift(simulation: ModuleType) -> None:
    drift, found = simulation.drift_power(simulation.Setting(), runs=20, seed=13, workers=1)
    assert drift >= 0.8 and found >= 0.95
