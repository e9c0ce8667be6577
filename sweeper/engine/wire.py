"""What goes over the wire: request bodies, streamed answers → Samples, /server_info → EffectiveConfig. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic_core import from_json

from sweeper.core.experiment import Workload
from sweeper.core.launch import EffectiveConfig
from sweeper.core.redaction import quoted, redact_value
from sweeper.core.sample import ErrorKind, Prompt, RequestError, Sample, SpecCounters
from sweeper.engine.counters import count_of, rank_states, spec_counters
from sweeper.engine.sse import events

Endpoint = Literal["generate", "completions", "chat"]
PATHS: Mapping[Endpoint, str] = {
    "generate": "/generate",
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
}

__all__ = ["PATHS", "Endpoint", "Reply", "effective_config", "message_of", "request_body", "sample_of", "spec_counters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One exchange as the transport saw it; times in perf_counter_ns, nothing parsed."""

    due_ns: int
    send_ns: int
    end_ns: int
    """Last byte, or the moment of the failure."""
    status: int | None
    body: Sequence[tuple[int, bytes]]
    failure: RequestError | None
    """How the transport failed; None: the response came to its end."""


def request_body(endpoint: Endpoint, prompt: Prompt, workload: Workload, *, model: str) -> bytes:
    """The JSON body of one streaming request; asks for every counter that the engine can give.

    Greedy answers are held against the baseline's token by token, so their ids are asked for too.
    """
    max_tokens = prompt.max_tokens or workload.max_tokens
    sampling: dict[str, Any] = {"temperature": workload.temperature, "ignore_eos": workload.ignore_eos}
    if workload.top_p is not None:
        sampling["top_p"] = workload.top_p
    if workload.top_k is not None:
        sampling["top_k"] = workload.top_k
    if workload.stop:
        sampling["stop"] = list(workload.stop)
    if endpoint == "generate":
        body = {"text": prompt.text, "sampling_params": {"max_new_tokens": max_tokens, **sampling}, "stream": True}
        return json.dumps(body, ensure_ascii=False).encode()
    body = {
        "model": model,
        "max_tokens": max_tokens,
        **sampling,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_spec_tokens_details": True,
    }
    if endpoint == "completions":
        body["prompt"] = prompt.text
        body |= {"return_token_ids": True} if workload.temperature == 0 else {}
    else:
        messages = prompt.messages or (("user", prompt.text),)
        body["messages"] = [{"role": role, "content": content} for role, content in messages]
        if workload.chat_template_kwargs:
            body["chat_template_kwargs"] = workload.chat_template_kwargs
        body |= {"return_output_ids_in_sglext": True} if workload.temperature == 0 else {}
    return json.dumps(body, ensure_ascii=False).encode()


@dataclass(slots=True)
class _Answer:
    """What the events of one stream said so far."""

    times_ns: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    counted: int = 0
    text_times_ns: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)
    """What a chat server calls the message itself, without its reasoning."""
    ids: list[list[int]] = field(default_factory=list)
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    spec: SpecCounters | None = None
    error: RequestError | None = None
    garbage: bytes | None = None
    done: bool = False
    retracted: bool = False

    def count(self, at_ns: int, completion_tokens: object) -> None:
        """The server's cumulative count at this moment; its growth is this chunk's tokens."""
        total = count_of(completion_tokens)
        if total is not None and total > self.counted:
            self.times_ns.append(at_ns)
            self.tokens.append(total - self.counted)
            self.counted = total


def sample_of(
    reply: Reply, prompt: Prompt, *, index: int, endpoint: Endpoint, turn: int = 1, secret: str | None = None
) -> Sample:
    """One exchange as a Sample. Only an answer with a finish reason and an orderly end has no error.

    `secret`: what the server was sent and may repeat; no message holds it.
    """
    answer = _read(reply, endpoint)
    error = _quoted(_error(reply, answer), secret)
    counted = bool(answer.tokens) and not _late_count(answer)
    single = len(answer.times_ns) == len(answer.text_times_ns) == 1  # then the text came when it came, counted or not
    chunk_ns = answer.times_ns if counted and not single else answer.text_times_ns
    return Sample(
        index=index,
        prompt_id=prompt.prompt_id,
        category=prompt.category,
        due_ns=reply.due_ns,
        send_ns=reply.send_ns,
        chunk_ns=tuple(chunk_ns),
        chunk_tokens=tuple(answer.tokens) if counted else None,
        end_ns=chunk_ns[-1] if error is None and chunk_ns else reply.end_ns,
        input_tokens=answer.input_tokens,
        cached_tokens=answer.cached_tokens,
        output_tokens=answer.output_tokens,
        finish_reason=answer.finish_reason,
        text=_text(answer, endpoint),
        output_ids=_ids(answer, endpoint),
        spec=answer.spec,
        error=error,
        notes=_notes(answer) if error is None else (),
        turn=turn,
    )


