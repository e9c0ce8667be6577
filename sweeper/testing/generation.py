"""What the fake server generates: seeded tokens on a known schedule, as SGLang's three routes would stream them."""

import hashlib
import json
import random
from dataclasses import dataclass, field
from typing import Any, Literal

Route = Literal["/generate", "/v1/completions", "/v1/chat/completions"]
FaultKind = Literal[
    "status",
    "slow-headers",
    "stall",
    "drop",
    "cut",
    "error",
    "abort",
    "noise",
    "garbage",
    "endless",
    "no-done",
    "fragments",
]
_VOCABULARY = 4000
_FORCED_DEFAULT_TOKENS = 128
NOISE = (b": keep-alive\n\n", b"id: 7\nretry: 100\n\n", b"event: ping\n\n", b"\r\n\r\n", b"data:\n\n")
TIE_GAP, CLEAR_GAP = 0.05, 3.0
"""Between the log-probabilities of the two likeliest tokens; every eighth position is a tie, the sixth first."""
GARBAGE = (b"data: {broken\n\n", b"data: null\n\n", b'data: {"strange": 1}\n\n', b"data: \xff\xfe\n\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`share` of the requests misbehave; `at`: after this share of their tokens, or the HTTP status, or seconds."""

    kind: FaultKind
    share: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How the server behaves. Times in milliseconds."""

    prefill_ms: float = 20.0
    step_ms: float = 5.0
    draft_ms: float = 0.0
    """Added to a step for each draft step of a speculative server."""
    num_steps: int = 0
    """Draft steps; 0: no speculation, one token a step."""
    num_draft_tokens: int = 1
    acceptance: float = 0.7
    """Chance that a draft is accepted when all before it were."""
    stream_interval: int = 1
    early_stop: float = 0.0
    """Share of the requests that end before max_tokens, unless they say ignore_eos."""
    asap: bool = False
    """The whole answer in one write."""
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    lossy: float = 0.0
    """Share of prompts whose answer a speculative server changes where the target was sure."""
    turned: float = 0.0
    """Share of prompts whose answer it changes at a tie."""

    def step_s(self) -> float:
        return (self.step_ms + self.draft_ms * self.num_steps) / 1e3


@dataclass(slots=True)
class Generation:
    """One request: what it asked for, and how far it is."""

    number: int
    route: Route
    stream: bool
    prompt: str
    model: str
    max_tokens: int
    ignore_eos: bool
    options: dict[str, Any]
    script: Script
    cached_tokens: int = 0
    total: int = 0
    stops: bool = False
    fault: Fault | None = None
    made: int = 0
    sent: int = 0
    steps: int = 0
    histogram: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    _said: str = ""
    _ids_said: str = ""
    _draw: random.Random = field(default_factory=random.Random)

    def repeat(self, other: "Generation") -> None:
        """Become what another generation of the same length became."""
        self.made, self.sent, self.steps = other.made, other.sent, other.steps
        self.histogram, self.chunk_tokens = other.histogram, other.chunk_tokens

    def __post_init__(self) -> None:
        chance = random.Random(self.script.seed * 1_000_003 + self.number)  # noqa: S311
        text = random.Random(hashlib.sha256(self.prompt.encode()).digest())  # noqa: S311  the same prompt, the same answer
        self.total = self.max_tokens
        if self.script.early_stop and not self.ignore_eos and chance.random() < self.script.early_stop:
            self.total, self.stops = chance.randint(1, self.max_tokens), True
        self.fault = _chosen(self.script.faults, chance.random())
        self.ids = text.choices(range(_VOCABULARY), k=self.total)
        self._draw = chance
        self._turn(text.random())

    def _turn(self, draw: float) -> None:
        """Decided by the prompt alone: every server of this script changes the same answers."""
        if not self.script.num_steps or draw >= self.script.lossy + self.script.turned:
            return
        position = 3 if draw < self.script.lossy else 5
        self.ids[position:] = [(token + 1) % _VOCABULARY for token in self.ids[position:]]

    @property
    def prompt_tokens(self) -> int:
        return max(1, len(self.prompt.split()))

    @property
    def correct(self) -> int:
        return sum(i * count for i, count in enumerate(self.histogram))

    def advance(self) -> None:
        """The prefill's token first, then one verify step a call."""
        if self.made == 0:
            self.made = 1
            return
        accepted = 0
        while accepted < self.script.num_steps and self._draw.random() < self.script.acceptance:
            accepted += 1
        if self.script.num_steps:
            self.steps += 1
            self.histogram += [0] * (accepted + 1 - len(self.histogram))
            self.histogram[accepted] += 1
        self.made = self.made + 1 + accepted if self._is("endless") else min(self.total, self.made + 1 + accepted)

    def _is(self, kind: FaultKind) -> bool:
        return self.fault is not None and self.fault.kind == kind

    @property
    def finished(self) -> bool:
        return self.made >= self.total and not self._is("endless")

    def misbehaves_now(self) -> bool:
        """Is it time for a fault that ends the stream?"""
        return (
            self.fault is not None
            and self.fault.kind in ("stall", "drop", "cut", "error", "abort")
            and self.made >= self.total * self.fault.at
        )

    def chunk_due(self) -> bool:
        return self.finished or self.sent == 0 or self.made - self.sent >= self.script.stream_interval

    def chunk(self) -> bytes:
        """The events for all tokens made since the last call."""
        count = self.made - self.sent
        noise = NOISE if self._is("noise") else GARBAGE if self._is("garbage") else ()
        before = noise[len(self.chunk_tokens) % len(noise)] if noise else b""
        self.chunk_tokens.append(count)
        data = before + self._events(self.sent, self.made)
        self.sent = self.made
        if self.finished and not self._is("no-done"):
            data += self._tail() + b"data: [DONE]\n\n"
        return data

    def _events(self, start: int, end: int) -> bytes:
        piece = self._text(start, end)
        if self.route == "/generate":
            # Every event repeats the whole answer, as SGLang does; made by hand, or the server would be the slow one.
            self._said += piece
            self._ids_said += "".join(f"{token}," for token in self._ids(start, end))
            meta = json.dumps(self.meta(end), separators=(",", ":"))
            return (
                f'data: {{"text":"{self._said}","output_ids":[{self._ids_said[:-1]}],"meta_info":{meta}}}\n\n'.encode()
            )
        reason = self.finish_reason() if self.finished else None
        usage = self._usage(end) if self.options.get("continuous_usage_stats") else None
        if self.route == "/v1/completions":
            return event(self._object([{"index": 0, "text": piece, "finish_reason": reason}], usage))
        role = (
            event(self._object([{"index": 0, "delta": {"role": "assistant", "content": ""}}], None))
            if not start
            else b""
        )
        said = event(self._object([{"index": 0, "delta": {"content": piece}, "finish_reason": None}], usage))
        last = event(self._object([{"index": 0, "delta": {}, "finish_reason": reason}], None)) if reason else b""
        return role + said + last

    def _tail(self) -> bytes:
        if self.route == "/generate":
            return b""
        data = b""
        if self.options.get("spec") and self.steps:
            data += event({**self._object([], None), "sglext": {"spec_tokens_details": self.counters()}})
        if self.options.get("include_usage"):
            data += event(self._object([], self._usage(self.made)))
        return data

    def whole(self) -> dict[str, Any]:
        """The answer without streaming."""
        if self.route == "/generate":
            text = self._text(0, self.made)
            meta = self.meta(self.made)
            if self.options.get("logprobs"):
                meta["output_top_logprobs"] = self._top2()
            return {"text": text, "output_ids": self._ids(0, self.made), "meta_info": meta}
        text, reason = self._text(0, self.made), self.finish_reason()
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason, "text": text}
        if self.route == "/v1/chat/completions":
            choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": text}}
        return self._object([choice], self._usage(self.made))

    def meta(self, count: int) -> dict[str, Any]:
        """`meta_info` after `count` tokens; the speculation counters come with the last chunk only, as in SGLang."""
        done = self.finished
        reason = {"type": "stop"} if self.stops else {"type": "length", "length": self.max_tokens}
        said = {
            "id": f"{self.number:032x}",
            "finish_reason": reason if done else None,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": count,
            "cached_tokens": self.cached_tokens,
        }
        return {**said, **self.counters()} if done and self.steps else said

    def counters(self) -> dict[str, Any]:
        proposed = self.steps * (self.script.num_draft_tokens - 1)
        return {
            "spec_verify_ct": self.steps,
            "spec_num_correct_drafts": self.correct,
            "spec_num_proposed_drafts": proposed,
            "spec_accept_rate": self.correct / proposed if proposed else 0.0,
            "spec_accept_length": self.made / self.steps,
            "spec_correct_drafts_histogram": self.histogram,
        }

    def finish_reason(self) -> str:
        return "stop" if self.stops else "length"

    def _top2(self) -> list[list[list[Any]]]:
        """Of every position the two likeliest tokens, as [log-probability, id, null]."""
        gaps = [TIE_GAP if position % 8 == 5 else CLEAR_GAP for position in range(self.made)]
        return [
            [[-0.1, token, None], [-0.1 - gap, (token + 1) % _VOCABULARY, None]]
            for token, gap in zip(self._ids(0, self.made), gaps, strict=True)
        ]

    def _ids(self, start: int, end: int) -> list[int]:
        return [self.ids[i % len(self.ids)] for i in range(start, end)]

    def _text(self, start: int, end: int) -> str:
        return "".join(f" w{token}" for token in self._ids(start, end))

    def _usage(self, count: int) -> dict[str, Any]:
        details = {"cached_tokens": self.cached_tokens} if self.cached_tokens else None
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": count,
            "total_tokens": self.prompt_tokens + count,
            "prompt_tokens_details": details,
        }

    def _object(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None) -> dict[str, Any]:
        kind = "text_completion" if self.route == "/v1/completions" else "chat.completion.chunk"
        return {"id": f"{self.number:032x}", "object": kind, "model": self.model, "choices": choices, "usage": usage}


