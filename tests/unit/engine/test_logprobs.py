"""Asking for log-probabilities, and reading them."""

import json

import pytest

from sweeper.core.experiment import Workload
from sweeper.core.sample import Prompt
from sweeper.engine.logprobs import reference_answer, reference_path, reference_request, target_dtype

PROMPT = Prompt(prompt_id="p", category="x", text="one two", messages=(("user", "one two"),))
GREEDY = Workload(max_tokens=8, stop=["\n\n"], top_p=0.9)
CHAT = Workload(max_tokens=8, endpoint="chat")

NATIVE = {
    "text": " three",
    "output_ids": [7, 9],
    "meta_info": {
        "finish_reason": {"type": "length", "length": 2},
        "output_top_logprobs": [[[-0.25, 7, None], [-1.75, 8, None]], [[-0.5, 9, None], [-0.5000001, 3, None]]],
    },
}


def test_it_is_the_workloads_request_with_two_log_probabilities_and_no_stream() -> None:
    body = reference_request(PROMPT, GREEDY, model="m", max_tokens=4)
    assert body["sampling_params"] == {
        "max_new_tokens": 4,
        "temperature": 0,
        "ignore_eos": False,
        "top_p": 0.9,
        "stop": ["\n\n"],
    }
    assert (body["text"], body["stream"], body["return_logprob"], body["top_logprobs_num"]) == (
        "one two",
        False,
        True,
        2,
    )


def test_an_answer_is_never_longer_than_the_workloads() -> None:
    assert reference_request(PROMPT, GREEDY, model="m", max_tokens=256)["sampling_params"]["max_new_tokens"] == 8


def test_completions_are_asked_through_generate_which_gives_ids() -> None:
    assert reference_path(Workload(endpoint="completions")) == "/generate"
    assert reference_path(CHAT) == "/v1/chat/completions"


def test_gaps_are_between_the_two_likeliest_tokens() -> None:
    answer = reference_answer(json.dumps(NATIVE), PROMPT, GREEDY, max_tokens=256)
    assert (answer.output_ids, answer.cut) == ((7, 9), False)
    assert [answer.gap(position) for position in (0, 1, 2)] == [pytest.approx(1.5), pytest.approx(0.0), None]


def test_an_answer_that_ended_at_the_passs_own_limit_is_cut() -> None:
    assert reference_answer(json.dumps(NATIVE), PROMPT, GREEDY, max_tokens=2).cut
    stopped = {**NATIVE, "meta_info": {**NATIVE["meta_info"], "finish_reason": {"type": "stop"}}}  # type: ignore[dict-item]
    assert not reference_answer(json.dumps(stopped), PROMPT, GREEDY, max_tokens=2).cut


STRANGE = '{"output_ids": [1], "meta_info": {"output_top_logprobs": [3]}}'


@pytest.mark.parametrize("body", ["[]", "{}", '{"output_ids": [1], "meta_info": {}}', STRANGE, "no JSON"])
def test_an_answer_without_log_probabilities_is_refused(body: str) -> None:
    with pytest.raises(ValueError):
        reference_answer(body, PROMPT, GREEDY, max_tokens=256)


def chat_reply(**more: object) -> str:
    tokens = [
        {"token": word, "logprob": best, "top_logprobs": [{"logprob": best}, {"logprob": second}]}
        for word, best, second in (("three", -0.1, -2.1), (" four", -0.2, -0.3))
    ]
    message = {"role": "assistant", "reasoning_content": None, "content": "three four"}
    choice = {"index": 0, "message": message, "logprobs": {"content": tokens}, "finish_reason": "stop", **more}
    return json.dumps({"choices": [choice]})


def test_a_chat_is_asked_without_streaming_for_ids_and_log_probabilities() -> None:
    body = reference_request(PROMPT, CHAT, model="m", max_tokens=4)
    assert (body["stream"], body["logprobs"], body["top_logprobs"], body["return_token_ids"]) == (False, True, 2, True)
    assert "stream_options" not in body and body["messages"] == [{"role": "user", "content": "one two"}]


def test_a_chat_answer_has_ids_and_gaps() -> None:
    answer = reference_answer(chat_reply(response_token_ids=[7, 9]), PROMPT, CHAT, max_tokens=256)
    assert (answer.text, answer.output_ids, answer.pieces) == ("three four", (7, 9), None)
    assert answer.gap(1) == pytest.approx(0.1)


def test_a_chat_answer_of_an_engine_without_ids_has_the_text_of_each_token() -> None:
    answer = reference_answer(chat_reply(), PROMPT, CHAT, max_tokens=256)
    assert (answer.output_ids, answer.pieces) == (None, ("three", " four"))


@pytest.mark.parametrize("more", [{"logprobs": None}, {"logprobs": {"content": []}}])
def test_a_chat_answer_without_log_probabilities_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no logprobs"):
        reference_answer(chat_reply(**more), PROMPT, CHAT, max_tokens=256)


@pytest.mark.parametrize(
    ("asked", "config", "dtype"),
    [
        ("auto", {"torch_dtype": "bfloat16"}, "bfloat16"),
        ("auto", {"text_config": {"dtype": "bfloat16"}}, "bfloat16"),
        ("auto", {"torch_dtype": "float32"}, "float16"),
        ("auto", {"model_type": "llama"}, "float16"),
        ("auto", {"model_type": "gemma3_text", "torch_dtype": "float32"}, "bfloat16"),
        ("float32", {"torch_dtype": "bfloat16"}, "float32"),
        ("half", None, "float16"),
        (None, None, None),
    ],
)
def test_the_dtype_is_what_the_engine_makes_of_flag_and_checkpoint(
    asked: object, config: dict[str, object] | None, dtype: str | None
) -> None:
    assert target_dtype(asked, config) == dtype
