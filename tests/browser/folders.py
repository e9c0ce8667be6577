"""Results folders to look at, written by the real writer."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sweeper.core.result import Failure
from sweeper.core.run import RunData
from sweeper.core.sample import RequestError, Sample, SpecCounters
from sweeper.store.disk import Disk
from sweeper.testing.model import Model, Story
from sweeper.testing.runs import model_run
from sweeper.testing.stored import store_run

OOM = Failure(
    failure_class="oom_capture",
    message="no memory left while the graphs were captured",
    remedy="lower mem_fraction_static, or capture for fewer batch sizes",
    log_lines=("torch.OutOfMemoryError: tried to allocate 2 GiB",),
)
KINDS = ("completion", "edit", "explain")


class Hasty(Disk):
    """Waits for no device: for folders that nobody needs after a power cut."""

    def fsync(self, file: int) -> None:
        pass


def requests(count: int = 24, *, text: str = "def answer():\n    return 42\n") -> tuple[Sample, ...]:
    """A closed loop of one: each answered in nine chunks, the seventh cut off."""
    return tuple(_request(number, text) for number in range(count))


def _request(number: int, text: str) -> Sample:
    begin = number * 400_000_000
    whole = Sample(
        index=number,
        prompt_id=f"p{number}",
        category=KINDS[number % 3],
        due_ns=begin,
        send_ns=begin,
        chunk_ns=tuple(begin + 60_000_000 + step * 28_000_000 for step in range(9)),
        chunk_tokens=(1, 4, 3, 4, 2, 4, 4, 1, 4),
        end_ns=begin + 60_000_000 + 8 * 28_000_000,
        input_tokens=180,
        cached_tokens=0,
        output_tokens=27,
        finish_reason="stop",
        text=text,
        output_ids=tuple(range(27)),
        spec=SpecCounters(verify_steps=8, correct_drafts=18, proposed_drafts=24, histogram=(1, 1, 1, 5)),
    )
    if number != 6:
        return whole
    return replace(whole, finish_reason=None, error=RequestError(kind="cut", message="the stream ended early"))


def usual(results: Path) -> Sequence[Path]:
    """Two finished runs of one experiment, the second 6 % slower, with a failed and a rewritten arm."""
    story = Story(failures={"5-8-32": OOM}, effective={"5-1-6": (5, 1, 5)})
    triples = ("3-1-4", "5-1-6", "5-4-16", "5-8-32")
    runs = (model_run(triples, story=story), model_run(triples, story=story, model=Model(base_step_ms=11.9, seed=2)))
    return [store_run(run, results, samples=requests(), disk=Hasty()) for run in runs]


def large_run() -> RunData:
    """10,010 trials."""
    triples = [f"{steps}-{topk}-{drafts}" for steps in range(1, 11) for topk in (1, 2, 4, 8) for drafts in range(2, 27)]
    return model_run(triples, concurrency=(1, 2, 4, 8, 12, 16, 24, 32, 48, 64), starts=1, repeats=1)
