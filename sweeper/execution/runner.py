"""One server start with all it must measure. Yields events; a failure is an event too, never an exception."""

import asyncio
import errno
import socket
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from sweeper.analysis.decompose import draft_positions
from sweeper.analysis.metrics import summarize
from sweeper.analysis.quality import Answers, answers_of, double_run_mark
from sweeper.core.events import (
    GroupEvent,
    LoadCut,
    Measured,
    Notice,
    PhaseChanged,
    ReferenceRecorded,
    ServerReady,
    StartEnded,
    StartFailed,
    TrialFailed,
)
from sweeper.core.experiment import Workload
from sweeper.core.launch import Difference, Launcher, LaunchPlan, Phase, Server, ServerFailure, StartupTimes
from sweeper.core.lossless import Reference
from sweeper.core.redaction import redact_text
from sweeper.core.result import Conditions, Failure, Fingerprint, Mark, Measurement, StartRecord
from sweeper.core.run import GroupJob, Owed
from sweeper.core.sample import LoadOutcome, PromptSet
from sweeper.core.trial import LoadPoint, ServerConfig
from sweeper.errors import ServerError, SweeperError
from sweeper.execution.alarm import Alarm, Listen
from sweeper.execution.failures import failure_of, label_lie, outcome_failure, with_start
from sweeper.execution.marks import marks_of
from sweeper.execution.ranks import Accompany
from sweeper.execution.warmup import warm_up

DYING_S = 5.0
DYING_LOOKS = 10


class Drive(Protocol):
    """Sends one load at a server and waits for its end; `num_prompts` cuts the workload short, for warm-up.

    `listen` hears of the first answers as they end.
    """

    async def __call__(
        self,
        server: Server,
        prompts: PromptSet,
        workload: Workload,
        load: LoadPoint,
        *,
        num_prompts: int | None = None,
        listen: Listen | None = None,
    ) -> LoadOutcome: ...


class Recorder(Protocol):
    def conditions(self) -> Conditions: ...


