import json

import pytest

from sweeper.core.experiment import Workload
from sweeper.core.sample import Prompt, RequestError, Sample
from sweeper.engine.wire import Endpoint, Reply, effective_config, request_body, sample_of

PROMPT = Prompt(prompt_id="p", category="code", text="Say", messages=(("user", "Say"),))
MS = 1_000_000


def sse(*events: object) -> bytes:
    return b"".join(b"data: " + (e if isinstance(e, bytes) else json.dumps(e).encode()) + b"\n\n" for e in events)


def read(
    endpoint: Endpoint,
    *timed: tuple[int, bytes],
    status: int | None = 200,
    failure: RequestError | None = None,
) -> Sample:
    reply = Reply(
        due_ns=0, send_ns=0, end_ns=999 * MS, status=status, body=[(t * MS, b) for t, b in timed], failure=failure
    )
    return sample_of(reply, PROMPT, index=3, endpoint=endpoint)


def native(count: int, text: str, finish: object = None, **meta: object) -> dict[str, object]:
    said = {"completion_tokens": count, "prompt_tokens": 5, "cached_tokens": 2, "finish_reason": finish, **meta}
    return {"text": text, "output_ids": list(range(count)), "meta_info": said}


def spoken(text: str, finish: str | None = None, usage: int | None = None) -> dict[str, object]:
    counts = {"prompt_tokens": 5, "completion_tokens": usage, "total_tokens": 9} if usage else None
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], "usage": counts}


STOP = {"type": "stop"}
DONE = b"[DONE]"


def test_generate_counts_tokens_by_the_growth_of_the_servers_count():
    sample = read(
        "generate",
        (200, sse(native(1, "a"))),
        (230, sse(native(4, "a b c d"))),
        (260, sse(native(4, "a b c d"), native(6, "a b c d e f", STOP, spec_verify_ct=2), DONE)),
    )
    assert sample.ok
    assert sample.chunk_ns == (200 * MS, 230 * MS, 260 * MS)
    assert sample.chunk_tokens == (1, 3, 2)
    assert (sample.output_tokens, sample.input_tokens, sample.cached_tokens) == (6, 5, 2)
    assert (sample.text, sample.output_ids, sample.finish_reason) == ("a b c d e f", (0, 1, 2, 3, 4, 5), "stop")
    assert sample.end_ns == 260 * MS
    assert sample.spec is not None and sample.spec.verify_steps == 2


def test_half_a_surrogate_pair_is_text_like_any_other():
    sample = read("generate", (10, sse(native(1, "a \ud83d", STOP), DONE)))
    assert sample.ok
    assert sample.text == "a \ud83d"


def test_a_server_that_streams_increments_is_put_together_again():
    first = {"text": "a ", "output_ids": [7], "meta_info": {"completion_tokens": 1, "finish_reason": None}}
    second = {"text": "b c", "output_ids": [8, 9], "meta_info": {"completion_tokens": 3, "finish_reason": STOP}}
    sample = read("generate", (1, sse(first)), (2, sse(second, DONE)))
    assert (sample.text, sample.output_ids, sample.chunk_tokens) == ("a b c", (7, 8, 9), (1, 2))


def test_chat_counts_by_continuous_usage_and_takes_the_counters_beside_the_text():
    role = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
    spec = {"choices": [], "sglext": {"spec_tokens_details": {"spec_verify_ct": 1, "spec_num_correct_drafts": 3}}}
    sample = read(
        "chat",
        (100, sse(role, spoken("x", usage=1))),
        (120, sse(spoken(" y z", usage=4), spoken("", "length"), spec)),
        (121, sse({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 4}}, DONE)),
    )
    assert sample.ok
    assert (sample.chunk_ns, sample.chunk_tokens) == ((100 * MS, 120 * MS), (1, 3))
    assert (sample.text, sample.output_tokens, sample.finish_reason) == ("x y z", 4, "length")
    assert sample.spec is not None and (sample.spec.verify_steps, sample.spec.correct_drafts) == (1, 3)


def test_usage_at_the_end_only_gives_the_total_but_no_tokens_per_chunk():
    last = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}}
    sample = read(
        "chat", (100, sse(spoken("one"))), (150, sse(spoken(" two"))), (190, sse(spoken(" six", "stop"), last, DONE))
    )
    assert (sample.output_tokens, sample.chunk_tokens) == (12, None)
    assert sample.chunk_ns == (100 * MS, 150 * MS, 190 * MS)


def test_an_answer_in_one_chunk_came_with_its_text_and_not_with_its_usage():
    last = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}}
    sample = read("chat", (100, sse(spoken("one", "stop"))), (130, sse(last, DONE)))
    assert (sample.chunk_ns, sample.chunk_tokens, sample.output_tokens) == ((100 * MS,), (2,), 2)


