"""One load over several plain processes, for servers that one core cannot keep busy. No pickles: bytes and JSON."""

import asyncio
import multiprocessing
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

from sweeper.core.sample import GeneratorHealth, LoadOutcome
from sweeper.errors import SweeperError
from sweeper.execution.loadgen import Job, Load, drive_jobs
from sweeper.store.codec import from_json, to_json

CONCURRENCY_PER_SHARD = 1024
_PRIORITY = -5
_OTHER_FILES = 256
_HEAD_START_NS = 20_000_000
"""Between the last shard's word that it is connected and the common start."""


def shard_count(concurrency: int) -> int:
    """One process up to 1,024 connections, then one for each 1,024, at most half of the cores."""
    wanted = -(-concurrency // CONCURRENCY_PER_SHARD)
    return max(1, min(wanted, (os.cpu_count() or 2) // 2))


def drive_blocking(load: Load, *, shards: int = 1) -> LoadOutcome:
    """Run a load to its end on the fastest event loop there is; with several shards, in processes that start together.

    Raises OSError when the server refuses the first connections.
    """
    jobs = load.jobs()
    _allow_open_files(load.point.concurrency + _OTHER_FILES)
    shards = max(1, min(shards, load.point.concurrency, len(jobs)))
    if shards == 1:
        return _run(load, jobs, load.point.concurrency, None)
    return _merged(_in_processes(load, jobs, shards))


def _allow_open_files(count: int) -> None:
    """Many systems allow 1,024 at first, and more to who asks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _run(load: Load, jobs: Sequence[Job], concurrency: int, parent: Connection | None) -> LoadOutcome:
    async def start() -> int:
        if parent is None:
            return time.perf_counter_ns()
        parent.send_bytes(b"connected")
        return int(parent.recv_bytes())  # the monotonic clock is the same in all processes of a machine

    async def whole() -> LoadOutcome:
        return await drive_jobs(load, jobs, concurrency=concurrency, start=start)

    with _first_in_line(), asyncio.Runner(loop_factory=_fastest_loop()) as runner:
        return runner.run(whole())


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


@contextmanager
def _first_in_line() -> Iterator[None]:
    """A higher priority while the load runs, where that is allowed: reading late for want of a core measures us."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, min(before, _PRIORITY))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def _in_processes(load: Load, jobs: Sequence[Job], shards: int) -> list[LoadOutcome]:
    forked = multiprocessing.get_context("fork")
    links: list[Connection] = []
    workers = []
    for number in range(shards):
        here, there = forked.Pipe()
        share = load.point.concurrency // shards + (number < load.point.concurrency % shards)
        workers.append(forked.Process(target=_shard, args=(load, jobs[number::shards], share, there), daemon=True))
        workers[-1].start()
        there.close()
        links.append(here)
    try:
        for link in links:
            _expect(link, b"connected")
        start_ns = time.perf_counter_ns() + _HEAD_START_NS
        for link in links:
            link.send_bytes(b"%d" % start_ns)
        return [from_json(LoadOutcome, link.recv_bytes(), origin="load shard") for link in links]
    except EOFError:
        raise SweeperError("a process of the load generator ended before its load did; was it killed?") from None
    finally:
        for worker in workers:  # of a load that is broken off, the rest is not wanted
            worker.terminate()
            worker.join()


def _expect(link: Connection, word: bytes) -> None:
    said = link.recv_bytes()
    if said != word:
        raise OSError(said.decode(errors="replace"))


def _shard(load: Load, jobs: Sequence[Job], concurrency: int, parent: Connection) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        outcome = _run(load, jobs, concurrency, parent)
    except OSError as error:
        parent.send_bytes(str(error).encode())
        return
    except KeyboardInterrupt:
        return  # Ctrl-C reaches the whole group; the parent tells it
    parent.send_bytes(to_json(outcome, indent=None))


def _end_with_parent() -> None:
    """A load that nobody waits for must not go on: its server may be measured by somebody else next."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _merged(outcomes: Sequence[LoadOutcome]) -> LoadOutcome:
    samples = sorted((sample for outcome in outcomes for sample in outcome.samples), key=lambda sample: sample.index)
    health = [outcome.health for outcome in outcomes]
    return LoadOutcome(
        samples=tuple(samples),
        health=GeneratorHealth(
            loop_lag_p99_ms=_largest([one.loop_lag_p99_ms for one in health]),
            loop_lag_max_ms=_largest([one.loop_lag_max_ms for one in health]),
            send_late_p99_ms=_largest([one.send_late_p99_ms for one in health]),
            cpu_s=sum(one.cpu_s or 0.0 for one in health),
            cpu_share=_largest([one.cpu_share for one in health]),
            bottleneck=next((one.bottleneck for one in health if one.bottleneck), None),
            stalled=next((one.stalled for one in health if one.stalled), None),
        ),
        flush=outcomes[0].flush,
        stopped=next((outcome.stopped for outcome in outcomes if outcome.stopped), None),
    )


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
