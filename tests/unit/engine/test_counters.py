import pytest

from sweeper.core.sample import SpecCounters
from sweeper.engine.counters import counted_between, prometheus_counters, server_average, spec_counters

NEW = {
    "spec_verify_ct": 80,
    "spec_num_correct_drafts": 96,
    "spec_num_proposed_drafts": 240,
    "spec_correct_drafts_histogram": [30, 20, 14, 16],
}
MIDDLE = {
    "spec_verify_ct": 80,
    "spec_accepted_drafts": 96,
    "spec_proposed_drafts": 240,
    "spec_accept_histogram": [30, 20, 14, 16],
}


@pytest.mark.parametrize("meta", [NEW, MIDDLE])
def test_the_same_counters_under_two_sets_of_names_are_the_same_record(meta):
    expected = SpecCounters(verify_steps=80, correct_drafts=96, proposed_drafts=240, histogram=(30, 20, 14, 16))
    assert spec_counters(meta) == expected


def test_the_oldest_names_have_no_histogram_which_is_unknown_and_not_zero():
    counters = spec_counters({"spec_verify_ct": 80, "spec_accept_token_num": 96, "spec_draft_token_num": 240})
    assert counters == SpecCounters(verify_steps=80, correct_drafts=96, proposed_drafts=240, histogram=None)


def test_counters_under_unknown_names_are_unknown():
    counters = spec_counters({"spec_verify_ct": 80, "spec_brilliant_drafts": 96, "spec_accept_rate": 0.4})
    assert counters == SpecCounters(verify_steps=80, correct_drafts=None, proposed_drafts=None, histogram=None)


@pytest.mark.parametrize("meta", [{}, {"completion_tokens": 1}, {"spec_verify_ct": 0}])
def test_a_request_without_verify_steps_has_no_counters(meta):
    assert spec_counters(meta) is None


def test_a_server_without_a_tick_since_the_flush_has_no_average_and_says_why():
    info = {
        "speculative_algorithm": "EAGLE3",
        "decode_log_interval": 50,
        "internal_states": [{"last_gen_throughput": 9}],
    }
    average = server_average(info)
    assert average.accept_length is None
    assert "fewer than 50 decode steps since the last cache flush" in average.reason
    assert server_average({**info, "internal_states": [{"avg_spec_accept_length": 2.5}]}).accept_length == 2.5
    assert server_average({"internal_states": [{}]}).reason == "not speculative"


def test_vllm_counts_drafts_and_accepted_tokens_of_all_its_engines():
    text = """# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0"} 1500.0
vllm:spec_decode_num_drafts_total{engine="1"} 500.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 6000.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 3120.0
"""
    expected = SpecCounters(verify_steps=2000, correct_drafts=3120, proposed_drafts=6000, histogram=None)
    assert prometheus_counters(text) == expected
    assert prometheus_counters("sglang:num_running_reqs 1\n") is None


def test_a_load_is_what_lifetime_counters_gained_over_it():
    before = SpecCounters(verify_steps=100, correct_drafts=150, proposed_drafts=300, histogram=None)
    after = SpecCounters(verify_steps=140, correct_drafts=250, proposed_drafts=420, histogram=None)
    assert counted_between(before, after) == SpecCounters(
        verify_steps=40, correct_drafts=100, proposed_drafts=120, histogram=None
    )
    assert counted_between(None, after) == after
    assert counted_between(after, before) is None  # started anew
