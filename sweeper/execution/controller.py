"""Takes a run from its plan to its end: schedule → slots → events → store. The only caller of the run's writer."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from sweeper.core.events import (
    Display,
    Event,
    GroupEvent,
    Measured,
    Notice,
    ReferenceRecorded,
    RunEnded,
    RunStarted,
    StartFailed,
    TrialEnded,
    TrialFailed,
)
from sweeper.core.experiment import Workload
from sweeper.core.result import Completed, Failed, Failure, Skipped, TrialResult
from sweeper.core.run import GroupJob
from sweeper.core.sample import PromptSet
from sweeper.core.trial import Arm, Plan, ServerStart
from sweeper.errors import ClusterLost, PreflightError, ServerError, first_of
from sweeper.execution.accounts import Accounts
from sweeper.execution.answers import Answers
from sweeper.execution.dispatch import Choice, Dispatcher
from sweeper.execution.dominance import OUT_OF_MEMORY, dominated_by, refused_too
from sweeper.execution.failures import LASTING, failure_of, with_start, worth_another_try
from sweeper.execution.pool import Pool, Slot
from sweeper.store import layout
from sweeper.store.samples import samples_to_parquet
from sweeper.store.writer import RunWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How far a run goes."""

    stop_on_failure: bool = False
    budget_s: float | None = None
    """No server is started after this many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is to be done."""

    plan: Plan
    workload: Workload
    prompts: PromptSet
    policy: Policy = Policy()
    skips: tuple[tuple[str, str, str], ...] = ()
    """(arm_id, reason, code) of arms that must not run: what the doctor found."""
    resumed: int = 0
    """Measurements kept from before."""
    notes: tuple[str, ...] = ()
    """What was found and moved aside when the run was opened."""
    answers: Answers | None = None
    """Holds answers against the baselines'; None: they are sampled."""


