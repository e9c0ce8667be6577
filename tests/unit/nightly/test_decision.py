"""One series: what is noise, what is news, since when."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thought_nights import history_of

from sweeper.analysis.nightly.course import accept, advance
from sweeper.analysis.nightly.decide import Finding, Tonight, decide
from sweeper.analysis.nightly.night import Night, combine
from sweeper.analysis.nightly.policy import Policy

LENGTHS = (3.12, 3.07, 3.1, 3.15, 3.08, 3.11, 3.05, 3.13, 3.09, 3.1)
RATES = (201.0, 200.2, 199.4, 200.8, 200.1, 199.7, 200.5, 199.9)


def nights(values: tuple[float, ...], seed: int = 1, repeats: int = 8) -> tuple[Night, ...]:
    """With repeats of 1 % noise around each value."""
    rng = random.Random(seed)
    return tuple(
        combine(f"n{number:03}", [value * (1 + rng.gauss(0, 0.01)) for _ in range(repeats)]).night
        for number, value in enumerate(values)
    )


def walk(values: list[float], *, quantity: str = "output_tok_per_s", seed: int = 7) -> list[Finding]:
    rng, past, found = random.Random(seed), (), []
    for number, value in enumerate(values):
        repeats = tuple(value * (1 + rng.gauss(0, 0.005) / 1) for _ in range(8))
        finding = decide(past, Tonight(night_id=f"n{number:03}", first=repeats), quantity)  # type: ignore[arg-type]
        past = advance(past, finding)
        found.append(finding)
    return found


def test_a_value_within_two_deviations_of_its_history_is_fine() -> None:
    finding = decide(history_of(LENGTHS), Tonight(night_id="x", first=(3.06, 3.05, 3.07)), "accept_length")
    assert finding.standing == "fine"
    assert finding.level == pytest.approx(3.10, rel=1e-3)
    assert finding.change == pytest.approx(-0.0129, abs=2e-4)
    assert finding.deviations == pytest.approx(-1.36, abs=0.05)


def test_ten_per_cent_less_in_all_repeats_is_an_alarm_on_the_first_night() -> None:
    finding = decide(history_of(LENGTHS), Tonight(night_id="x", first=(2.79, 2.77, 2.81)), "accept_length")
    assert finding.standing == "regressed"
    assert finding.since == "x"
    assert finding.change == pytest.approx(-0.1, abs=1e-3)
    assert finding.deviations == pytest.approx(-10.5, abs=0.3)
    assert finding.suspicious and not finding.confirmed


def test_one_slow_repeat_of_three_is_unstable_and_the_median_counts() -> None:
    finding = decide(history_of(RATES), Tonight(night_id="x", first=(190.2, 200.3, 199.9)), "output_tok_per_s")
    assert finding.standing == "fine"
    assert finding.unstable == (190.2,)
    assert finding.night.value == 199.9


def test_less_is_better_for_times() -> None:
    slower = Tonight(night_id="x", first=(11.1, 11.2, 11.15, 11.1))
    past = nights((10.0,) * 30)
    assert decide(past, slower, "verify_step_ms").standing == "regressed"
    assert decide(past, slower, "accept_length").standing == "improved"


def test_too_short_a_history_says_nothing() -> None:
    finding = decide(history_of((3.0,)), Tonight(night_id="x", first=(1.0, 1.0)), "accept_length")
    assert finding.standing == "learning" and finding.level is None


def test_two_good_nights_are_enough_to_see_a_broken_draft() -> None:
    past = nights((3.0, 3.0), repeats=3)
    assert decide(past, Tonight(night_id="x", first=(1.2, 1.21, 1.2)), "accept_length").standing == "regressed"
    assert decide(past, Tonight(night_id="x", first=(2.9, 2.91, 2.9)), "accept_length").standing == "fine"


def test_a_halved_value_is_seen_on_the_third_night_even_when_repeats_are_noisy() -> None:
    past = (combine("n0", [2.7, 2.4]).night, combine("n1", [2.83, 2.54]).night)
    tonight = Tonight(night_id="x", first=(1.3, 1.28), again=(1.32, 1.31))
    assert decide(past, tonight, "accept_length").standing == "regressed"
    slightly = Tonight(night_id="x", first=(2.4, 2.35), again=(2.38, 2.41))
    assert decide(past, slightly, "accept_length").standing == "fine"


def test_a_disturbed_sweep_is_set_right_by_the_second_measurement() -> None:
    past = nights((100.0,) * 30)
    first = tuple(93.0 + number / 10 for number in range(8))
    assert decide(past, Tonight(night_id="x", first=first), "output_tok_per_s").suspicious
    again = tuple(99.5 + number / 10 for number in range(12))
    finding = decide(past, Tonight(night_id="x", first=first, again=again), "output_tok_per_s")
    assert finding.standing == "fine" and finding.disturbed
    assert finding.night.value == pytest.approx(100.05)


def test_two_single_values_are_no_disturbance() -> None:
    assert combine("n", [21.0], [29.0]).disturbed is False
    assert combine("n", [21.0], [29.0]).night.value == 25.0
    assert combine("n", [21.0, 21.2], [29.0, 29.1]).disturbed is True


def test_a_second_measurement_that_agrees_confirms() -> None:
    past = nights((100.0,) * 30)
    first, again = (94.9, 95.2, 95.0, 94.8), (95.1, 94.7, 95.3, 95.0, 95.2, 94.9)
    finding = decide(past, Tonight(night_id="x", first=first, again=again), "output_tok_per_s")
    assert finding.standing == "regressed" and finding.confirmed
    assert finding.night.repeats == 10


def test_a_step_keeps_its_date_and_its_old_level_until_it_is_accepted() -> None:
    found = walk([100.0] * 30 + [95.0] * 40)
    assert [one.standing for one in found[30:]] == ["regressed"] * 40
    assert {one.since for one in found[30:]} == {"n030"}
    assert found[-1].level == pytest.approx(100, rel=0.005)


def test_what_recovers_is_fine_again_and_its_bad_nights_shift_nothing() -> None:
    found = walk([100.0] * 30 + [90.0] * 10 + [100.0] * 10)
    assert [one.standing for one in found[40:]] == ["fine"] * 10
    assert found[-1].level == pytest.approx(100, rel=0.005)


def test_a_second_loss_on_top_of_an_open_one_is_dated_to_the_first() -> None:
    found = walk([100.0] * 30 + [95.0] * 6 + [85.0] * 6)
    assert found[-1].since == "n030"
    assert found[-1].change == pytest.approx(-0.15, abs=0.01)


def test_an_improvement_becomes_the_level_after_some_nights() -> None:
    found = walk([100.0] * 30 + [106.0] * 12 + [100.0] * 3)
    assert found[30].standing == "improved"
    assert found[41].standing == "fine" and found[41].level == pytest.approx(106, rel=0.005)
    assert found[-1].standing == "regressed" and found[-1].since == "n042"


def test_a_slow_decline_is_called_a_drift_with_its_whole_loss() -> None:
    found = walk([100.0] * 40 + [100 * (1 - 0.05 * night / 30) for night in range(1, 31)])
    assert found[-1].standing == "drifting"
    assert found[-1].change == pytest.approx(-0.05, abs=0.008)
    assert abs(int((found[-1].since or "n0")[1:]) - 40) <= 6


def test_accepting_makes_the_regressed_nights_the_level() -> None:
    past: tuple[Night, ...] = ()
    for number, value in enumerate([100.0] * 20 + [90.0] * 4):
        repeats = (value, value * 1.002, value * 0.998)
        past = advance(past, decide(past, Tonight(night_id=f"n{number:03}", first=repeats), "output_tok_per_s"))
    assert [night.flagged for night in past[-5:]] == [False, True, True, True, True]
    blessed = accept(past, None)
    assert [night.night_id for night in blessed] == ["n020", "n021", "n022", "n023"]
    assert decide(blessed, Tonight(night_id="y", first=(90.1, 90.0)), "output_tok_per_s").standing == "fine"


def test_a_change_below_the_minimum_effect_is_no_news_however_sure() -> None:
    past = history_of((3.0,) * 60)
    tonight = Tonight(night_id="x", first=(2.96,) * 5)
    assert decide(past, tonight, "accept_length", Policy(prior_sd=1e-5)).standing == "regressed"
    lenient = Policy(prior_sd=1e-5, min_effects={"accept_length": 0.02})
    assert decide(past, tonight, "accept_length", lenient).standing == "fine"


@given(st.lists(st.floats(0.01, 1e6), min_size=0, max_size=12), st.lists(st.floats(0.01, 1e6), min_size=1, max_size=6))
def test_any_positive_numbers_give_a_finding(values: list[float], tonight: list[float]) -> None:
    finding = decide(history_of(values), Tonight(night_id="x", first=tuple(tonight)), "ttft_ms")
    assert finding.night.value > 0
    assert (finding.standing == "learning") == (len(values) < 2)
