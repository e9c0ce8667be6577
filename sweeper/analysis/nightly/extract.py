"""From runs to the record of a night: which numbers are watched, by repeat."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from sweeper.analysis.nightly.policy import Quantity
from sweeper.analysis.nightly.record import ArmNight, NightRecord, SeriesName, TrialNight, Watched
from sweeper.analysis.points import excluded, load_label
from sweeper.core.result import Failed, Fingerprint, Measurement, Skipped, TrialResult
from sweeper.core.run import RunData
from sweeper.core.trial import Arm, Plan, Trial, content_id

Block = tuple[int, int]
"""(start, repeat)."""

NONE_ALIKE = 0.01
"""Stands for zero: levels are compared in logarithms."""

Read = Callable[[Measurement], float | None]


def _accept_length(one: Measurement) -> float | None:
    return one.metrics.spec.accept_length if one.metrics.spec else None


def _verify_step(one: Measurement) -> float | None:
    return one.metrics.spec.step_time_ms if one.metrics.spec else None


def _baseline_step(one: Measurement) -> float | None:
    return one.metrics.decode_token_time_ms


def _rate(one: Measurement) -> float | None:
    return one.metrics.output_tok_per_s


def _ttft(one: Measurement) -> float | None:
    return one.metrics.ttft_ms.p50 if one.metrics.ttft_ms else None


OF_EVERY_ARM: Mapping[Quantity, Read] = {"output_tok_per_s": _rate, "ttft_ms": _ttft}
OF_SPECULATION: Mapping[Quantity, Read] = {"accept_length": _accept_length, "verify_step_ms": _verify_step}
OF_BASELINES: Mapping[Quantity, Read] = {"baseline_step_ms": _baseline_step}


def night_record(
    night_id: str,
    run: RunData,
    again: RunData | None = None,
    *,
    circumstances: Mapping[str, str],
    arms: Mapping[str, ArmNight],
    agreement: Mapping[str, tuple[float, ...]] | None = None,
) -> NightRecord:
    """`run`: the sweep; `again`: the second measurement of what was suspicious, of the same trials; `agreement`: trial
    → share of its greedy answers that are the baseline's, by repeat, for runs without log-probabilities."""
    first, second = _by_trial(run), _by_trial(again)
    results = {result.trial_id: result for result in run.results}
    trials = tuple(_trial(run.plan, trial, results.get(trial.trial_id)) for trial in run.plan.trials)
    series: list[Watched] = []
    for trial in run.plan.trials:
        if first.get(trial.trial_id):
            series += _of_trial(run.plan, trial, first, second)
            if (lossless := _lossless(run, trial, first[trial.trial_id][0], again)) is not None:
                series.append(lossless)
            elif agreement and (shares := agreement.get(trial.trial_id)):
                series.append(_agreement(run.plan, trial, first[trial.trial_id][0], shares))
    series += [found for arm in run.plan.arms if (found := _startup(arm, run, again)) is not None]
    return NightRecord(
        night_id=night_id,
        experiment=run.plan.experiment,
        circumstances=circumstances,
        series=tuple(series),
        trials=trials,
        arms=arms,
        run_dirs=tuple(str(one.path) for one in (run, again) if one is not None),
    )


def _of_trial(
    plan: Plan, trial: Trial, first: Mapping[str, Sequence[Measurement]], second: Mapping[str, Sequence[Measurement]]
) -> Iterable[Watched]:
    arm, load = plan.arm(trial.arm_id), load_label(trial.load)
    mine, again = first[trial.trial_id], second.get(trial.trial_id, ())
    key = _comparability(trial.trial_id, mine[0].fingerprint)
    reads = {**OF_EVERY_ARM, **(OF_BASELINES if arm.is_baseline else OF_SPECULATION)}
    for quantity, read in reads.items():
        yield Watched(
            name=SeriesName(quantity=quantity, arm=arm.label, load=load),
            trial_id=trial.trial_id,
            comparability=key,
            first=_values(mine, read),
            again=_values(again, read),
        )
    base = next((one for one in plan.trials if one.arm_id == arm.baseline_id and one.load == trial.load), None)
    if arm.is_baseline or base is None or not first.get(base.trial_id):
        return
    yield Watched(
        name=SeriesName(quantity="speedup", arm=arm.label, load=load),
        trial_id=trial.trial_id,
        comparability=content_id([key, base.trial_id]),
        first=_ratios(mine, first[base.trial_id]),
        again=_ratios(again, second.get(base.trial_id, ())),
    )


