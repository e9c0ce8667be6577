"""Greedy answers compared with the baseline's, from stored samples."""

from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.analysis.nightly.extract import NONE_ALIKE
from sweeper.core.events import Measured
from sweeper.core.run import RunData
from sweeper.core.sample import Sample
from sweeper.nightly.agreement import agreement_of
from sweeper.store.reader import read_run
from sweeper.store.writer import RunWriter
from sweeper.testing.runs import model_run


def sample(index: int, token: int) -> Sample:
    return Sample(
        index=index,
        prompt_id=f"p{index}",
        category="x",
        due_ns=0,
        send_ns=0,
        chunk_ns=(1, 2),
        chunk_tokens=(1, 1),
        end_ns=2,
        input_tokens=3,
        cached_tokens=0,
        output_tokens=2,
        finish_reason="stop",
        text="",
        output_ids=(7, token),
        spec=None,
    )


def stored(folder: Path, differing: int, temperature: float = 0) -> RunData:
    """Eight prompts; the speculative arm's last token differs in `differing` of them."""
    run = model_run(("3-1-4",), concurrency=(1,), starts=1, repeats=1)
    experiment = {**run.experiment, "workload": {"temperature": temperature}}
    writer = RunWriter.create(folder, run.plan, experiment=experiment, environment={})
    for measurement in run.measurements:
        changed = 0 if run.plan.arm(measurement.arm_id).is_baseline else differing
        samples = tuple(sample(index, 9 if index < changed else 8) for index in range(8))
        writer.record(Measured(measurement=measurement, samples=samples))
    writer.close()
    return read_run(writer.path)


@pytest.mark.parametrize(("differing", "share"), [(0, 1.0), (2, 0.75), (8, NONE_ALIKE)])
def test_the_share_of_equal_answers_is_counted_for_speculative_trials(
    tmp_path: Path, differing: int, share: float
) -> None:
    run = stored(tmp_path, differing)
    (trial,) = [one for one in run.plan.trials if not run.plan.arm(one.arm_id).is_baseline]
    assert agreement_of(run) == {trial.trial_id: (share,)}


def test_sampled_answers_are_not_compared(tmp_path: Path) -> None:
    assert agreement_of(stored(tmp_path, 2, temperature=0.7)) == {}


def test_runs_without_samples_have_no_share(tmp_path: Path) -> None:
    run = stored(tmp_path, 0)
    assert agreement_of(replace(run, path=tmp_path / "nowhere")) == {}