def test_a_stream_without_usage_has_an_unknown_number_of_tokens():
    sample = read("chat", (100, sse(spoken("Yes"))), (250, sse(spoken(", that works", "stop"), DONE)))
    assert sample.ok
    assert (sample.output_tokens, sample.chunk_tokens) == (None, None)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (sse(native(1, "a"), {"error": {"message": "out of memory"}}, DONE), "error_chunk"),
        (sse(native(1, "a"), native(2, "a b", {"type": "abort", "message": "client"}), DONE), "aborted"),
        (sse(native(1, "a"), b"{broken", native(2, "a b", STOP), DONE), "garbage"),
        (sse(native(1, "a"), b"null", native(2, "a b", STOP), DONE), "garbage"),
        (sse(native(1, "a"), b'{"strange": 1}', native(2, "a b", STOP), DONE), "garbage"),
        (sse(native(1, "a"), b'{"meta_info": [1]}', native(2, "a b", STOP), DONE), "garbage"),
        (sse(native(1, "a"), b"\xff\xfe", native(2, "a b", STOP), DONE), "garbage"),
        (sse(native(1, "a")), "incomplete"),
        (sse(native(1, "a"), DONE), "incomplete"),
        (b"", "incomplete"),
    ],
)
def test_what_went_wrong_inside_a_good_status_is_an_error_of_its_kind(body, kind):
    sample = read("generate", (5, body))
    assert sample.error is not None
    assert sample.error.kind == kind


def test_an_error_status_is_an_error_with_its_text():
    sample = read("generate", (5, b'{"error": "queue full"}'), status=503)
    assert sample.error == RequestError(kind="status", message='HTTP 503: {"error": "queue full"}', status=503)
    assert sample.chunk_ns == ()


def test_a_cut_answer_is_not_whole_and_ends_when_it_failed():
    cut = RequestError(kind="cut", message="gone")
    sample = read("generate", (5, sse(native(2, "a b"))), failure=cut)
    assert (sample.error, sample.end_ns) == (cut, 999 * MS)


def test_an_answer_that_said_all_it_had_to_say_is_whole_although_the_connection_then_broke():
    sample = read("generate", (5, sse(native(2, "a b", STOP), DONE)), failure=RequestError(kind="cut", message="gone"))
    assert sample.ok


def test_a_missing_done_is_noted_on_an_answer_that_is_whole():
    sample = read("generate", (5, sse(native(2, "a b", STOP))))
    assert sample.ok
    assert sample.notes == ("the stream ended without [DONE]",)


def test_a_retracted_request_is_noted():
    sample = read("generate", (5, sse(native(2, "a b", STOP, num_retractions=1), DONE)))
    assert sample.notes == ("retracted by the engine",)


def test_a_request_says_all_sampling_parameters_and_asks_for_every_counter():
    workload = Workload(temperature=0.5, top_p=0.9, top_k=20, stop=["END"], ignore_eos=True, max_tokens=77)
    body = json.loads(request_body("generate", PROMPT, workload, model="m"))
    sampling = {
        "max_new_tokens": 77,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 20,
        "stop": ["END"],
        "ignore_eos": True,
    }
    assert body == {"text": "Say", "stream": True, "sampling_params": sampling}
    chat = json.loads(request_body("chat", PROMPT, workload, model="m"))
    assert chat["messages"] == [{"role": "user", "content": "Say"}]
    assert chat["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert chat["return_spec_tokens_details"] is True
    assert json.loads(request_body("completions", PROMPT, workload, model="m"))["prompt"] == "Say"


def test_greedy_requests_ask_for_token_ids_on_every_route():
    greedy, sampled = Workload(temperature=0), Workload(temperature=0.5)
    for endpoint, word in (("completions", "return_token_ids"), ("chat", "return_output_ids_in_sglext")):
        assert json.loads(request_body(endpoint, PROMPT, greedy, model="m"))[word] is True
        assert word not in json.loads(request_body(endpoint, PROMPT, sampled, model="m"))


def test_token_ids_of_completions_come_chunk_by_chunk():
    chunks = [{"index": 0, "text": text, "token_ids": ids} for text, ids in ((" a", [7]), (" b c", [8, 9]))]
    chunks[1]["finish_reason"] = "stop"
    events = [(at, sse({"choices": [chunk], "usage": None})) for at, chunk in enumerate(chunks, start=1)]
    sample = read("completions", *events, (9, sse(DONE)))
    assert (sample.text, sample.output_ids) == (" a b c", (7, 8, 9))


def test_token_ids_of_a_chat_come_at_its_end():
    said = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}
    sample = read("chat", (1, sse(said)), (2, sse({"choices": [], "sglext": {"output_ids": [[7, 8]]}}, DONE)))
    assert (sample.text, sample.output_ids) == ("a", (7, 8))


def test_the_effective_configuration_has_no_secrets_and_no_rank_states():
    info = {
        "version": "0.5.23",
        "api_key": "sk-very-secret",
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "internal_states": [{"last_gen_throughput": 1.0}],
    }
    config = effective_config(info)
    assert (config.triple, config.version, config.model_path) == ("3-1-4", "0.5.23", None)
    assert "sk-very-secret" not in str(config)
    assert "internal_states" not in config.raw
