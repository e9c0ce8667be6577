"""The load generator: the same prompts to one server, closed loop or by schedule; measured bare, parsed afterwards."""

import asyncio
import gc
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from sweeper.core.experiment import Workload
from sweeper.core.sample import LoadOutcome, Prompt, PromptSet, Sample
from sweeper.core.trial import LoadPoint
from sweeper.effects.prompts import next_turn
from sweeper.effects.transport import Capture, Channel, LeanChannel, Limits, Request, watch
from sweeper.engine.tail import last_counters
from sweeper.engine.wire import PATHS, message_of, request_body, sample_of
from sweeper.execution.alarm import Listen
from sweeper.execution.arrivals import due_offsets_s, worker_delay_s
from sweeper.execution.health import Monitor
from sweeper.execution.spool import Spool

ClientKind = Literal["lean", "httpx"]
Start = Callable[[], Awaitable[int]]
"""Called when the connections stand; gives the moment (perf_counter_ns) at which the load begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """The server under load."""

    base_url: str
    model: str
    api_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One prompt to come, with all turns of its conversation: its place in the order, and when it is due."""

    index: int
    """Of its first turn; those of the others follow."""
    prompt: Prompt
    offset_s: float | None = None
    """From the start of the load; None: as soon as a worker is free. Later turns are due when the answer has come."""

    @property
    def turns(self) -> int:
        return 1 + len(self.prompt.follow_ups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load, complete."""

    target: LoadTarget
    prompts: PromptSet
    workload: Workload
    point: LoadPoint
    num_prompts: int | None = None
    """None: every prompt once. More than there are prompts: in cycles."""
    client: ClientKind = "lean"
    give_up_late_s: float = 30.0
    """An open loop stops sending when a request would go out this long after it was due."""

    def jobs(self) -> list[Job]:
        """The prompts, in order."""
        prompts = self.prompts.prompts
        count = self.num_prompts or len(prompts)
        offsets_s = due_offsets_s(self.point, count, seed=self.workload.seed)
        jobs: list[Job] = []
        for number, prompt in enumerate(itertools.islice(itertools.cycle(prompts), count)):
            index = jobs[-1].index + jobs[-1].turns if jobs else 0
            jobs.append(Job(index=index, prompt=prompt, offset_s=None if offsets_s is None else offsets_s[number]))
        return jobs


async def drive(  # noqa: PLR0913  one load has this many parts
    target: LoadTarget,
    prompts: PromptSet,
    workload: Workload,
    load: LoadPoint,
    *,
    num_prompts: int | None = None,
    client: ClientKind = "lean",
    listen: Listen | None = None,
) -> LoadOutcome:
    """Send `num_prompts` prompts (default: every one once; more: in cycles) and return what came back.

    Every request ends in a Sample: with its tokens, or with a classified error. The turns of a conversation are asked
    one after the other by one worker; what follows a failed turn is not asked. Nothing is retried and nothing hangs:
    the workload's request and stall timeouts bound every wait. Raises OSError when the first connections are refused.
    `listen` hears the counters of the first answers.
    """
    whole = Load(target=target, prompts=prompts, workload=workload, point=load, num_prompts=num_prompts, client=client)
    return await drive_jobs(whole, whole.jobs(), concurrency=load.concurrency, start=_now, listen=listen)


async def drive_jobs(
    load: Load, jobs: Sequence[Job], *, concurrency: int, start: Start, listen: Listen | None = None
) -> LoadOutcome:
    """Some jobs of a load, over `concurrency` workers with a connection each."""
    requests = {job.index: _request(job.prompt, load.workload, load.target.model) for job in jobs}
    channels = _channels(load, min(concurrency, len(jobs)))
    run = _Run(load, jobs, requests, listen)
    try:
        await _open_all(channels)
        with _no_collection():
            await run.go(channels, await start())
    finally:
        for channel in channels:
            channel.close()
    samples = _samples(run.spool, jobs, load)
    return LoadOutcome(samples=samples, health=run.monitor.health(samples), flush="not asked", stopped=run.stopped)


async def _open_all(channels: Sequence[Channel]) -> None:
    """Raises the first failure, when all have been tried: none may open behind our back."""
    failures = await asyncio.gather(*(channel.open() for channel in channels), return_exceptions=True)
    for failure in failures:
        if failure is not None:
            raise failure


class _Run:
    """One load in progress."""

    def __init__(self, load: Load, jobs: Sequence[Job], requests: Mapping[int, Request], listen: Listen | None) -> None:
        self._jobs = iter(jobs)
        self._requests = requests
        self._load = load
        self._give_up_late_ns = int(load.give_up_late_s * 1e9)
        self._listen = listen
        self.spool = Spool()
        self.monitor = Monitor()
        self.stopped: str | None = None

    async def go(self, channels: list[Channel], start_ns: int) -> None:
        """All requests over all channels; a worker takes the next request when its last answer ended."""
        await _until(start_ns)
        beside = [asyncio.create_task(watch(channels)), asyncio.create_task(self.monitor.beat())]
        self.monitor.start()
        try:
            async with asyncio.TaskGroup() as workers:
                for number, channel in enumerate(channels):
                    workers.create_task(self._work(channel, number, start_ns))
        finally:
            self.monitor.stop()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _work(self, channel: Channel, worker: int, start_ns: int) -> None:
        free_ns = start_ns + int(worker_delay_s(self._load.point, worker) * 1e9)
        await _until(free_ns)
        for job in self._jobs:
            request = self._requests[job.index]
            if job.offset_s is not None:
                due_ns = start_ns + int(job.offset_s * 1e9)
                if self._hopeless(due_ns):
                    return
                request = replace(request, due_ns=due_ns)
                await _until(due_ns)
            capture = await channel.exchange(request)
            self.monitor.late_ns.append(capture.send_ns - max(free_ns, request.due_ns or 0))
            free_ns = capture.end_ns
            if job.prompt.follow_ups:
                free_ns = await self._converse(channel, job, capture)
            self.spool.add(job.index, capture)
            if self._listen is not None and capture.failure is None and not self._listen(last_counters(capture.pieces)):
                self._listen = None

    async def _converse(self, channel: Channel, job: Job, capture: Capture) -> int:
        """The later turns; returns when the worker is free. Only here an answer is read while a load runs."""
        workload, prompts = self._load.workload, self._load.prompts
        prompt = job.prompt
        for turn in range(1, job.turns):
            said = message_of(capture.reply(), workload.endpoint)
            if said is None:
                break
            prompt = next_turn(prompt, said, prompts.chat_template, workload.chat_template_kwargs)
            free_ns = capture.end_ns
            capture = await channel.exchange(_request(prompt, workload, self._load.target.model))
            self.monitor.late_ns.append(capture.send_ns - free_ns)
            self.spool.add(job.index + turn, capture)
        return capture.end_ns

    def _hopeless(self, due_ns: int) -> bool:
        late_ns = time.perf_counter_ns() - due_ns
        if late_ns > self._give_up_late_ns and self.stopped is None:
            point = self._load.point
            self.stopped = (
                f"stopped: requests waited {late_ns / 1e9:.0f} s to be sent, the server cannot keep up with "
                f"{point.rate_rps or 0:g} requests/s at concurrency {point.concurrency}"
            )
        return self.stopped is not None


async def _now() -> int:
    return time.perf_counter_ns()


async def _until(due_ns: int) -> None:
    wait_s = (due_ns - time.perf_counter_ns()) / 1e9
    if wait_s > 0:
        await asyncio.sleep(wait_s)


def _request(prompt: Prompt, workload: Workload, model: str) -> Request:
    body = request_body(workload.endpoint, prompt, workload, model=model)
    return Request(body=body, max_tokens=prompt.max_tokens or workload.max_tokens)


def _channels(load: Load, count: int) -> list[Channel]:
    limits = Limits(request_s=load.workload.request_timeout_s, stall_s=load.workload.stall_timeout_s)
    headers = {"authorization": f"Bearer {load.target.api_key}"} if load.target.api_key else {}
    url, path = load.target.base_url, PATHS[load.workload.endpoint]
    if load.client == "httpx" or url.startswith("https:"):
        from sweeper.effects.http import HttpxChannel

        return [HttpxChannel(url, path, headers=headers, limits=limits) for _ in range(count)]
    return [LeanChannel(url, path, headers=headers, limits=limits) for _ in range(count)]


@contextmanager
def _no_collection() -> Iterator[None]:
    """A garbage collection in the window would be measured as a lag of the server.

    What is young goes first, or it would pass for old; the old is Python's own affair: 40 ms a load beside Ray.
    """
    was_enabled = gc.isenabled()
    gc.collect(1)
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def _samples(spool: Spool, jobs: Sequence[Job], load: Load) -> tuple[Sample, ...]:
    samples = []
    endpoint, secret = load.workload.endpoint, load.target.api_key
    for job in jobs:
        for turn in range(1, job.turns + 1):
            index = job.index + turn - 1
            if (capture := spool.take(index)) is not None:
                sample = sample_of(
                    capture.reply(), job.prompt, index=index, endpoint=endpoint, turn=turn, secret=secret
                )
                samples.append(sample)
    spool.close()
    return tuple(samples)
