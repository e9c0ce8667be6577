"""How many greedy answers are the baseline's, for runs whose baseline gave no log-probabilities to tell ties by."""

from collections.abc import Mapping

from sweeper.analysis.nightly.extract import NONE_ALIKE
from sweeper.core.result import Measurement
from sweeper.core.run import RunData
from sweeper.core.sample import Sample
from sweeper.core.trial import Trial
from sweeper.errors import StoreError
from sweeper.store.reader import read_samples

Answers = Mapping[str, tuple[int, ...] | str]


def agreement_of(run: RunData) -> Mapping[str, tuple[float, ...]]:
    """Trial → shares by repeat, against the first repeat of its baseline; empty unless the temperature is 0."""
    workload = run.experiment.get("workload") or {}
    if not isinstance(workload, Mapping) or workload.get("temperature", 0) != 0:
        return {}
    judged = {one.trial_id for one in run.losslessness}
    by_trial: dict[str, list[Measurement]] = {}
    for one in sorted(run.measurements, key=lambda item: (item.start, item.repeat)):
        by_trial.setdefault(one.trial_id, []).append(one)
    found = {}
    for trial in run.plan.trials:
        base = _baseline(run, trial)
        if base is None or base.trial_id not in by_trial or trial.trial_id in judged:
            continue
        reference = _answers(run, by_trial[base.trial_id][0])
        shares = [_share(reference, _answers(run, one)) for one in by_trial.get(trial.trial_id, ())]
        if known := tuple(max(share, NONE_ALIKE) for share in shares if share is not None):
            found[trial.trial_id] = known
    return found


def _baseline(run: RunData, trial: Trial) -> Trial | None:
    arm = run.plan.arm(trial.arm_id)
    if arm.is_baseline:
        return None
    return next((one for one in run.plan.trials if one.arm_id == arm.baseline_id and one.load == trial.load), None)


def _answers(run: RunData, measurement: Measurement) -> Answers:
    try:
        samples = read_samples(run.path, measurement)
    except StoreError:
        return {}
    # Later turns of a conversation are asked with each server's own answers before them.
    return {sample.prompt_id: _answer(sample) for sample in samples if sample.ok and sample.turn == 1}


def _answer(sample: Sample) -> tuple[int, ...] | str:
    return sample.text if sample.output_ids is None else sample.output_ids


def _share(reference: Answers, mine: Answers) -> float | None:
    both = reference.keys() & mine.keys()
    return sum(reference[key] == mine[key] for key in both) / len(both) if both else None