class Controller:
    """One run. `interrupt()` lets it end early and in order; what was measured is kept."""

    def __init__(
        self,
        work: Work,
        *,
        accounts: Accounts,
        pool: Pool,
        writer: RunWriter,
        display: Display,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work = work
        self._accounts = accounts
        self._pool = pool
        self._writer = writer
        self._display = display
        self._clock = clock
        self._dispatcher = Dispatcher(work.plan, clock)
        self._pending: deque[ServerStart] = deque()
        self._retried: set[ServerStart] = set()
        self._active: set[ServerStart] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._started_s = clock()

    @property
    def run_id(self) -> str:
        return self._writer.run_id

    async def run(self) -> RunEnded:
        """Raises StoreError or PreflightError when the folder or the pool fails; servers are stopped by then."""
        plan = self._work.plan
        self._emit(
            RunStarted(
                run_id=self._writer.run_id,
                experiment=plan.experiment,
                trials=len(plan.trials),
                starts=len(self._accounts.pending()),
                resumed=self._work.resumed,
                estimate_s=plan.estimate_s,
            )
        )
        for note in self._work.notes:
            self._emit(Notice(message=note, level="warning"))
        self._end_trials(self._accounts.settle())
        self._skip_arms()
        self._pending.extend(self._accounts.pending())
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._schedule(tasks)
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
        ended = _ended(self._accounts.results(), interrupted=self._stopping.is_set())
        self._emit(ended)
        return ended

    def interrupt(self) -> None:
        """Call within the event loop. Running servers are stopped, nothing more is started."""
        self._stopping.set()

    async def _schedule(self, tasks: asyncio.TaskGroup) -> None:
        stopper = tasks.create_task(self._stop_when_asked())
        while not self._stopping.is_set():
            room = await self._pool.room()
            choice = self._dispatcher.choose(self._wanted(), room)
            if choice is None:
                if not self._running:
                    break
                await asyncio.wait([*self._running, stopper], return_when=asyncio.FIRST_COMPLETED)
                continue
            slot = await self._slot(choice)
            if slot is None:
                continue
            if self._stopping.is_set() or choice.entry not in self._wanted():  # much can happen in a wait for room
                await self._pool.release(slot)
                continue
            self._pending.remove(choice.entry)
            self._active.add(choice.entry)
            self._dispatcher.began(choice.entry, slot.place)
            task = tasks.create_task(self._run_start(choice.entry, slot))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        if self._running:
            await asyncio.wait(self._running)
        stopper.cancel()

    async def _stop_when_asked(self) -> None:
        await self._stopping.wait()
        await self._pool.stop()

    def _wanted(self) -> tuple[ServerStart, ...]:
        """The queue, once what is no longer wanted is gone; ends what the policy gives up on."""
        if self._pending and (reason := self._give_up_reason()) is not None:
            self._pending.clear()
            self._end_trials(self._accounts.give_up(reason, active=self._active))
        for entry in [one for one in self._pending if self._accounts.is_over(one)]:
            self._pending.remove(entry)
        return tuple(self._pending)

    def _give_up_reason(self) -> str | None:
        policy = self._work.policy
        failed = any(isinstance(one, Failed) and not one.expected for one in self._accounts.results())
        if policy.stop_on_failure and failed:
            return "stopped after a failure (run.on_failure: stop)"
        if policy.budget_s is not None and self._clock() - self._started_s > policy.budget_s:
            return f"budget: {policy.budget_s / 60:g} minutes were used up"
        return None

    async def _slot(self, choice: Choice) -> Slot | None:
        """Waits for room; None when there will be none, or the run is being stopped."""
        entry = choice.entry
        gpus = self._accounts.group(entry.group_id).gpus
        nodes = self._accounts.arm_of_group(entry.group_id).server.nodes
        acquiring = asyncio.ensure_future(self._pool.acquire(gpus, choice.place, nodes=nodes))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([acquiring, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not acquiring.done():
                return None
            return acquiring.result()
        except ClusterLost:
            raise
        except PreflightError as error:
            self._pending.remove(entry)
            self._start_failed(entry, failure_of(error))
            self._end_start(entry)
            return None
        finally:
            stopping.cancel()
            if not acquiring.done():
                acquiring.cancel()
                await asyncio.gather(acquiring, return_exceptions=True)

    async def _run_start(self, entry: ServerStart, slot: Slot) -> None:
        try:
            self._clear_start(entry)
            # The first Parquet file costs 0.3 s of imports: they happen while the server starts.
            asyncio.get_running_loop().run_in_executor(None, samples_to_parquet, ())
            async with aclosing(self._pool.run(slot, self._job(entry, slot))) as events:
                async for event in events:
                    self._take(entry, event)
        except ServerError as error:
            self._start_failed(entry, failure_of(error))
        finally:
            self._active.discard(entry)
            self._dispatcher.ended(entry, whole=not self._accounts.owed(entry))
            await self._pool.release(slot)
        if not self._stopping.is_set():
            self._end_start(entry)

    def _job(self, entry: ServerStart, slot: Slot) -> GroupJob:
        return GroupJob(
            run_id=self._writer.run_id,
            run_dir=self._writer.path,
            group_id=entry.group_id,
            arm=self._accounts.arm_of_group(entry.group_id),
            start=entry.start,
            owed=self._accounts.owed(entry),
            workload=self._work.workload,
            prompts=self._work.prompts,
            gpu_ids=slot.gpu_ids,
            slot=slot.name,
            owner_pid=os.getpid(),
            reference_at=self._reference_at(entry),
            nodes=slot.nodes,
        )

    def _reference_at(self, entry: ServerStart) -> int | None:
        if not self._accounts.owes_reference(entry):
            return None
        trials = self._accounts.group(entry.group_id).trial_ids
        return min(trial.load.concurrency for trial in self._work.plan.trials if trial.trial_id in trials)

    def _clear_start(self, entry: ServerStart) -> None:
        """An earlier attempt at this very start keeps its log, aside."""
        folder = layout.start_dir(self._writer.path, entry.group_id, entry.start)
        if folder.exists():
            self._writer.set_aside([folder])

    def _take(self, entry: ServerStart, event: GroupEvent) -> None:
        if self._stopping.is_set() and isinstance(event, StartFailed | TrialFailed):
            return  # being stopped is no failure of theirs
        self._emit(event)
        match event:
            case Measured(measurement=one):
                self._accounts.measured(one.trial_id, one.start, one.repeat)
                if self._work.answers is not None:
                    self._work.answers.measured(one, event.samples)
            case ReferenceRecorded(reference=reference):
                self._accounts.reference_recorded(reference.group_id)
                if self._work.answers is not None:
                    self._work.answers.recorded(reference)
            case TrialFailed():
                self._accounts.failed(event.trial_id, event.failure)
            case StartFailed():
                self._judge(entry, event.failure)
            case _:
                pass

    def _start_failed(self, entry: ServerStart, failure: Failure) -> None:
        """A start of which no runner could tell."""
        arm_id = self._accounts.group(entry.group_id).arm_id
        told = with_start(failure, entry.start)
        self._take(
            entry,
            StartFailed(group_id=entry.group_id, arm_id=arm_id, start=entry.start, failure=told, record=None),
        )

    def _judge(self, entry: ServerStart, failure: Failure) -> None:
        if worth_another_try(failure) and entry not in self._retried:
            self._retried.add(entry)
            self._pending.appendleft(entry)
            label = self._accounts.arm_of_group(entry.group_id).label
            self._emit(Notice(message=f"{label}: start {entry.start + 1} is tried once more ({failure.failure_class})"))
            return
        self._accounts.start_failed(entry, failure, lasting=failure.failure_class in LASTING)
        failed = self._accounts.arm_of_group(entry.group_id)
        if failure.failure_class in OUT_OF_MEMORY:
            reason = f"dominated by {failed.label}, which failed: {failure.failure_class}"
            self._skip_too(dominated_by(self._work.plan, failed), reason)
        elif failure.failure_class == "bad_argument":
            reason = f"not started: the engine refused the same argument in {failed.label}: {failure.message}"
            self._skip_too(refused_too(self._work.plan, failed, failure.message), reason, code=failure.failure_class)

    def _skip_too(self, arms: tuple[Arm, ...], reason: str, *, code: str | None = None) -> None:
        running = {self._accounts.group(entry.group_id).arm_id for entry in self._active}
        for arm in arms:
            if arm.arm_id not in running:
                self._end_trials(self._accounts.skip(self._trials_of(arm.arm_id), reason, code=code))

    def _trials_of(self, arm_id: str) -> tuple[str, ...]:
        return tuple(trial.trial_id for trial in self._work.plan.trials if trial.arm_id == arm_id)

    def _end_start(self, entry: ServerStart) -> None:
        if entry not in self._pending:
            self._end_trials(self._accounts.start_ended(entry))

    def _end_trials(self, results: tuple[TrialResult, ...]) -> None:
        for result in results:
            self._emit(TrialEnded(result=result))

    def _skip_arms(self) -> None:
        for arm_id, reason, code in self._work.skips:
            self._end_trials(self._accounts.skip(self._trials_of(arm_id), reason, code=code))

    def _emit(self, event: Event) -> None:
        self._writer.record(event)
        self._display.show(event)


def _ended(results: tuple[TrialResult, ...], *, interrupted: bool) -> RunEnded:
    return RunEnded(
        completed=sum(isinstance(one, Completed) for one in results),
        failed=sum(isinstance(one, Failed) for one in results),
        skipped=sum(isinstance(one, Skipped) for one in results),
        interrupted=interrupted,
    )
