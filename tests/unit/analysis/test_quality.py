from dataclasses import replace

import pytest
from load_samples import counters, sample

from sweeper.analysis.availability import missing
from sweeper.analysis.metrics import summarize
from sweeper.analysis.quality import (
    answers_of,
    cache_mark,
    content_marks,
    double_run_mark,
    effective_mode,
    greedy_mark,
    loop_period,
    simulation_mark,
)

VARIED = (4, 9, 17, 3, 88, 21, 9, 54, 61, 2, 77, 30, 12, 45, 6, 90)


def codes(*samples):
    return {mark.code for mark in content_marks(samples) if not mark.ranked}


@pytest.mark.parametrize("period", [1, 2, 3, 5])
def test_a_loop_is_found_at_every_short_period(period):
    assert loop_period([99, *list(range(period)) * 12]) == period


def test_varied_text_and_text_that_repeats_a_line_twice_are_no_loops():
    assert loop_period(VARIED) is None
    assert loop_period((*VARIED, *VARIED)) is None
    assert loop_period([5, 5, 5]) is None


def test_an_arm_that_repeats_itself_is_not_ranked():
    ones = sample((1, 1), (2, 15), ids=(4, *(9,) * 15))
    twos = sample((1, 1), (2, 15), ids=(31, *(17, 18) * 7, 17), index=1)
    assert codes(ones, twos) == {"repeated-output"}
    assert codes(sample((1, 1), (2, 15), ids=VARIED)) == set()


def test_one_loop_among_many_answers_is_told_but_still_ranked():
    good = [sample((1, 1), (2, 15), ids=tuple(x + i for x in VARIED), index=i) for i in range(7)]
    marks = content_marks([*good, sample((1, 1), (2, 15), ids=(9,) * 16, index=8)])
    assert [(mark.code, mark.ranked) for mark in marks] == [("repeated-output", True)]


def test_empty_and_instantly_ended_answers_are_not_ranked():
    assert codes(sample((1, 1), text="", ids=()), sample((1, 1), text="x", index=1)) == {"empty-output"}


def test_the_same_answer_to_all_prompts_is_not_ranked():
    assert codes(*(sample((1, 1), (2, 15), ids=VARIED, index=i) for i in range(4))) == {"identical-output"}


def test_the_same_prompt_may_get_the_same_answer():
    same = sample((1, 1), (2, 15), ids=VARIED)
    assert codes(same, same, same, same) == set()


def test_simulated_acceptance_is_seen_from_the_environment():
    assert simulation_mark({"SGLANG_SIMULATE_ACC_LEN": "2.5"}) is not None
    assert simulation_mark({"SGLANG_SIMULATE_ACC_LEN": "-1"}) is None
    assert simulation_mark({}) is None


def test_simulated_acceptance_is_seen_from_the_output():
    fake = [sample((1, 1), (9, 40), ids=(100,) * 41, spec=counters(20 + i, 40 + 2 * i), index=i) for i in range(2)]
    assert "simulated-acceptance" in codes(*fake)
    real = [sample((1, 1), (9, 40), ids=VARIED, spec=counters(20, 40), index=i) for i in range(2)]
    assert "simulated-acceptance" not in codes(*real)


def test_a_load_on_a_warm_prefix_cache_is_not_ranked():
    warm = summarize([sample((1, 1), (9, 9), inputs=(4096, 4000))], draft_tokens=None, concurrency=1)
    cold = summarize([sample((1, 1), (9, 9), inputs=(4096, 4))], draft_tokens=None, concurrency=1)
    mark = cache_mark(warm)
    assert mark is not None and not mark.ranked and "97.7%" in mark.message
    assert cache_mark(cold) is None


def test_prompts_that_share_a_long_beginning_are_told_and_ranked():
    shared = summarize([sample((1, 1), (9, 9), inputs=(4096, 3000))], draft_tokens=None, concurrency=1)
    mark = cache_mark(shared)
    assert mark is not None and mark.ranked


@pytest.mark.parametrize(
    ("temperature", "top_p", "top_k", "mode"),
    [
        (0.0, None, None, "greedy"),
        (0.7, None, None, "sampled"),
        (0.7, None, 1, "greedy"),
        (0.9, 0.0005, None, "greedy"),
        (1.0, 0.95, -1, "sampled"),
    ],
)
def test_what_a_sampling_request_comes_to(temperature, top_p, top_k, mode):
    said = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "speculative_rejection_sampling": False}
    assert effective_mode(**said, device="cuda") == mode
    assert effective_mode(**said, device="hip") == "greedy"


