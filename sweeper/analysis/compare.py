"""A run compared with its baselines: who wins at each load point, by how much, and how sure that is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from sweeper.analysis.decompose import Decomposition, decompose, length_bound
from sweeper.analysis.losses import Loss, find_losses
from sweeper.analysis.lossless import likenesses
from sweeper.analysis.matched import effective_cap, queue_limit, rerun_advice, unequal_arguments
from sweeper.analysis.outcome import Outcome, Standing
from sweeper.analysis.points import (
    Numbers,
    blocks,
    excluded,
    load_label,
    pool,
    ranked_rate,
    soft_remarks,
    use_steady,
)
from sweeper.analysis.shape import shape_remarks
from sweeper.analysis.simulated import badged, is_simulated, shown
from sweeper.analysis.statistics import Blocks, Cell, Decision, Estimate, Noise, decide, geometric_mean
from sweeper.analysis.twins import Twins, find_twins
from sweeper.analysis.winners import Winner, find_winners
from sweeper.core.result import Completed, Failed, Failure, Measurement, Skipped
from sweeper.core.run import RunData
from sweeper.core.trial import Arm, LoadPoint, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Last over first start of a baseline at one load point."""

    baseline: str
    load: str
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    outcomes: tuple[Outcome, ...]
    """In the order of the plan."""
    winners: tuple[Winner, ...]
    twins: tuple[Twins, ...] = ()
    """Configurations that were measured under several names."""
    losses: Mapping[str, Loss] = field(default_factory=dict)
    """Arm id → how often its greedy answers are truly not the baseline's; only arms for which they are not."""
    noise: Noise | None
    floors: Mapping[str, float]
    """Load label → smallest ratio this run could have claimed."""
    drifts: tuple[Drift, ...]

    def outcome(self, arm_id: str, load: str) -> Outcome | None:
        return next((entry for entry in self.outcomes if entry.arm.arm_id == arm_id and entry.load == load), None)

    def barred(self, arm: Arm) -> bool:
        """Its answers are not the baseline's, so that it must not win."""
        loss = self.losses.get(arm.arm_id)
        return loss is not None and loss.barred

    @property
    def loads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.load for entry in self.outcomes))


def compare(run: RunData) -> Comparison:
    """Everything a report says about speed. A run that is still going gives what is known so far."""
    if is_simulated(run):
        outcomes = tuple(map(badged, _compared(shown(run)).outcomes))
        return Comparison(outcomes=outcomes, winners=(), noise=None, floors={}, drifts=())
    return _compared(run)


def _compared(run: RunData) -> Comparison:
    table = _Table.of(run)
    baselines = {arm.arm_id: arm.baseline_id for arm in run.plan.arms}
    decision = decide(table.comparable, baselines)
    categories = _by_cell(decide(table.category_cells, baselines))
    means = decide(table.category_mean_cells, baselines)
    outcomes = tuple(table.outcome(trial, decision, categories, means) for trial in run.plan.trials)
    answers = likenesses(run)
    outcomes = tuple(replace(entry, lossless=answers.get(entry.trial.trial_id)) for entry in shape_remarks(outcomes))
    losses = find_losses(outcomes, run.experiment)
    outcomes = tuple(_with_loss(entry, losses.get(entry.arm.arm_id)) for entry in outcomes)
    barred = {arm_id for arm_id, loss in losses.items() if loss.barred}
    return Comparison(
        outcomes=outcomes,
        winners=find_winners(outcomes, table.comparable, decision, barred=barred),
        twins=find_twins(outcomes, table.comparable, decision),
        losses=losses,
        noise=decision.noise,
        floors=decision.floors,
        drifts=_drifts(run.plan.arms, table.rates),
    )


def _with_loss(outcome: Outcome, loss: Loss | None) -> Outcome:
    if loss is None or not outcome.estimate:
        return outcome
    rank = ", hence not ranked" if loss.barred else ""
    return replace(outcome, remarks=(*outcome.remarks, f"not lossless ({loss}){rank}"))