def _lossless(run: RunData, trial: Trial, one: Measurement, again: RunData | None) -> Watched | None:
    """Ties are no loss, so a sound engine stays at 1 whatever its batches; None: nothing was compared.

    One value a night: a repeat in which answers differ is no odd repeat to be left out.
    """
    arm = run.plan.arm(trial.arm_id)
    share = _undiffering(run, trial)
    if arm.is_baseline or not share:
        return None
    return Watched(
        name=SeriesName(quantity="lossless", arm=arm.label, load=load_label(trial.load)),
        trial_id=trial.trial_id,
        comparability=_comparability(trial.trial_id, one.fingerprint),
        first=share,
        again=_undiffering(again, trial),
    )


def _undiffering(run: RunData | None, trial: Trial) -> tuple[float, ...]:
    ones = [one for one in (run.losslessness if run else ()) if one.trial_id == trial.trial_id]
    compared = sum(one.equal + len(one.unequal) for one in ones)
    different = sum(one.count("different") for one in ones)
    return (max(1 - different / compared, NONE_ALIKE),) if compared else ()


def _agreement(plan: Plan, trial: Trial, one: Measurement, shares: tuple[float, ...]) -> Watched:
    name = SeriesName(quantity="agreement", arm=plan.arm(trial.arm_id).label, load=load_label(trial.load))
    key = _comparability(trial.trial_id, one.fingerprint)
    return Watched(name=name, trial_id=trial.trial_id, comparability=key, first=shares)


def _startup(arm: Arm, run: RunData, again: RunData | None) -> Watched | None:
    first, second = (_ready_times(arm, one) for one in (run, again))
    if not first:
        return None
    prints = [one.fingerprint for one in run.measurements if one.arm_id == arm.arm_id]
    return Watched(
        name=SeriesName(quantity="startup_s", arm=arm.label, load=""),
        trial_id="",
        comparability=_comparability(arm.arm_id, prints[0], prompts=False) if prints else arm.arm_id,
        first=first,
        again=second,
    )


def _ready_times(arm: Arm, run: RunData | None) -> tuple[float, ...]:
    groups = {group.group_id for group in run.plan.launch_groups if group.arm_id == arm.arm_id} if run else set()
    times = [start.times.ready_s for start in (run.starts if run else ()) if start.group_id in groups]
    return tuple(time for time in times if time)


def _by_trial(run: RunData | None) -> dict[str, tuple[Measurement, ...]]:
    found: dict[str, list[Measurement]] = {}
    for one in sorted(run.measurements if run else (), key=lambda item: (item.start, item.repeat)):
        if excluded(one) is None:
            found.setdefault(one.trial_id, []).append(one)
    return {trial: tuple(ones) for trial, ones in found.items()}


def _values(ones: Sequence[Measurement], read: Read) -> tuple[float, ...]:
    return tuple(value for one in ones if (value := read(one)))


def _ratios(mine: Sequence[Measurement], base: Sequence[Measurement]) -> tuple[float, ...]:
    """Rate over the baseline's of the same repeat block, or over its mean where that block has none."""
    rates: dict[Block, float] = {(one.start, one.repeat): rate for one in base if (rate := _rate(one))}
    if not rates:
        return ()
    mean = sum(rates.values()) / len(rates)
    return tuple(rate / rates.get((one.start, one.repeat), mean) for one in mine if (rate := _rate(one)))


def _comparability(what: str, fingerprint: Fingerprint, *, prompts: bool = True) -> str:
    """Engine, driver and draft are no part of it: their changes are marks in one history."""
    return content_id(
        [what, fingerprint.prompts_sha256 if prompts else "", sorted(set(fingerprint.gpu)), fingerprint.device]
    )


def _trial(plan: Plan, trial: Trial, result: TrialResult | None) -> TrialNight:
    arm = plan.arm(trial.arm_id)
    told = TrialNight(
        trial_id=trial.trial_id,
        arm=arm.label,
        load=load_label(trial.load),
        state=result.state if result else "pending",
        is_baseline=arm.is_baseline,
    )
    if isinstance(result, Failed):
        failure = result.failure
        return replace(told, reason=f"{failure.failure_class}: {failure.message}", expected=result.expected)
    if isinstance(result, Skipped):
        return replace(told, reason=result.reason, expected=result.expected)
    return told
