"""What a server sends and logs: every answer becomes a sample that is stored and read back, whatever stands in it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_foreign_files import JSON, QUIET, spoilt

from sweeper.analysis.metrics import summarize
from sweeper.core.experiment import Workload
from sweeper.core.launch import EffectiveConfig
from sweeper.core.lossless import ReferenceAnswer
from sweeper.core.sample import Prompt, Sample
from sweeper.engine.counters import prometheus_counters, server_average
from sweeper.engine.decode_log import decode_lines, draft_tokens_of
from sweeper.engine.http1 import FramingError, ResponseEnd, unframe
from sweeper.engine.log import pace_of
from sweeper.engine.logprobs import reference_answer
from sweeper.engine.tail import last_counters
from sweeper.engine.wire import Endpoint, Reply, effective_config, message_of, sample_of
from sweeper.store.codec import from_json, to_json
from sweeper.store.samples import samples_from_parquet, samples_to_parquet

PROMPT = Prompt(prompt_id="p", category="c", text="hi")
COUNTERS = {"spec_verify_ct": 1, "spec_num_correct_drafts": 1, "spec_accept_histogram": [0, 1]}
META = {"prompt_tokens": 3, "completion_tokens": 2, "cached_tokens": 0, "finish_reason": {"type": "length"}, **COUNTERS}
ANSWERS: dict[Endpoint, list[dict[str, Any]]] = {
    "generate": [
        {"text": "a", "output_ids": [1], "meta_info": {"prompt_tokens": 3, "completion_tokens": 1}},
        {"text": "ab", "output_ids": [1, 2], "meta_info": {**META, "num_retractions": 0}},
    ],
    "chat": [
        {"choices": [{"delta": {"content": "a", "reasoning_content": None}}], "usage": {"completion_tokens": 1}},
        {
            "choices": [{"delta": {"content": "b"}, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}},
            "sglext": {"output_ids": [[1, 2]], "spec_tokens_details": COUNTERS},
        },
    ],
    "completions": [
        {"choices": [{"text": "a", "token_ids": [1], "finish_reason": None}], "usage": None},
        {"choices": [{"text": "b", "token_ids": [2], "finish_reason": "stop"}], "usage": {"completion_tokens": 2}},
    ],
}


def answer(events: Any, endpoint: Endpoint) -> Reply:
    body = [(1, b"data: " + json.dumps(event).encode() + b"\n\n") for event in events]
    return Reply(due_ns=0, send_ns=0, end_ns=9, status=200, body=[*body, (9, b"data: [DONE]\n\n")], failure=None)


def stored(sample: Sample, path: Any) -> Sample:
    path.write_bytes(samples_to_parquet((sample,)))
    (found,) = samples_from_parquet(path)
    summarize((sample, found), draft_tokens=4, concurrency=1)
    return found


@QUIET
@given(draw=st.data(), endpoint=st.sampled_from(sorted(ANSWERS)))
def test_any_value_anywhere_in_a_stream_gives_a_sample_that_can_be_stored(
    draw: st.DataObject, endpoint: Endpoint, tmp_path: Any
) -> None:
    events = list(ANSWERS[endpoint])
    events[at] = spoilt(draw, events[at := draw.draw(st.sampled_from([0, 1]))])
    reply = answer(events, endpoint)
    found = stored(sample_of(reply, PROMPT, index=0, endpoint=endpoint), tmp_path / "samples")
    assert found.error is None or found.error.kind in ("garbage", "error_chunk", "incomplete", "aborted")
    message_of(reply, endpoint)
    last_counters(reply.body)


@pytest.mark.parametrize(
    ("where", "value"),
    [("prompt_tokens", "3"), ("completion_tokens", 2**70), ("cached_tokens", [0]), ("prompt_tokens", -1)],
)
def test_a_count_that_is_none_is_garbage(where: str, value: object, tmp_path: Any) -> None:
    events = [ANSWERS["generate"][0], {"text": "ab", "meta_info": {**META, where: value}}]
    found = stored(sample_of(answer(events, "generate"), PROMPT, index=0, endpoint="generate"), tmp_path / "samples")
    assert found.error is not None and found.error.kind == "garbage"


def test_ids_that_are_none_are_not_known_and_the_answer_counts(tmp_path: Any) -> None:
    events = [{"text": "ab", "output_ids": [[], "x"], "meta_info": META}]
    found = stored(sample_of(answer(events, "generate"), PROMPT, index=0, endpoint="generate"), tmp_path / "samples")
    assert (found.ok, found.output_ids, found.output_tokens) == (True, None, 2)


@pytest.mark.parametrize("size", [b"-6", b"-4", b"0x5", b"1_0", b"+5", b"f" * 20, b""])
@pytest.mark.timeout(10)
def test_a_chunk_size_that_is_none_ends_the_response(size: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    with pytest.raises(FramingError, match="chunk size"):
        ResponseEnd().add(0, head + size + b"\r\nabc\r\n\r\n")
    with pytest.raises(FramingError, match="chunk size"):
        unframe([(0, head + size + b"\r\nabc\r\n\r\n")])


def test_thousands_of_interim_responses_and_endless_numbers_are_no_crash() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" * 3000
    assert ResponseEnd().add(0, interim + b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx")
    for line in (b"HTTP/1.1 " + b"2" * 5000 + b" OK", b"HTTP/1.1 200 OK\r\ncontent-length: " + b"1" * 5000):
        with pytest.raises(FramingError):
            ResponseEnd().add(0, line + b"\r\n\r\n")


PIECES = st.sampled_from(
    [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 C\r\n", b"transfer-encoding: chunked\r\n", b"content-length: 5\r\n",
     b"\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n", b"-6\r\n", b"fffff\r\n", b"5;x=y\r\n", b"\r\n\r\n"]
)  # fmt: skip


@QUIET
@given(st.lists(PIECES | st.binary(max_size=4), max_size=12))
def test_any_bytes_on_a_connection_are_a_response_or_refused(pieces: list[bytes]) -> None:
    timed = list(enumerate(pieces))
    for read in (lambda: any(map(ResponseEnd().add, range(len(pieces)), pieces)), lambda: unframe(timed)):
        try:
            read()
        except FramingError as error:
            assert str(error)


REFERENCES: dict[Endpoint, dict[str, Any]] = {
    "generate": {
        "text": "a",
        "output_ids": [1],
        "meta_info": {"output_top_logprobs": [[[-0.1, 1, None], [-2.0, 2, None]]], "finish_reason": {"type": "stop"}},
    },
    "chat": {
        "choices": [
            {
                "logprobs": {"content": [{"token": "a", "top_logprobs": [{"logprob": -0.1}, {"logprob": -2}]}]},
                "message": {"content": "a"},
                "response_token_ids": [1],
            }
        ]
    },
}


@QUIET
@given(draw=st.data(), endpoint=st.sampled_from(sorted(REFERENCES)))
def test_any_log_probabilities_are_stored_or_refused(draw: st.DataObject, endpoint: Endpoint) -> None:
    workload = Workload(endpoint=endpoint, max_tokens=4, num_prompts=1, concurrency=[1])
    try:
        found = reference_answer(json.dumps(spoilt(draw, REFERENCES[endpoint])), PROMPT, workload, max_tokens=4)
    except ValueError as error:
        assert str(error)
        return
    from_json(ReferenceAnswer, to_json(found), origin="x")


KEYS = ("version", "model_path", "speculative_num_steps", "speculative_num_draft_tokens", "tp_size", "internal_states")


@QUIET
@given(st.dictionaries(st.sampled_from((*KEYS, "speculative_algorithm", "decode_log_interval")), JSON))
def test_any_server_info_is_stored_and_read_back(info: dict[str, Any]) -> None:
    from_json(EffectiveConfig, to_json(effective_config(info)), origin="x")
    server_average(info)


WORDS = st.sampled_from(
    ["Decode batch. ", "#running-req: ", "accept len: ", "gen throughput (token/s): ", "1", ".", "..", "3.4.5", ", ",
     "speculative_num_draft_tokens=4", "vllm:spec_decode_num_drafts_total ", '{a="b"} ', "nan", "inf", "\n",
     "9" * 5000]
)  # fmt: skip


@QUIET
@given(st.lists(WORDS | st.text(max_size=3), max_size=12).map("".join))
def test_any_log_line_and_any_metrics_are_read(text: str) -> None:
    decode_lines(text.splitlines(), num_draft_tokens=draft_tokens_of(text))
    pace_of(text)
    prometheus_counters(text)
