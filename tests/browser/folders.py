"""Results folders to look at, written by the real writer."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sweeper.core.result import Failure
from sweeper.core.run import RunData
from sweeper.core.sample import RequestError, Sample, SpecCounters
from sweeper.store import layout
from sweeper.store.codec import to_json, to_plain
from sweeper.store.disk import Disk
from sweeper.store.writer import StoredPlan
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


def store_quickly(run: RunData, results: Path) -> Path:
    """What the dashboard reads of a run, without a writer's care for each of its files: thousands in seconds."""
    path = results / run.plan.experiment / "20261128-210000-9999"
    path.mkdir(parents=True)
    stored = StoredPlan(
        run_id=path.name,
        created_at="2026-11-28T21:00:00+00:00",
        sweeper_version="0",
        plan_id=run.plan.plan_id,
        plan=run.plan,
        experiment=run.experiment,
    )
    (path / layout.PLAN).write_bytes(to_json(stored))
    (path / layout.ENVIRONMENT).write_text("{}")
    lines = []
    for one in run.measurements:
        folder = layout.measurement_dir(path, one.trial_id, one.start, one.repeat)
        folder.mkdir(parents=True)
        (folder / layout.MEASUREMENT).write_bytes(to_json(one, indent=None))
        told = {"trial_id": one.trial_id, "arm_id": one.arm_id, "start": one.start, "repeat": one.repeat}
        length = one.metrics.spec.accept_length if one.metrics.spec else None
        told |= {"output_tok_per_s": one.metrics.output_tok_per_s, "accept_length": length}
        lines.append({"at": one.started_at, "kind": "measured", **told})
    for result in run.results:
        (layout.trial_dir(path, result.trial_id) / layout.RESULT).write_bytes(to_json(result, indent=None))
        lines.append({"at": lines[-1]["at"], "kind": "trial_ended", "result": to_plain(result)})
    (path / layout.EVENTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def large_run() -> RunData:
    """10,010 trials."""
    triples = [f"{steps}-{topk}-{drafts}" for steps in range(1, 11) for topk in (1, 2, 4, 8) for drafts in range(2, 27)]
    return model_run(triples, concurrency=(1, 2, 4, 8, 12, 16, 24, 32, 48, 64), starts=1, repeats=1)