class GpuWatch(Protocol):
    """Samples clocks, power and memory of some GPUs while it is open."""

    def __call__(self, gpu_ids: tuple[int, ...]) -> AbstractAsyncContextManager[Recorder]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What a group needs from outside."""

    launcher: Launcher
    prepare: Callable[[GroupJob], AbstractContextManager[LaunchPlan]]
    """Overlay, argv and environment, and a port that stays reserved while the context is open. Raises SweeperError."""
    drive: Drive
    watch_gpus: GpuWatch
    differences: Callable[[ServerConfig, Server], tuple[Difference, ...]]
    dump_stacks: Callable[[Server], None] = lambda server: None
    """Keeps what a hanging server is doing beside its log, as far as that can be seen."""
    record_reference: Callable[[Server, GroupJob], Awaitable[Reference]] | None = None
    """The pass of `GroupJob.reference_at`; raises OSError or ValueError. None: this server has no log-probabilities."""
    accompany: Accompany | None = None
    """Starts the part of a server that spans nodes on a further one; None: servers stay on one node."""


async def run_group(job: GroupJob, tools: Tools) -> AsyncGenerator[GroupEvent, None]:
    """Closing the iterator early stops the server before it returns."""
    events: asyncio.Queue[GroupEvent | None] = asyncio.Queue()
    group = _Group(job=job, tools=tools, emit=events.put_nowait)
    task = asyncio.create_task(group.run())
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Group:
    def __init__(self, *, job: GroupJob, tools: Tools, emit: Callable[[GroupEvent], None]) -> None:
        self.job = job
        self.tools = tools
        self.emit = emit
        self.record: StartRecord | None = None
        self._said: dict[str, Answers] = {}
        self.alarmed = False

    async def run(self) -> None:
        try:
            await self._start_and_measure()
        except SweeperError as error:
            self._failed(failure_of(error))
        except Exception as error:  # noqa: BLE001  one bad group must not end the sweep; the traceback goes into its result
            lines = tuple(traceback.format_exception(error))[-20:]
            self._failed(
                Failure(
                    failure_class="unknown",
                    message=f"{type(error).__name__}: {error}",
                    remedy="this is a fault of Sweeper; please report it with these lines",
                    log_lines=lines,
                )
            )
        else:
            if self.record is not None:
                self.emit(StartEnded(group_id=self.job.group_id, start=self.job.start, record=self.record))

    async def _start_and_measure(self) -> None:
        with self.tools.prepare(self.job) as plan:
            self.record = _planned(self.job, plan)
            await self._launch_and_measure(plan)

    async def _launch_and_measure(self, plan: LaunchPlan) -> None:
        launching = self.tools.launcher.launch(
            plan, run_id=self.job.run_id, owner_pid=self.job.owner_pid, on_phase=self._phase
        )
        async with launching as server:
            record = _planned(self.job, plan)
            record = replace(record, times=server.times, engine=server.engine, effective=server.effective)
            record = replace(record, affinity=server.affinity)
            self.record = record
            self.emit(ServerReady(record=record, server_info=dict(server.info)))
            differences = self.tools.differences(self.job.arm.server, server)
            if lie := label_lie(self.job.arm, differences):
                raise ServerError(lie, failure_class="config_differs")
            await self._measure_all(server, differences)

    async def _measure_all(self, server: Server, differences: tuple[Difference, ...]) -> None:
        warm: set[int] = set()
        for number, owed in enumerate(self.job.owed, start=1):
            load = owed.trial.load
            where = f"concurrency {load.concurrency}, repeat {owed.repeat + 1} ({number} of {len(self.job.owed)})"
            if load.concurrency not in warm:
                self._phase("warming", f"concurrency {load.concurrency}")
                async with _answering(server):
                    await warm_up(self.tools.drive, server, self.job.prompts, self.job.workload, load)
                await _alive(server)
                warm.add(load.concurrency)
            self._phase("measuring", where)
            await self._measure(server, owed, differences)
        if self.job.reference_at is not None and self.tools.record_reference is not None:
            self._phase("measuring", "log-probabilities of the baseline's answers, not timed")
            await self._record_reference(server, self.tools.record_reference)

    async def _record_reference(
        self, server: Server, record: Callable[[Server, GroupJob], Awaitable[Reference]]
    ) -> None:
        """What was measured stands, whatever becomes of this pass."""
        try:
            self.emit(ReferenceRecorded(reference=await record(server, self.job)))
        except (OSError, ValueError, SweeperError) as error:
            message = f"the baseline's log-probabilities could not be recorded, so answers are not compared: {error}"
            self.emit(Notice(message=message, level="warning"))

    async def _measure(self, server: Server, owed: Owed, differences: tuple[Difference, ...]) -> None:
        job = self.job
        flush = await server.flush()
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        async with self.tools.watch_gpus(job.gpu_ids) as recorder, _answering(server):
            outcome = await self.tools.drive(
                server, job.prompts, job.workload, owed.trial.load, listen=self._alarm(server, owed)
            )
        if (dead := await _death(server, outcome)) is not None:
            raise self._cut(owed, outcome, dead)
        outcome = replace(outcome, flush=flush)
        failure = outcome_failure(outcome)
        if failure is not None and failure.failure_class == "hang_load":
            await asyncio.to_thread(self.tools.dump_stacks, server)
            raise ServerError(failure.message, failure_class="hang_load", log_lines=failure.log_lines)
        if failure is not None:
            self.emit(
                TrialFailed(
                    trial_id=owed.trial.trial_id,
                    start=job.start,
                    repeat=owed.repeat,
                    failure=with_start(failure, job.start),
                )
            )
            return
        self.emit(self._measured(server, owed, outcome, recorder.conditions(), differences, started_at))

    def _alarm(self, server: Server, owed: Owed) -> Listen | None:
        """One alarm a server start is enough; without speculation there is nothing to hear."""
        if self.job.arm.server.spec is None or self.alarmed:
            return None

        def tell(sentence: str) -> None:
            self.alarmed = True
            where = f"{self.job.arm.label} at concurrency {owed.trial.load.concurrency}"
            self.emit(Notice(message=f"{where}: {sentence}", level="warning"))

        return Alarm(tell, positions=draft_positions(server.effective))

    def _cut(self, owed: Owed, outcome: LoadOutcome, dead: ServerFailure) -> ServerError:
        """Keeps what a dying server had answered, and says how much and how fast that was."""
        self.emit(
            LoadCut(
                group_id=self.job.group_id,
                start=self.job.start,
                trial_id=owed.trial.trial_id,
                repeat=owed.repeat,
                samples=outcome.samples,
            )
        )
        finished = tuple(sample for sample in outcome.samples if sample.ok)
        so_far = f"{len(finished)} of {len(outcome.samples)} requests had finished"
        if finished:
            rate = summarize(finished, draft_tokens=None, concurrency=owed.trial.load.concurrency).output_tok_per_s
            so_far += f" at {rate:.0f} tok/s" if rate is not None else ""
            so_far += ", kept apart and not a measurement"
        return _error_of(dead, f"{dead.message}; {so_far}")

    def _measured(
        self,
        server: Server,
        owed: Owed,
        outcome: LoadOutcome,
        conditions: Conditions,
        differences: tuple[Difference, ...],
        started_at: str,
    ) -> Measured:
        job = self.job
        metrics = summarize(
            outcome.samples,
            draft_tokens=server.effective.num_draft_tokens,
            positions=draft_positions(server.effective),
            concurrency=owed.trial.load.concurrency,
            answers={prompt.prompt_id: prompt.answer for prompt in job.prompts.prompts if prompt.answer is not None},
        )
        measurement = Measurement(
            trial_id=owed.trial.trial_id,
            group_id=job.group_id,
            arm_id=job.arm.arm_id,
            start=job.start,
            repeat=owed.repeat,
            started_at=started_at,
            fingerprint=Fingerprint(
                engine=server.engine,
                prompts_sha256=job.prompts.sha256,
                gpu=conditions.gpu_names,
                driver=conditions.driver,
                device=job.arm.server.device,
            ),
            metrics=metrics,
            effective=server.effective,
            differences=differences,
            health=outcome.health,
            conditions=conditions,
            flush=outcome.flush,
            marks=(*marks_of(job, server, outcome, metrics, conditions, differences), *self._double_run(owed, outcome)),
        )
        return Measured(measurement=measurement, samples=outcome.samples)

    def _double_run(self, owed: Owed, outcome: LoadOutcome) -> tuple[Mark, ...]:
        """A trial's repeats send the same prompts: of sampled answers no two sets are the same."""
        temperature = self.job.workload.temperature
        before = self._said.setdefault(owed.trial.trial_id, {})
        mark = double_run_mark(before, outcome.samples, temperature=temperature)
        if temperature > 0 and not before:
            self._said[owed.trial.trial_id] = answers_of(outcome.samples)
        return () if mark is None else (mark,)

    def _phase(self, phase: Phase, detail: str) -> None:
        self.emit(
            PhaseChanged(
                group_id=self.job.group_id,
                arm_id=self.job.arm.arm_id,
                start=self.job.start,
                phase=phase,
                detail=detail,
                slot=self.job.slot,
            )
        )

    def _failed(self, failure: Failure) -> None:
        failure = _without_secrets(with_start(failure, self.job.start))
        record = None if self.record is None else replace(self.record, failure=failure)
        self._phase("failed", failure.message)
        self.emit(
            StartFailed(
                group_id=self.job.group_id,
                arm_id=self.job.arm.arm_id,
                start=self.job.start,
                failure=failure,
                record=record,
            )
        )