def message_of(reply: Reply, endpoint: Endpoint) -> str | None:
    """What the assistant said, as a later turn of the conversation must repeat it; None: no whole answer.

    Of a chat route without the reasoning, which its servers take apart and do not want back.
    """
    answer = _read(reply, endpoint)
    if _error(reply, answer) is not None:
        return None
    return "".join(answer.contents) if endpoint == "chat" else _text(answer, endpoint)


def _notes(answer: _Answer) -> tuple[str, ...]:
    """Flaws of a whole answer. A retracted request was thrown out of a full cache and prefilled again."""
    notes = () if answer.done else ("the stream ended without [DONE]",)
    return (*notes, "retracted by the engine") if answer.retracted else notes


def _late_count(answer: _Answer) -> bool:
    """Tokens were counted once, after the text had come: usage of the last event only, not of every chunk."""
    return len(answer.times_ns) == 1 and len(answer.text_times_ns) > 1


def _read(reply: Reply, endpoint: Endpoint) -> _Answer:
    answer = _Answer()
    if reply.status != 200:
        return answer
    for at_ns, data in events(reply.body):
        if data == b"[DONE]":
            answer.done = True
            continue
        try:
            event = _parsed(data)
        except (ValueError, RecursionError):
            answer.garbage = answer.garbage or data
            continue
        if not isinstance(event, dict) or not event.keys() & _KNOWN_KEYS:
            answer.garbage = answer.garbage or data
        elif event.get("error"):
            answer.error = answer.error or RequestError(kind="error_chunk", message=_message(event["error"]))
        else:
            try:
                (_native if endpoint == "generate" else _openai)(answer, at_ns, event)
            except (AttributeError, TypeError):  # the right keys, values of another shape
                answer.garbage = answer.garbage or data
    return answer


def _parsed(data: bytes) -> Any:
    """Twice as fast as the standard reader, which still judges what this one refuses, as half a surrogate pair."""
    try:
        return from_json(data)
    except ValueError:
        return json.loads(data)


_KNOWN_KEYS = frozenset({"text", "output_ids", "meta_info", "choices", "usage", "sglext", "error"})


def _native(answer: _Answer, at_ns: int, event: dict[str, Any]) -> None:
    meta = event.get("meta_info") or {}
    answer.count(at_ns, meta.get("completion_tokens"))
    if isinstance(event.get("text"), str):
        answer.texts.append(event["text"])
        answer.text_times_ns.append(at_ns)
    if isinstance(event.get("output_ids"), list):
        answer.ids.append(event["output_ids"])
    answer.input_tokens = _count(meta, "prompt_tokens", answer.input_tokens)
    answer.cached_tokens = _count(meta, "cached_tokens", answer.cached_tokens)
    answer.output_tokens = _count(meta, "completion_tokens", answer.output_tokens)
    _finish(answer, meta.get("finish_reason"))
    answer.spec = spec_counters(meta) or answer.spec
    answer.retracted = bool(meta.get("num_retractions")) or answer.retracted


def _openai(answer: _Answer, at_ns: int, event: dict[str, Any]) -> None:
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        said = [choice.get("text"), delta.get("reasoning_content"), delta.get("content")]
        text = "".join(part for part in said if part)
        answer.contents.append(delta.get("content") or "")
        if text or delta.get("tool_calls"):
            answer.texts.append(text)
            answer.text_times_ns.append(at_ns)
        if isinstance(choice.get("token_ids"), list):
            answer.ids.append(choice["token_ids"])
        _finish(answer, choice.get("finish_reason"))
    usage = event.get("usage") or {}
    if usage:
        answer.count(at_ns, usage.get("completion_tokens"))
        answer.input_tokens = _count(usage, "prompt_tokens", answer.input_tokens)
        answer.output_tokens = _count(usage, "completion_tokens", answer.output_tokens)
        details = usage.get("prompt_tokens_details") or {}
        answer.cached_tokens = _count(details, "cached_tokens", answer.cached_tokens)
    further = event.get("sglext") or {}
    answer.ids += [ids for ids in further.get("output_ids") or () if isinstance(ids, list)][:1]
    if spec := further.get("spec_tokens_details"):
        answer.spec = spec_counters(spec) or answer.spec


