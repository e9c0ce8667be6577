import pytest

from sweeper.core.sample import SpecCounters
from sweeper.engine.counters import spec_counters

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
