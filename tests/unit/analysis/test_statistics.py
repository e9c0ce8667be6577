"""The decision, on numbers worked out by hand and on seeded noise."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sweeper.analysis.statistics import Cell, contrast, decide, pooled_noise


def cells(**arms: list[list[float]]) -> dict[Cell, dict[tuple[int, int], float]]:
    """arm → starts → repeats, at one load point."""
    return {
        Cell(arm, "8"): {(s, r): rate for s, start in enumerate(starts) for r, rate in enumerate(start)}
        for arm, starts in arms.items()
    }


def baselines(*arms: str) -> dict[str, str]:
    return {"base": "base", **dict.fromkeys(arms, "base")}


def test_interval_is_student_t_on_log_ratios_of_start_means() -> None:
    made = cells(base=[[100.0, 100.0], [102.0, 102.0]], fast=[[150.0, 150.0], [151.0, 151.0]])
    estimate = decide(made, baselines("fast")).estimates[Cell("fast", "8")]

    logs = {"base": [math.log(100), math.log(102)], "fast": [math.log(150), math.log(151)]}
    pooled = sum((x - sum(v) / 2) ** 2 for v in logs.values() for x in v) / 2
    half = stats.t.ppf(0.975, 2) * math.sqrt(pooled * (1 / 2 + 1 / 2))
    centre = sum(logs["fast"]) / 2 - sum(logs["base"]) / 2
    assert estimate.low is not None and estimate.high is not None
    assert estimate.ratio == pytest.approx(math.exp(centre))
    assert (estimate.low, estimate.high) == pytest.approx((math.exp(centre - half), math.exp(centre + half)))
    assert estimate.verdict == "better"


def test_p_values_are_students() -> None:
    made = cells(base=[[100.0], [102.0], [101.0]], arm=[[103.0], [104.5], [102.0]])
    p_value = decide(made, baselines("arm")).estimates[Cell("arm", "8")].p_value
    logs = [[math.log(x) for x in (103.0, 104.5, 102.0)], [math.log(x) for x in (100.0, 102.0, 101.0)]]
    assert p_value == pytest.approx(float(stats.ttest_ind(*logs).pvalue))


def test_holm_tests_the_smallest_p_value_at_the_strictest_level() -> None:
    made = cells(
        base=[[100.0], [101.0]], a=[[130.0], [131.0]], b=[[100.5], [101.0]], c=[[120.0], [121.0]], d=[[99.0], [101.5]]
    )
    estimates = decide(made, baselines("a", "b", "c", "d")).estimates
    levels = {cell.arm: estimate.level for cell, estimate in estimates.items()}
    assert levels["a"] == pytest.approx(0.05 / 4)
    assert levels["c"] == pytest.approx(0.05 / 3)
    # After the first that is not rejected, the others are judged at its level.
    assert levels["b"] == levels["d"] == pytest.approx(0.05 / 2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(50, 200), min_size=12, max_size=12))
def test_verdict_and_interval_never_contradict_each_other(rates: list[float]) -> None:
    made = cells(base=[rates[0:2], rates[2:4]], a=[rates[4:6], rates[6:8]], b=[rates[8:10], rates[10:12]])
    for estimate in decide(made, baselines("a", "b")).estimates.values():
        assert estimate.low is not None and estimate.high is not None
        assert (estimate.verdict == "no difference") == (estimate.low <= 1 <= estimate.high)
        assert (estimate.verdict == "better") == (estimate.low > 1)


def test_one_start_falls_back_to_repeats_and_says_so() -> None:
    made = cells(base=[[100.0, 101.0, 99.0]], arm=[[110.0, 111.0, 109.0]])
    decision = decide(made, baselines("arm"))
    assert decision.noise is not None
    assert decision.noise.scope == "within one server start"
    assert decision.noise.degrees == 4


def test_a_baseline_that_ran_first_and_last_counts_twice_but_makes_no_second_start() -> None:
    made = cells(base=[[100.0, 101.0], [98.0, 99.0]], arm=[[110.0, 111.0]])
    decision = decide(made, baselines("arm"))
    assert decision.noise is not None
    assert decision.noise.scope == "within one server start"
    both = (100 * 101 * 98 * 99) ** 0.25
    assert decision.estimates[Cell("arm", "8")].ratio == pytest.approx((110 * 111) ** 0.5 / both)


def test_one_measurement_each_is_undecided_and_has_no_interval() -> None:
    decision = decide(cells(base=[[100.0]], arm=[[150.0]]), baselines("arm"))
    estimate = decision.estimates[Cell("arm", "8")]
    assert (estimate.verdict, estimate.low, estimate.high) == ("undecided", None, None)
    assert estimate.ratio == pytest.approx(1.5)
    assert decision.floors == {}


def test_blocks_that_only_one_side_has_are_left_out_of_the_ratio() -> None:
    made = cells(base=[[100.0, 50.0], [100.0, 100.0]], arm=[[110.0], [110.0, 110.0]])
    assert decide(made, baselines("arm")).estimates[Cell("arm", "8")].ratio == pytest.approx(1.1)


def test_noise_is_pooled_over_load_points() -> None:
    made = {
        Cell("base", "1"): {(0, 0): 100.0, (1, 0): 102.0},
        Cell("base", "8"): {(0, 0): 400.0, (1, 0): 400.0},
    }
    noise = pooled_noise(made, "between server starts")
    assert noise is not None
    assert noise.degrees == 2
    assert noise.sd == pytest.approx(math.log(1.02) / 2)


def test_floor_is_the_difference_that_would_just_be_claimed() -> None:
    rates = [[100.0], [101.0]]
    floor = decide(cells(base=rates, arm=rates), baselines("arm")).floors["8"]
    for factor, verdict in ((floor * 1.001, "better"), (floor * 0.999, "no difference")):
        moved = decide(cells(base=rates, arm=[[x * factor for x in start] for start in rates]), baselines("arm"))
        assert moved.estimates[Cell("arm", "8")].verdict == verdict


def test_without_measured_noise_no_two_can_be_told_apart() -> None:
    (estimate,) = contrast([({(0, 0): 100.0}, {(0, 0): 150.0})], None)
    assert (estimate.verdict, estimate.low) == ("undecided", None)


def test_a_load_point_without_a_baseline_gives_no_estimate() -> None:
    made = {Cell("base", "1"): {(0, 0): 1.0}, Cell("arm", "8"): {(0, 0): 1.0}}
    assert decide(made, baselines("arm")).estimates == {}


@pytest.mark.parametrize(("starts", "found"), [(2, 0.85), (3, 0.95)])
def test_false_alarms_stay_rare_and_true_gains_are_found(starts: int, found: float) -> None:
    """The small version of benchmarks/decision_power.py, which holds 5 % and 90 % over thousands of runs."""
    rng, runs = random.Random(7), 150
    arms = baselines("1", "2", "3", "4")

    def one_run(gain: float) -> dict[Cell, dict[tuple[int, int], float]]:
        made: dict[Cell, dict[tuple[int, int], float]] = {}
        for arm in arms:
            for start in range(starts):
                shift = rng.gauss(0, 0.005)
                for load in "abc":
                    for repeat in range(4):
                        rate = math.exp(shift + rng.gauss(0, 0.02)) * (1 + gain if arm == "1" else 1)
                        made.setdefault(Cell(arm, load), {})[start, repeat] = rate
        return made

    alarms = hits = 0
    for _ in range(runs):
        same = decide(one_run(0), arms).estimates
        alarms += len({cell.load for cell, estimate in same.items() if estimate.verdict != "no difference"})
        better = decide(one_run(0.05), arms).estimates
        hits += sum(better[Cell("1", load)].verdict == "better" for load in "abc")
    assert alarms / (3 * runs) <= 0.075
    assert hits / (3 * runs) >= found


def test_no_difference_says_how_large_a_difference_may_still_be():
    quiet = {
        Cell(arm, "8"): {(0, i): rate * (1 + 0.001 * (i % 2)) for i in range(4)}
        for arm, rate in (("b", 100.0), ("a", 100.05))
    }
    loud = {
        Cell(arm, "8"): {(0, i): rate * (1 + 0.05 * (i % 2)) for i in range(4)}
        for arm, rate in (("b", 100.0), ("a", 100.05))
    }
    bands = []
    for cells in (quiet, loud):
        estimate = decide(cells, {"a": "b", "b": "b"}).estimates[Cell("a", "8")]
        assert estimate.verdict == "no difference" and estimate.low is not None and estimate.high is not None
        assert estimate.within == pytest.approx(max(estimate.high, 1 / estimate.low) - 1)
        bands.append(estimate.within)
    assert bands[0] < 0.01 < 0.04 < bands[1]