def _count(fields: Mapping[str, Any], name: str, before: int | None) -> int | None:
    """Raises TypeError for what is no count."""
    value = fields.get(name, before)
    if value is not None and count_of(value) is None:
        raise TypeError(f"{name}: {value!r} is no count")
    return count_of(value)


def _finish(answer: _Answer, reason: object) -> None:
    """`stop`, `length`, …; an abort is a failure however politely it is said."""
    if isinstance(reason, dict):
        kind, message = str(reason.get("type")), str(reason.get("message") or "")
    elif reason is None:
        return
    else:
        kind, message = str(reason), ""
    answer.finish_reason = quoted(kind, limit=40)
    if kind == "abort":
        answer.error = answer.error or RequestError(
            kind="aborted", message=message[:_READ_CHARS] or "finish reason abort"
        )


def _message(error: object) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)[:_READ_CHARS]


_READ_CHARS = 4096
"""Of a message, before secrets are taken out of it and it is cut."""


def _quoted(error: RequestError | None, secret: str | None) -> RequestError | None:
    return None if error is None else replace(error, message=quoted(error.message, secret=secret))


def _error(reply: Reply, answer: _Answer) -> RequestError | None:
    if reply.status is not None and reply.status != 200:
        text = b"".join(data for _, data in reply.body)[:_READ_CHARS].decode(errors="replace")
        return RequestError(kind="status", message=f"HTTP {reply.status}: {text}", status=reply.status)
    if answer.error is not None:
        return answer.error
    if reply.failure is not None and not (answer.done and answer.finish_reason):
        return reply.failure
    if answer.garbage is not None:
        return _failed("garbage", f"not an event of this API: {answer.garbage[:_READ_CHARS].decode(errors='replace')}")
    if answer.finish_reason is None:
        return _failed("incomplete", "the stream ended without a finish reason")
    return None


def _failed(kind: ErrorKind, message: str) -> RequestError:
    return RequestError(kind=kind, message=message)


def _text(answer: _Answer, endpoint: Endpoint) -> str:
    """/generate repeats the whole text in every event unless the server streams increments."""
    if not answer.texts:
        return ""
    return answer.texts[-1] if endpoint == "generate" and not _incremental(answer) else "".join(answer.texts)


def _ids(answer: _Answer, endpoint: Endpoint) -> tuple[int, ...] | None:
    if not answer.ids:
        return None
    parts = answer.ids if endpoint != "generate" or _incremental(answer) else answer.ids[-1:]
    ids = tuple(token for part in parts for token in part)
    return ids if all(count_of(token) is not None for token in ids) else None


def _incremental(answer: _Answer) -> bool:
    if len(answer.ids) > 1:
        return len(answer.ids[-1]) < answer.counted and sum(map(len, answer.ids)) <= answer.counted
    return len(answer.texts) > 1 and not answer.texts[-1].startswith(answer.texts[-2])


def effective_config(info: Mapping[str, Any]) -> EffectiveConfig:
    """What /server_info (or the older /get_server_info) says was resolved."""
    raw = {key: value for key, value in redact_value(info).items() if key != "internal_states"}

    def word(name: str) -> str | None:
        value = info.get(name)
        return value if isinstance(value, str) else None

    return EffectiveConfig(
        version=word("version"),
        model_path=word("model_path"),
        served_model_name=word("served_model_name"),
        algorithm=word("speculative_algorithm"),
        draft_model_path=word("speculative_draft_model_path"),
        num_steps=count_of(info.get("speculative_num_steps")),
        eagle_topk=count_of(info.get("speculative_eagle_topk")),
        num_draft_tokens=count_of(info.get("speculative_num_draft_tokens")),
        max_running_requests=count_of(info.get("max_running_requests")),
        tp_size=count_of(info.get("tp_size")),
        dp_size=count_of(info.get("dp_size")),
        attention_backend=word("attention_backend"),
        raw=raw,
        running_caps=_running_caps(info),
    )


def _running_caps(info: Mapping[str, Any]) -> tuple[int, ...]:
    caps = [count_of(state.get("effective_max_running_requests_per_dp")) for state in rank_states(info)]
    return tuple(cap for cap in caps if cap is not None) if None not in caps else ()