def ranked_rates(run: RunData) -> Mapping[Cell, Blocks]:
    """Arm id × load label → rate of every ranked measurement: what the decision is made from."""
    return _Table.of(run).rates


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The run, rearranged by arm and load point."""

    arms: Mapping[str, Arm]
    measured: Mapping[str, tuple[Measurement, ...]]
    """Trial → its ranked measurements, in order."""
    dropped: Mapping[str, tuple[str, ...]]
    endings: Mapping[str, Completed | Failed | Skipped]
    numbers: Mapping[Cell, Numbers]
    rates: Mapping[Cell, Blocks]
    comparable: Mapping[Cell, Blocks]
    """`rates` without the arms that cannot be compared with their baseline."""
    refusals: Mapping[Cell, str]
    remarks: Mapping[Cell, tuple[str, ...]]
    category_cells: Mapping[Cell, Blocks]
    category_mean_cells: Mapping[Cell, Blocks]

    @classmethod
    def of(cls, run: RunData) -> "_Table":
        measured, dropped = _sort_measurements(run.measurements)
        steady = _steady_loads(run.plan.trials, measured)
        ranked = {
            Cell(trial.arm_id, load_label(trial.load)): (trial, measured[trial.trial_id])
            for trial in run.plan.trials
            if measured.get(trial.trial_id)
        }
        numbers = {cell: pool(entries, steady=steady[cell.load]) for cell, (_, entries) in ranked.items()}
        rates = {
            cell: blocks(entries, partial(ranked_rate, steady=steady[cell.load]))
            for cell, (_, entries) in ranked.items()
        }
        arms = {arm.arm_id: arm for arm in run.plan.arms}
        refusals, remarks = _judge_pairs(arms, {cell: trial.load for cell, (trial, _) in ranked.items()}, numbers)
        comparable = {cell: rate for cell, rate in rates.items() if cell not in refusals}
        categories = _category_cells({cell: ranked[cell][1] for cell in comparable})
        return cls(
            arms=arms,
            measured=measured,
            dropped=dropped,
            endings={result.trial_id: result for result in run.results},
            numbers=numbers,
            rates=rates,
            comparable=comparable,
            refusals=refusals,
            remarks=remarks,
            category_cells={
                Cell(cell.arm, f"{cell.load}\n{name}"): value for (cell, name), value in categories.items()
            },
            category_mean_cells=_category_means(categories),
        )

    def outcome(
        self, trial: Trial, decision: Decision, categories: Mapping[Cell, Mapping[str, Estimate]], means: Decision
    ) -> Outcome:
        arm, cell = self.arms[trial.arm_id], Cell(trial.arm_id, load_label(trial.load))
        ending, numbers = self.endings.get(trial.trial_id), self.numbers.get(cell)
        estimate = decision.estimates.get(cell)
        base = None if cell in self.refusals else self.numbers.get(Cell(arm.baseline_id, cell.load))
        return Outcome(
            trial=trial,
            arm=arm,
            load=cell.load,
            state=ending.state if ending else "pending",
            standing=_standing(arm, numbers, estimate),
            reason=self._reason(arm, cell, ending),
            numbers=numbers,
            estimate=estimate,
            decomposition=_decomposition(numbers, base) if numbers and base and not arm.is_baseline else None,
            categories=categories.get(cell, {}),
            category_mean=means.estimates.get(cell),
            failure=ending.failure if isinstance(ending, Failed) else _partial_failure(ending),
            expected=isinstance(ending, Failed | Skipped) and ending.expected,
            excluded=self.dropped.get(trial.trial_id, ()),
            remarks=self.remarks.get(cell, ()) + soft_remarks(self.measured.get(trial.trial_id, ())),
        )

    def _reason(self, arm: Arm, cell: Cell, ending: Completed | Failed | Skipped | None) -> str:
        if cell in self.refusals:
            return self.refusals[cell]
        if cell in self.numbers:
            missing = Cell(arm.baseline_id, cell.load) not in self.numbers
            return "its baseline has no ranked measurement here" if missing else ""
        if isinstance(ending, Failed):
            return f"{ending.failure.failure_class}: {ending.failure.message}"
        if isinstance(ending, Skipped):
            return ending.reason
        return "no measurement may be ranked" if ending else "not measured yet"


def _standing(arm: Arm, numbers: Numbers | None, estimate: Estimate | None) -> Standing:
    if arm.is_baseline and numbers:
        return "baseline"
    return estimate.verdict if estimate else "not compared"


def _partial_failure(ending: Completed | Skipped | Failed | None) -> Failure | None:
    return ending.failures[0] if isinstance(ending, Completed) and ending.failures else None


def _sort_measurements(
    measurements: Sequence[Measurement],
) -> tuple[dict[str, tuple[Measurement, ...]], dict[str, tuple[str, ...]]]:
    """(ranked measurements, why the others are not), by trial."""
    ranked: dict[str, list[Measurement]] = {}
    dropped: dict[str, dict[str, list[Measurement]]] = {}
    for entry in sorted(measurements, key=lambda item: (item.start, item.repeat)):
        reason = excluded(entry)
        if reason is None:
            ranked.setdefault(entry.trial_id, []).append(entry)
        else:
            dropped.setdefault(entry.trial_id, {}).setdefault(reason, []).append(entry)
    words = {
        trial: tuple(f"{_which(entries)}: {reason}" for reason, entries in reasons.items())
        for trial, reasons in dropped.items()
    }
    return {key: tuple(value) for key, value in ranked.items()}, words


def _which(entries: Sequence[Measurement]) -> str:
    """`start 1, repeats 1, 2; start 2, repeat 1`."""
    starts: dict[int, list[str]] = {}
    for entry in entries:
        starts.setdefault(entry.start, []).append(str(entry.repeat + 1))
    return "; ".join(
        f"start {start + 1}, repeat{'s' if len(repeats) > 1 else ''} {', '.join(repeats)}"
        for start, repeats in starts.items()
    )


def _steady_loads(trials: Sequence[Trial], measured: Mapping[str, tuple[Measurement, ...]]) -> dict[str, bool]:
    by_load: dict[str, list[Measurement]] = {}
    loads: dict[str, LoadPoint] = {}
    for trial in trials:
        label = load_label(trial.load)
        loads[label] = trial.load
        by_load.setdefault(label, []).extend(measured.get(trial.trial_id, ()))
    return {label: bool(entries) and use_steady(entries, loads[label]) for label, entries in by_load.items()}


def _judge_pairs(
    arms: Mapping[str, Arm], loads: Mapping[Cell, LoadPoint], numbers: Mapping[Cell, Numbers]
) -> tuple[dict[Cell, str], dict[Cell, tuple[str, ...]]]:
    """(why a pair must not be compared, what else must be said beside it)."""
    refusals: dict[Cell, str] = {}
    remarks: dict[Cell, tuple[str, ...]] = {}
    for cell, mine in numbers.items():
        arm = arms[cell.arm]
        base = numbers.get(Cell(arm.baseline_id, cell.load))
        if arm.is_baseline or base is None:
            continue
        limit = queue_limit(loads[cell].concurrency, effective_cap(base.effective), effective_cap(mine.effective))
        unequal = rerun_advice(unequal_arguments(base.effective.raw, mine.effective.raw))
        faults = [*([] if limit.comparable else [limit.message]), *([unequal] if unequal else [])]
        if faults:
            refusals[cell] = "; ".join(faults)
        if limit.comparable and limit.message:
            remarks[cell] = (limit.message,)
    return refusals, remarks


def _decomposition(numbers: Numbers, base: Numbers) -> Decomposition | None:
    spec = numbers.spec
    if spec is None or not spec.delivered_length or not spec.step_time_ms or not base.decode_token_time_ms:
        return None
    effective = numbers.effective
    return decompose(
        delivered_length=spec.delivered_length,
        step_time_ms=spec.step_time_ms,
        baseline_step_time_ms=base.decode_token_time_ms,
        bound=length_bound(
            num_steps=effective.num_steps,
            eagle_topk=effective.eagle_topk,
            num_draft_tokens=effective.num_draft_tokens,
        ),
    )


def _category_cells(ranked: Mapping[Cell, tuple[Measurement, ...]]) -> dict[tuple[Cell, str], Blocks]:
    """Decode rate per user (1 / decode time per token): a category has no throughput of its own in a mixed load."""
    cells: dict[tuple[Cell, str], dict[tuple[int, int], float]] = {}
    for cell, entries in ranked.items():
        for entry in entries:
            for name, metrics in entry.metrics.by_category.items():
                if metrics.decode_token_time_ms and len(entry.metrics.by_category) > 1:
                    rate = 1000 / metrics.decode_token_time_ms
                    cells.setdefault((cell, name), {})[entry.start, entry.repeat] = rate
    return dict(cells)


def _by_cell(categories: Decision) -> dict[Cell, dict[str, Estimate]]:
    gathered: dict[Cell, dict[str, Estimate]] = {}
    for cell, estimate in categories.estimates.items():
        load, name = cell.load.split("\n", 1)
        gathered.setdefault(Cell(cell.arm, load), {})[name] = estimate
    return gathered


def _category_means(categories: Mapping[tuple[Cell, str], Blocks]) -> dict[Cell, Blocks]:
    gathered: dict[Cell, dict[tuple[int, int], list[float]]] = {}
    counts: dict[Cell, int] = {}
    for (cell, _), rates in categories.items():
        counts[cell] = counts.get(cell, 0) + 1
        for key, rate in rates.items():
            gathered.setdefault(cell, {}).setdefault(key, []).append(rate)
    return {
        cell: {key: geometric_mean(rates) for key, rates in by_key.items() if len(rates) == counts[cell]}
        for cell, by_key in gathered.items()
    }


def _drifts(arms: Sequence[Arm], rates: Mapping[Cell, Blocks]) -> tuple[Drift, ...]:
    baselines = {arm.arm_id for arm in arms if arm.is_baseline}
    found = []
    for cell, rate in rates.items():
        starts = sorted({start for start, _ in rate})
        if cell.arm in baselines and len(starts) > 1:
            first, last = (
                geometric_mean([value for (start, _), value in rate.items() if start == wanted])
                for wanted in (starts[0], starts[-1])
            )
            found.append(Drift(baseline=cell.arm, load=cell.load, ratio=last / first))
    return tuple(found)
