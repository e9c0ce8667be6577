"""Bring a server to its steady pace at one concurrency: on an H200 the first load at a new one is up to 3 × slower."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sweeper.core.experiment import Workload
from sweeper.core.launch import Server
from sweeper.core.sample import PromptSet, Sample
from sweeper.core.trial import LoadPoint

if TYPE_CHECKING:
    from sweeper.execution.runner import Drive

MAX_TOKENS = 64
"""An answer of a warm-up request: enough for every graph size and allocation, short enough to be cheap."""
MAX_ROUNDS = 6
STEADY_GAIN = 1.1
"""A round that is not 10 % faster than the one before is steady."""


async def warm_up(drive: "Drive", server: Server, prompts: PromptSet, workload: Workload, load: LoadPoint) -> None:
    """Rounds of at least `concurrency` requests until a round is no faster than the last; at most MAX_ROUNDS."""
    short = workload.model_copy(update={"max_tokens": min(workload.max_tokens, MAX_TOKENS)})
    closed = LoadPoint(concurrency=load.concurrency)
    before: float | None = None
    for _ in range(MAX_ROUNDS):
        outcome = await drive(server, prompts, short, closed, num_prompts=max(2, load.concurrency))
        pace = pace_tok_per_s(outcome.samples)
        if pace is None or (before is not None and pace < before * STEADY_GAIN):
            return
        before = pace


def pace_tok_per_s(samples: Sequence[Sample]) -> float | None:
    """Output tokens per second of wall time; None when nothing usable came back."""
    good = [sample for sample in samples if sample.ok and sample.output_tokens]
    if not good:
        return None
    window_ns = max(sample.end_ns for sample in good) - min(sample.send_ns for sample in good)
    return sum(sample.output_tokens or 0 for sample in good) / (window_ns / 1e9) if window_ns > 0 else None
