"""Greedy answers with log-probabilities: how to ask SGLang for them, and how to read what comes back. Pure.

`/generate` takes the prompts of /v1/completions word for word. The chat route applies the server's own template, so it
is asked itself.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sweeper.core.experiment import Workload
from sweeper.core.lossless import ReferenceAnswer
from sweeper.core.sample import Prompt
from sweeper.engine.counters import count_of
from sweeper.engine.wire import PATHS, request_body

Route = Literal["generate", "chat"]
HALF_WORDS = {"half": "float16", "float": "float32"}


def route_of(workload: Workload) -> Route:
    return "chat" if workload.endpoint == "chat" else "generate"


def reference_path(workload: Workload) -> str:
    return PATHS[route_of(workload)]


def reference_request(prompt: Prompt, workload: Workload, *, model: str, max_tokens: int) -> dict[str, Any]:
    """The workload's own request, which also asks for the two likeliest tokens of each position."""
    short = workload.model_copy(update={"max_tokens": min(max_tokens, prompt.max_tokens or workload.max_tokens)})
    route = route_of(workload)
    plain = Prompt(prompt_id=prompt.prompt_id, category=prompt.category, text=prompt.text, messages=prompt.messages)
    body: dict[str, Any] = json.loads(request_body(route, plain, short, model=model))
    if route == "chat":
        body.pop("stream_options")
        return {**body, "stream": False, "logprobs": True, "top_logprobs": 2, "return_token_ids": True}
    return {**body, "stream": False, "return_logprob": True, "top_logprobs_num": 2}


def reference_answer(text: str, prompt: Prompt, workload: Workload, *, max_tokens: int) -> ReferenceAnswer:
    """The body of a 200 answer; raises ValueError where it is not one with log-probabilities."""
    asked = prompt.max_tokens or workload.max_tokens
    try:
        if route_of(workload) == "chat":
            return _chat(json.loads(text), prompt, limited=max_tokens < asked)
        return _native(json.loads(text), prompt, limited=max_tokens < asked)
    except (TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"log-probabilities of another shape than SGLang's: {error}") from error


def _native(reply: object, prompt: Prompt, *, limited: bool) -> ReferenceAnswer:
    if not isinstance(reply, dict) or not isinstance(reply.get("output_ids"), list):
        raise ValueError("the answer has no output_ids")
    meta = reply.get("meta_info") or {}
    tops = meta.get("output_top_logprobs")
    if not isinstance(tops, list):
        raise ValueError("the answer has no output_top_logprobs")
    pairs = [_top2([entry[0] for entry in top or ()]) for top in tops]
    reason = meta.get("finish_reason") or {}
    return ReferenceAnswer(
        prompt_id=prompt.prompt_id,
        text=str(reply.get("text") or ""),
        output_ids=_ids(reply["output_ids"]),
        pieces=None,
        best=tuple(best for best, _ in pairs),
        second=tuple(second for _, second in pairs),
        cut=limited and reason.get("type") == "length",
    )


def _chat(reply: object, prompt: Prompt, *, limited: bool) -> ReferenceAnswer:
    """Token ids where the engine gives them; otherwise texts are compared, token by token of this answer."""
    if not isinstance(reply, dict) or not reply.get("choices"):
        raise ValueError("the answer has no choices")
    choice = reply["choices"][0]
    tokens = (choice.get("logprobs") or {}).get("content")
    if not tokens:
        raise ValueError("the answer has no logprobs")
    pairs = [_top2([top["logprob"] for top in token.get("top_logprobs") or ()]) for token in tokens]
    message, ids = choice.get("message") or {}, choice.get("response_token_ids")
    return ReferenceAnswer(
        prompt_id=prompt.prompt_id,
        text="".join(filter(None, (message.get("reasoning_content"), message.get("content")))),
        output_ids=_ids(ids) if isinstance(ids, list) else None,
        pieces=None if isinstance(ids, list) else tuple(str(token.get("token", "")) for token in tokens),
        best=tuple(best for best, _ in pairs),
        second=tuple(second for _, second in pairs),
        cut=limited and choice.get("finish_reason") == "length",
    )


def _ids(values: Sequence[object]) -> tuple[int, ...]:
    ids = tuple(token for value in values if (token := count_of(value)) is not None)
    if len(ids) != len(values):
        raise ValueError("the answer has ids that are no token ids")
    return ids


def _top2(logprobs: Sequence[float | None]) -> tuple[float | None, float | None]:
    """(best, second), rounded to 1e-6: far below any bound, and short to store."""
    known = sorted((round(float(one), 6) for one in logprobs if one is not None), reverse=True)
    return (known[0], known[1]) if len(known) > 1 else (known[0] if known else None, None)


def target_dtype(asked: object, config: Mapping[str, Any] | None) -> str | None:
    """What the engine makes of --dtype and the target's config.json; None: neither says.

    `auto` takes the checkpoint's, but turns float32 into float16 (bfloat16 for Gemma)
    (sglang 0.5.23, srt/configs/model_config.py:2284-2321).
    """
    word = str(asked or "auto").lower().removeprefix("torch.")
    if word != "auto":
        return HALF_WORDS.get(word, word)
    if config is None:
        return None
    inner = config.get("text_config")
    text = inner if isinstance(inner, Mapping) else config
    stored = text.get("dtype") or text.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype")
    name = str(stored or "float32").removeprefix("torch.")
    if name != "float32":
        return name
    return "bfloat16" if str(text.get("model_type", "")).startswith("gemma") else "float16"
