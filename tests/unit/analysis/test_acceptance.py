from dataclasses import replace

import pytest
from load_samples import counters, sample

from sweeper.analysis.acceptance import (
    accept_length,
    conditional_acceptance,
    joint_acceptance,
)
from sweeper.analysis.decompose import draft_positions
from sweeper.analysis.metrics import summarize
from sweeper.analysis.points import pool
from sweeper.testing.runs import effective, model_run


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


def test_the_targets_own_token_is_counted_whatever_a_tool_calls_a_length():
    assert accept_length(3120, 2000, None) == (2.56, "correct_drafts")


def test_positions_that_no_step_reached_are_in_the_metrics_and_in_the_pooled_numbers():
    samples = [sample((1, 1), (9, 30), spec=counters(20, 17, 100, 8, 7, 5))]
    spec = summarize(samples, draft_tokens=6, positions=5, concurrency=1).spec
    assert spec is not None
    assert spec.joint == pytest.approx((1, 0.6, 0.25, 0, 0, 0))
    assert spec.conditional is not None and spec.conditional[3:] == (None, None)
    measurement = next(entry for entry in model_run(("5-1-6",)).measurements if entry.effective.algorithm)
    metrics = summarize(samples, draft_tokens=6, concurrency=1)
    pooled = pool([replace(measurement, metrics=metrics)], steady=False).spec
    assert pooled is not None and pooled.joint == spec.joint


def test_without_known_positions_the_histogram_says_how_many_there_are():
    spec = summarize([sample((1, 1), (9, 30), spec=counters(20, 17, 100, 8, 7, 5))], draft_tokens=6, concurrency=1).spec
    assert spec is not None and spec.joint == pytest.approx((1, 0.6, 0.25))


def test_a_chain_has_a_position_a_step_and_a_tree_no_more_than_its_tokens():
    config = effective(model_run(("5-1-6",)).plan.arms[1])
    assert draft_positions(replace(config, num_steps=5, eagle_topk=1, num_draft_tokens=6)) == 5
    assert draft_positions(replace(config, num_steps=5, eagle_topk=4, num_draft_tokens=16)) == 5
    assert draft_positions(replace(config, num_steps=5, eagle_topk=2, num_draft_tokens=4)) == 3
    assert draft_positions(replace(config, num_steps=None, num_draft_tokens=16)) is None


def test_without_a_counter_of_correct_drafts_the_histogram_gives_the_length():
    samples = [
        sample((1, 1), (9, 30), spec=counters(20, None, None, 8, 7, 5)),
        sample((1, 1), (9, 30), spec=counters(10, 13, None, 2, 3, 5), index=1),
    ]
    spec = summarize(samples, draft_tokens=3, concurrency=1).spec
    assert spec is not None
    assert (spec.accept_length, spec.accept_length_basis) == (pytest.approx(1 + 30 / 30), "correct_drafts")
    assert spec.accept_rate == pytest.approx(30 / 60)
    assert spec.accept_length_request_mean == pytest.approx((1 + 17 / 20 + 2.3) / 2)