def _without_secrets(failure: Failure) -> Failure:
    """An exception that nobody foresaw repeats whatever it was given."""
    return replace(
        failure, message=redact_text(failure.message), log_lines=tuple(redact_text(line) for line in failure.log_lines)
    )


def _planned(job: GroupJob, plan: LaunchPlan) -> StartRecord:
    shown = plan.redacted()
    return StartRecord(
        group_id=job.group_id,
        start=job.start,
        launch_id=plan.launch_id,
        command=shown.shell(),
        env=dict(shown.env),
        gpu_ids=plan.gpu_ids,
        node=socket.gethostname(),
        port=plan.port,
        times=StartupTimes(),
        engine=None,
        effective=None,
    )


@asynccontextmanager
async def _answering(server: Server) -> AsyncGenerator[None, None]:
    """A load generator that cannot even connect speaks of the server, unless it may open no more files."""
    try:
        yield
    except OSError as error:
        await _alive(server)
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise ServerError(
                f"the load generator may open no more connections: {error.strerror}",
                failure_class="generator",
                remedy="raise `ulimit -Hn` or lower the concurrency; no configuration is at fault",
            ) from error
        raise ServerError(f"the server takes no connections: {error}", failure_class="crash_load") from error


async def _death(server: Server, outcome: LoadOutcome) -> ServerFailure | None:
    """A server that broke off its last answers is given a moment to be seen dying, on whatever node the cause is."""
    last = max(outcome.samples, key=lambda sample: sample.end_ns or 0, default=None)
    broken = last is not None and last.error is not None and last.error.kind in ("refused", "dropped", "cut")
    for _ in range(DYING_LOOKS if broken else 0):
        if (dead := await server.failure()) is not None:
            return dead
        await asyncio.sleep(DYING_S / DYING_LOOKS)
    return await server.failure()


async def _alive(server: Server) -> None:
    """Raises ServerError when the server's process or scheduler is gone."""
    if (dead := await server.failure()) is not None:
        raise _error_of(dead, dead.message)


def _error_of(dead: ServerFailure, message: str) -> ServerError:
    return ServerError(message, failure_class=dead.failure_class, log_lines=dead.log_lines, remedy=dead.remedy)