def _chosen(faults: tuple[Fault, ...], draw: float) -> Fault | None:
    for fault in faults:
        if draw < fault.share:
            return fault
        draw -= fault.share
    return None


def event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def parse_generation(route: Route, body: bytes, number: int, script: Script) -> Generation:
    """A request body as a Generation. Raises ValueError for what the real server would refuse with 400."""
    asked = json.loads(body)
    if not isinstance(asked, dict):
        raise ValueError("the body is no JSON object")
    native = route == "/generate"
    sampling = (asked.get("sampling_params") or {}) if native else asked
    limit = sampling.get("max_new_tokens" if native else "max_tokens") or _FORCED_DEFAULT_TOKENS
    streaming = asked.get("stream_options") or {}
    return Generation(
        number=number,
        route=route,
        stream=bool(asked.get("stream")),
        prompt=_prompt(route, asked),
        model=str(asked.get("model") or "fake"),
        max_tokens=max(1, int(limit)),
        ignore_eos=bool(sampling.get("ignore_eos")),
        options={
            **streaming,
            "spec": asked.get("return_spec_tokens_details"),
            "logprobs": asked.get("return_logprob") and asked.get("top_logprobs_num") == 2,
        },
        script=script,
    )


def _prompt(route: Route, asked: dict[str, Any]) -> str:
    if route == "/v1/chat/completions":
        return "\n".join(str(message.get("content", "")) for message in asked.get("messages") or [])
    text = asked.get("text" if route == "/generate" else "prompt")
    return text if isinstance(text, str) else " ".join(map(str, asked.get("input_ids") or text or []))
