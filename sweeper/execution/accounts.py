"""What each trial still owes, and what became of it. Pure bookkeeping; the controller tells it what happened."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from sweeper.analysis.quality import simulation_mark
from sweeper.core.result import Completed, Failed, Failure, Measurement, Skipped, TrialResult
from sweeper.core.run import Owed
from sweeper.core.trial import Arm, LaunchGroup, Plan, ServerStart, Trial


class Accounts:
    """Measurements are counted by (trial, start, repeat); a trial ends when its group has no start left."""

    def __init__(
        self,
        plan: Plan,
        *,
        kept: Iterable[Measurement] = (),
        results: Iterable[TrialResult] = (),
        selected: frozenset[str] | None = None,
        recorded: Iterable[str] | None = None,
    ) -> None:
        """`kept`: measurements of before; `results`: trials that ended before; `selected`: only these run now.

        `recorded`: baselines (arm ids) whose log-probabilities are there; None: none are wanted in this run.
        """
        self._plan = plan
        self._trials = {trial.trial_id: trial for trial in plan.trials}
        self._groups = {group.group_id: group for group in plan.launch_groups}
        self._measured = {(one.trial_id, one.start, one.repeat) for one in kept}
        self._counts = Counter(trial_id for trial_id, _, _ in self._measured)
        self._results: dict[str, TrialResult] = {result.trial_id: result for result in results}
        self._selected = selected
        self._failures: dict[str, list[Failure]] = defaultdict(list)
        self._left: dict[str, set[int]] = defaultdict(set)
        for entry in plan.schedule:
            self._left[entry.group_id].add(entry.start)
        self._unrecorded = set() if recorded is None else self._without_reference(frozenset(recorded))

    def _without_reference(self, recorded: frozenset[str]) -> set[str]:
        """Groups of baselines that still run, have arms to be compared with, and no log-probabilities yet.

        What answers a simulated acceptance gives mean nothing.
        """
        real = [arm for arm in self._plan.arms if not arm.is_baseline and simulation_mark(arm.server.env) is None]
        bases = {arm.baseline_id for arm in real} - recorded
        groups = [group for group in self._plan.launch_groups if group.arm_id in bases]
        return {group.group_id for group in groups if any(map(self._runs, self._trials_of(group.group_id)))}

    def pending(self) -> tuple[ServerStart, ...]:
        """The starts that still owe something, in the order of the schedule."""
        return tuple(entry for entry in self._plan.schedule if self.owed(entry) or self._owes_only_reference(entry))

    def owes_reference(self, entry: ServerStart) -> bool:
        """Whether this start is to record its baseline's log-probabilities: the first that runs does."""
        return entry.group_id in self._unrecorded

    def reference_recorded(self, group_id: str) -> None:
        self._unrecorded.discard(group_id)

    def _owes_only_reference(self, entry: ServerStart) -> bool:
        """A session died between a baseline's last measurement and its log-probabilities: its last start runs again."""
        if not self.owes_reference(entry) or not any(map(self._runs, self._trials_of(entry.group_id))):
            return False
        starts = [other for other in self._plan.schedule if other.group_id == entry.group_id]
        return entry == starts[-1] and not any(map(self.owed, starts))

    def owed(self, entry: ServerStart) -> tuple[Owed, ...]:
        """Repeat by repeat, each over all load points, so that drift within a start falls on all of them alike."""
        trials = [trial for trial in self._trials_of(entry.group_id) if self._runs(trial)]
        return tuple(
            Owed(trial=trial, repeat=repeat)
            for repeat in range(self._plan.repeats)
            for trial in trials
            if (trial.trial_id, entry.start, repeat) not in self._measured
        )

    def measured(self, trial_id: str, start: int, repeat: int) -> None:
        self._measured.add((trial_id, start, repeat))
        self._counts[trial_id] += 1

    def failed(self, trial_id: str, failure: Failure) -> None:
        self._failures[trial_id].append(failure)

    def start_failed(self, entry: ServerStart, failure: Failure, *, lasting: bool) -> None:
        """All that this start still owed has this failure; a lasting one takes the group's other starts along."""
        for trial_id in {owed.trial.trial_id for owed in self.owed(entry)}:
            self.failed(trial_id, failure)
        if lasting:
            self._left[entry.group_id] = {entry.start}

    def start_ended(self, entry: ServerStart) -> tuple[TrialResult, ...]:
        """The results of the trials that end with this start."""
        left = self._left[entry.group_id]
        left.discard(entry.start)
        if any(
            self.owed(other)
            for other in self._plan.schedule
            if other.group_id == entry.group_id and other.start in left
        ):
            return ()
        left.clear()
        return tuple(self._end(trial) for trial in self._trials_of(entry.group_id) if self._runs(trial))

    def settle(self) -> tuple[TrialResult, ...]:
        """Trials that were measured to the end before, by a session that died before it could say so."""
        owing = {owed.trial.trial_id for entry in self._plan.schedule for owed in self.owed(entry)}
        owing |= {trial.trial_id for group_id in self._unrecorded for trial in self._trials_of(group_id)}
        complete = [trial for trial in self._plan.trials if self._runs(trial) and trial.trial_id not in owing]
        return tuple(self._end(trial) for trial in complete)

    def skip(self, trial_ids: Iterable[str], reason: str, *, code: str | None = None) -> tuple[TrialResult, ...]:
        """Give up on trials that have not ended; those with measurements end with what they have."""
        ended: list[TrialResult] = []
        for trial_id in trial_ids:
            trial = self._trials[trial_id]
            if not self._runs(trial):
                continue
            if self._counts[trial_id]:
                ended.append(self._end(trial))
                continue
            expected = code is not None and self._arm(trial).expect == code
            result = Skipped(trial_id=trial_id, reason=reason, expected=expected)
            self._results[trial_id] = result
            ended.append(result)
        return tuple(ended)

    def give_up(self, reason: str, *, active: Iterable[ServerStart]) -> tuple[TrialResult, ...]:
        """Nothing more is started: what is not running now ends here, what is running ends with its start."""
        running = {entry.group_id: entry.start for entry in active}
        for group_id, start in running.items():
            self._left[group_id] = {start}
        waiting = [
            trial_id
            for group in self._plan.launch_groups
            if group.group_id not in running
            for trial_id in group.trial_ids
        ]
        return self.skip(waiting, reason)

    def is_over(self, entry: ServerStart) -> bool:
        """A start that nobody needs any more: its group failed for good, was skipped or is complete."""
        return entry.start not in self._left[entry.group_id] or not (
            self.owed(entry) or self._owes_only_reference(entry)
        )

    def results(self) -> tuple[TrialResult, ...]:
        return tuple(self._results.values())

    def arm_of_group(self, group_id: str) -> Arm:
        return self._plan.arm(self._groups[group_id].arm_id)

    def group(self, group_id: str) -> LaunchGroup:
        return self._groups[group_id]

    def _trials_of(self, group_id: str) -> tuple[Trial, ...]:
        return tuple(self._trials[trial_id] for trial_id in self._groups[group_id].trial_ids)

    def _runs(self, trial: Trial) -> bool:
        selected = self._selected is None or trial.trial_id in self._selected
        return selected and trial.trial_id not in self._results

    def _end(self, trial: Trial) -> TrialResult:
        failures = tuple(self._failures[trial.trial_id])
        count = self._counts[trial.trial_id]
        result: TrialResult
        if count:
            result = Completed(trial_id=trial.trial_id, measurements=count, failures=failures)
        elif failures:
            expected = self._arm(trial).expect == failures[0].failure_class
            result = Failed(trial_id=trial.trial_id, failure=failures[0], expected=expected)
        else:
            result = Skipped(trial_id=trial.trial_id, reason="nothing was measured")
        self._results[trial.trial_id] = result
        return result

    def _arm(self, trial: Trial) -> Arm:
        return self._plan.arm(trial.arm_id)
