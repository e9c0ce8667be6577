"""Bring a server to its steady pace at one concurrency: on an H200 the first load at a new one is up to 3 × slower."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sweeper.core.experiment import Workload
from sweeper.core.launch import Server
from sweeper.core.sample import PromptSet, Sample
from sweeper.core.trial import LoadPoint

if TYPE_CHECKING:
    from sweeper.execution.runner import Drive

MAX_TOKENS = 128
"""An answer of a warm-up request: long enough for every graph size and allocation, short enough to be cheap."""
WAVES = 2
"""Requests beyond the concurrency join a running batch: on an H200 those shapes were cold after one full batch."""
MAX_ROUNDS = 6
STEADY = 1.1
"""Two rounds within 10 % of each other are steady; a slower round met something cold and proves nothing."""


async def warm_up(drive: "Drive", server: Server, prompts: PromptSet, workload: Workload, load: LoadPoint) -> int:
    """Rounds of two waves of requests until two run at the same pace, at most MAX_ROUNDS. Returns how many."""
    short = workload.model_copy(update={"max_tokens": min(workload.max_tokens, MAX_TOKENS)})
    closed = LoadPoint(concurrency=load.concurrency)
    before: float | None = None
    for done in range(1, MAX_ROUNDS + 1):
        outcome = await drive(server, prompts, short, closed, num_prompts=WAVES * load.concurrency)
        pace = pace_tok_per_s(outcome.samples)
        if pace is None or (before is not None and before / STEADY < pace < before * STEADY):
            return done
        before = pace
    return MAX_ROUNDS


def pace_tok_per_s(samples: Sequence[Sample]) -> float | None:
    """Output tokens per second of wall time; None when nothing usable came back."""
    good = [sample for sample in samples if sample.ok and sample.output_tokens]
    if not good:
        return None
    window_ns = max(sample.end_ns for sample in good) - min(sample.send_ns for sample in good)
    return sum(sample.output_tokens or 0 for sample in good) / (window_ns / 1e9) if window_ns > 0 else None