@pytest.mark.parametrize("rejection", [True, False])
def test_on_a_cpu_speculation_is_greedy_whatever_is_asked_and_the_baseline_samples(rejection):
    asked = {"temperature": 1.0, "top_p": None, "top_k": None, "device": "cpu"}
    assert effective_mode(**asked, speculative_rejection_sampling=rejection) == "greedy"
    assert effective_mode(**asked, speculative_rejection_sampling=None) == "sampled"


def test_a_temperature_without_effect_is_marked_and_a_greedy_request_is_not():
    platform = {"top_p": None, "top_k": None, "device": "hip", "speculative_rejection_sampling": False}
    mark = greedy_mark(temperature=1.0, **platform)
    assert mark is not None and not mark.ranked and "device hip" in mark.message
    assert greedy_mark(temperature=0.0, **platform) is None


def test_missing_usage_is_said_and_not_filled_with_the_requested_length():
    reasons = missing([sample((100, 1), (250, 1), counted=False, tokens=None)])
    assert "did not ask for it" in reasons["output_tok_per_s"]


def test_a_total_without_chunk_counts_gives_a_bound_of_the_decode_rate():
    reasons = missing([sample((80, 1), (230, 1), counted=False, tokens=13)])
    assert "first chunk size unknown" in reasons["tpot_ms"]
    assert "at most 80.0 tok/s" in reasons["tpot_ms"]
    assert missing([sample((1, 1), (2, 3))]) == {}


def test_counters_that_contradict_each_other_are_told():
    sound = sample((1, 1), (9, 8), ids=VARIED, spec=counters(4, 5, 12, 1, 2, 0, 1))
    trimmed = sample((1, 1), (9, 6), ids=VARIED, spec=counters(4, 5, 12, 1, 2, 0, 1), index=1)
    wrong = sample((1, 1), (9, 8), ids=VARIED, spec=counters(5, 5, 15, 1, 2, 0, 1))
    too_long = sample((1, 1), (9, 30), ids=VARIED, spec=counters(4, 5))
    assert content_marks([sound, trimmed]) == ()
    assert [mark.code for mark in content_marks([wrong])] == ["counters-contradict"]
    assert [mark.code for mark in content_marks([too_long])] == ["counters-contradict"]


def test_proposed_drafts_must_be_the_steps_times_the_drafts_of_a_step():
    sound = sample((1, 1), (9, 8), ids=VARIED, spec=counters(4, 5, 12))
    assert content_marks([sound], draft_tokens=4) == ()
    (mark,) = content_marks([sound], draft_tokens=5)
    assert (mark.code, mark.ranked) == ("counters-contradict", True)


def test_without_the_number_of_drafts_a_request_that_proposes_otherwise_than_the_others_is_told():
    spec = {"ids": VARIED}
    usual = [sample((1, 1), (9, 8), spec=counters(4, 5, 12), index=i, **spec) for i in range(2)]
    other = sample((1, 1), (9, 8), spec=counters(4, 5, 16), index=2, **spec)
    uneven = sample((1, 1), (9, 8), spec=counters(4, 5, 13), index=3, **spec)
    assert content_marks(usual) == ()
    assert "1 of 3 requests" in content_marks([*usual, other])[0].message
    assert [mark.code for mark in content_marks([uneven])] == ["counters-contradict"]


def test_a_second_run_of_the_same_prompts_unmasks_a_server_that_does_not_sample():
    said = [replace(sample((1, 1), (9, 40)), prompt_id=f"p{i}", text=f"answer {i}") for i in range(3)]
    first = answers_of(said)
    mark = double_run_mark(first, said, temperature=0.8)
    assert mark is not None and mark.code == "silently-greedy" and not mark.ranked
    assert double_run_mark(first, said, temperature=0.0) is None
    other = [said[0], said[1], replace(said[2], text="another answer")]
    assert double_run_mark(first, other, temperature=0.8) is None


def test_a_few_equal_tokens_prove_nothing():
    said = [sample((1, 1), (9, 4))]
    assert double_run_mark(answers_of(said), said, temperature=0.8) is None
    assert double_run_mark({}, said * 9, temperature=0.8) is None


def test_later_turns_find_what_came_before_in_the_cache_and_that_is_no_warm_prefix():
    first = sample((1, 1), (9, 40), inputs=(100, 0))
    later = replace(sample((11, 1), (19, 40), send=10, inputs=(1000, 990)), turn=2)
    assert cache_mark(summarize([first, later], draft_tokens=None, concurrency=1)) is None
    warm = replace(first, cached_tokens=99)
    mark = cache_mark(summarize([warm, later], draft_tokens=None, concurrency=1))
    assert mark is not None and mark.code == "warm-prefix"
