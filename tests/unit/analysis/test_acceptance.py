import pytest

from sweeper.analysis.acceptance import (
    accept_length,
    as_accept_length,
    conditional_acceptance,
    joint_acceptance,
)


def test_positions_beyond_the_end_of_the_list_exist_and_are_zero():
    joint = joint_acceptance([30, 45, 50, 25], positions=5)
    assert joint == pytest.approx((1.0, 120 / 150, 75 / 150, 25 / 150, 0.0, 0.0))


def test_conditional_acceptance_is_undefined_where_nobody_came():
    conditional = conditional_acceptance(joint_acceptance([30, 45, 50, 25], positions=5))
    assert conditional[:4] == pytest.approx((0.8, 0.625, 1 / 3, 0.0))
    assert conditional[4] is None


def test_the_histogram_and_the_counters_say_the_same_length():
    histogram = (30, 45, 50, 25)
    joint = joint_acceptance(histogram)
    correct = sum(i * count for i, count in enumerate(histogram))
    assert accept_length(correct, sum(histogram), None)[0] == pytest.approx(1 + sum(joint[1:]))


def test_three_ways_to_report_one_drafter_are_one_length():
    assert accept_length(3120, 2000, None) == (2.56, "correct_drafts")
    assert as_accept_length(1.56, counts_bonus=False) == pytest.approx(2.56)
    assert as_accept_length(2.56, counts_bonus=True) == 2.56
