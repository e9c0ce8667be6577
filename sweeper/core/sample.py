"""One request as it was seen by the client. Times are time.perf_counter_ns() of the generator's process."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ErrorKind = Literal[
    "refused",
    "status",
    "timeout",
    "stall",
    "dropped",
    "cut",
    "error_chunk",
    "aborted",
    "garbage",
    "endless",
    "incomplete",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecCounters:
    """Speculation of one request, from the engine's own counters. Absent is None, never 0."""

    verify_steps: int
    correct_drafts: int | None
    """Accepted drafts, without the target's own token, not trimmed at the end of the answer."""
    proposed_drafts: int | None
    histogram: tuple[int, ...] | None
    """histogram[i]: verify steps with exactly i accepted drafts; ends at the largest i seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestError:
    kind: ErrorKind
    message: str
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request. `chunk_ns[i]` is the arrival of the i-th chunk that carried `chunk_tokens[i]` new tokens."""

    index: int
    """Position in the order of sending."""
    prompt_id: str
    category: str
    due_ns: int
    """When it should have been sent; equals send_ns in a closed loop."""
    send_ns: int
    chunk_ns: tuple[int, ...]
    chunk_tokens: tuple[int, ...] | None
    """From the server's cumulative counts; None: the server did not say, so ITL is not available."""
    end_ns: int
    """Last token for a whole answer, the moment of the error otherwise."""
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None
    text: str
    output_ids: tuple[int, ...] | None
    spec: SpecCounters | None
    error: RequestError | None = None
    notes: tuple[str, ...] = ()
    """What was irregular about an answer that is whole all the same: a missing `[DONE]`, …"""
    turn: int = 1
    """Of its conversation; from the second on the prompt holds the model's own answers."""

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt of the workload; `text` is exactly what the server gets (chat template applied if any)."""

    prompt_id: str
    category: str
    text: str
    messages: tuple[tuple[str, str], ...] | None = None
    """(role, content) for the chat endpoint; None: a raw prompt."""
    answer: str | None = None
    """What a right answer contains, when it can be checked."""
    max_tokens: int | None = None
    follow_ups: tuple[str, ...] = ()
    """What the user says next, each after the model's own answer; needs `messages`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """A tokenizer's chat template with what it needs to render."""

    source: str
    special_tokens: Mapping[str, str]
    bos_added_by_tokenizer: bool
    """The engine's tokenizer puts the first token there itself: the template must not do it a second time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    prompts: tuple[Prompt, ...]
    source: str
    sha256: str
    """Over ids, texts, follow-ups and template."""
    template: str
    """`none`, or the name and hash of the chat template applied."""
    representative: bool = True
    """False for random tokens: acceptance on them says nothing."""
    warnings: tuple[str, ...] = ()
    """What a reader must know: too few distinct prompts, raw prompts for a chat model, …"""
    chat_template: ChatTemplate | None = None
    """Renders later turns; None: no template was applied, or the server applies its own."""

    @property
    def answers(self) -> dict[str, str]:
        """Prompt id → what a right answer contains, of the prompts that can be checked."""
        return {prompt.prompt_id: prompt.answer for prompt in self.prompts if prompt.answer is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorHealth:
    """How far the load generator can be trusted in this measurement."""

    loop_lag_p99_ms: float | None
    loop_lag_max_ms: float | None
    send_late_p99_ms: float | None
    cpu_s: float | None
    cpu_share: float | None
    """CPU seconds / wall seconds / processes."""
    bottleneck: str | None = None
    """Why the generator, not the server, set the pace; None: it did not."""
    stalled: str | None = None
    """That the generator stood still for a good part of the window, as when the whole machine was busy elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOutcome:
    """What one load gave: one measured window."""

    samples: tuple[Sample, ...]
    health: GeneratorHealth
    flush: str
    """`flushed`, `flushed after N waits`, or why it could not be."""
    stopped: str | None = None
    """Why sending ended before the last prompt: an open loop that the server could not keep up with."""
