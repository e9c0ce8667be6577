"""Counters out of the end of an answer."""

import json

from sweeper.engine.tail import last_counters

META = {
    "id": "r1",
    "finish_reason": {"type": "length", "length": 8},
    "completion_tokens": 8,
    "spec_verify_ct": 5,
    "spec_num_correct_drafts": 3,
    "spec_correct_drafts_histogram": [3, 1, 1],
}


def pieces(*events: dict[str, object]) -> list[tuple[int, bytes]]:
    """As they come over the wire: in HTTP chunks."""
    data = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    return [(0, b"%x\r\n%s\r\n" % (len(one), one)) for one in [*data, b"data: [DONE]\n\n"]]


def test_the_last_event_of_a_native_answer_is_enough() -> None:
    counters = last_counters(pieces({"text": "a { b", "meta_info": {"id": "r1"}}, {"text": "a {", "meta_info": META}))
    assert counters is not None
    assert (counters.verify_steps, counters.correct_drafts, counters.histogram) == (5, 3, (3, 1, 1))


def test_the_details_of_an_openai_answer_are_found_before_what_follows_them() -> None:
    details = {"choices": [], "sglext": {"spec_tokens_details": {"spec_verify_ct": 7, "spec_num_correct_drafts": 0}}}
    counters = last_counters(pieces(details, {"choices": [], "usage": {"completion_tokens": 9}}))
    assert counters is not None and (counters.verify_steps, counters.correct_drafts) == (7, 0)


def test_a_long_answer_is_not_read_whole() -> None:
    long = {"text": "x" * 200_000, "meta_info": META}
    assert last_counters(pieces(long)) is not None


def test_an_answer_that_speaks_of_counters_has_none() -> None:
    assert last_counters(pieces({"text": 'set "spec_verify_ct": 5 {', "meta_info": {"completion_tokens": 3}})) is None
    assert last_counters([]) is None


def test_an_object_that_is_cut_is_passed_over() -> None:
    (first, *_) = pieces({"text": "", "meta_info": META})
    assert last_counters([(0, first[1][:-40])]) is None
