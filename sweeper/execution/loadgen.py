"""The load generator: the same prompts to one server, closed loop or by schedule; measured bare, parsed afterwards."""

import asyncio
import gc
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from sweeper.core.experiment import Workload
from sweeper.core.sample import LoadOutcome, Prompt, PromptSet, Sample
from sweeper.core.trial import LoadPoint
from sweeper.effects.transport import Capture, Channel, LeanChannel, Limits, Request, watch
from sweeper.engine.wire import PATHS, request_body, sample_of
from sweeper.execution.arrivals import due_offsets_s, worker_delay_s
from sweeper.execution.health import Monitor


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """The server under load."""

    base_url: str
    model: str
    api_key: str | None = None


async def drive(
    target: LoadTarget,
    prompts: PromptSet,
    workload: Workload,
    load: LoadPoint,
    *,
    num_prompts: int | None = None,
    client: Literal["lean", "httpx"] = "lean",
) -> LoadOutcome:
    """Send `num_prompts` requests (default: every prompt once; more: in cycles) and return what came back.

    Every request ends in a Sample: with its tokens, or with a classified error. Nothing is retried and nothing hangs: the
    workload's request and stall timeouts bound every wait. Raises OSError when the first connections are refused.
    """
    chosen = list(itertools.islice(itertools.cycle(prompts.prompts), num_prompts or len(prompts.prompts)))
    requests = [_request(prompt, workload, target.model) for prompt in chosen]
    channels = _channels(target, workload, min(load.concurrency, len(chosen)), client)
    monitor = Monitor()
    try:
        await asyncio.gather(*(channel.open() for channel in channels))
        with _no_collection():
            captures = await _load(channels, requests, load, monitor, seed=workload.seed)
    finally:
        for channel in channels:
            channel.close()
    samples = _samples(captures, chosen, workload)
    return LoadOutcome(samples=samples, health=monitor.health(samples), flush="not asked")


def _request(prompt: Prompt, workload: Workload, model: str) -> Request:
    body = request_body(workload.endpoint, prompt, workload, model=model)
    return Request(body=body, max_tokens=prompt.max_tokens or workload.max_tokens)


def _channels(target: LoadTarget, workload: Workload, count: int, client: str) -> list[Channel]:
    limits = Limits(request_s=workload.request_timeout_s, stall_s=workload.stall_timeout_s)
    headers = {"authorization": f"Bearer {target.api_key}"} if target.api_key else {}
    path = PATHS[workload.endpoint]
    if client == "httpx":
        from sweeper.effects.http import HttpxChannel

        return [HttpxChannel(target.base_url, path, headers=headers, limits=limits) for _ in range(count)]
    return [LeanChannel(target.base_url, path, headers=headers, limits=limits) for _ in range(count)]


@contextmanager
def _no_collection() -> Iterator[None]:
    """A garbage collection in the window would be measured as a lag of the server."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


async def _load(
    channels: list[Channel], requests: Sequence[Request], load: LoadPoint, monitor: Monitor, *, seed: int
) -> dict[int, Capture]:
    """All requests over all channels; one worker a channel takes the next request when its last answer ended."""
    offsets_s = due_offsets_s(load, len(requests), seed=seed)
    captures: dict[int, Capture] = {}
    order = iter(range(len(requests)))
    beside = [asyncio.create_task(watch(channels)), asyncio.create_task(monitor.beat())]
    monitor.start()
    start_ns = time.perf_counter_ns()

    async def work(channel: Channel, worker: int) -> None:
        free_ns = start_ns + int(worker_delay_s(load, worker) * 1e9)
        await _until(free_ns)
        for index in order:
            request = requests[index]
            if offsets_s is not None:
                due_ns = start_ns + int(offsets_s[index] * 1e9)
                request = Request(body=request.body, max_tokens=request.max_tokens, due_ns=due_ns)
                await _until(due_ns)
            capture = await channel.exchange(request)
            monitor.idle_ns.append(capture.send_ns - max(free_ns, request.due_ns or 0))
            free_ns = capture.end_ns
            captures[index] = capture

    try:
        async with asyncio.TaskGroup() as workers:
            for number, channel in enumerate(channels):
                workers.create_task(work(channel, number))
    finally:
        monitor.stop()
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    return captures


async def _until(due_ns: int) -> None:
    wait_s = (due_ns - time.perf_counter_ns()) / 1e9
    if wait_s > 0:
        await asyncio.sleep(wait_s)


def _samples(captures: dict[int, Capture], prompts: Sequence[Prompt], workload: Workload) -> tuple[Sample, ...]:
    return tuple(
        sample_of(capture.reply(), prompts[index], index=index, endpoint=workload.endpoint)
        for index, capture in sorted(captures.items())
    )
