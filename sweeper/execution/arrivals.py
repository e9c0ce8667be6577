"""When requests are due, in seconds from the start of a load; pure and seeded."""

import random

from sweeper.core.trial import LoadPoint


def due_offsets_s(load: LoadPoint, count: int, *, seed: int) -> list[float] | None:
    """One offset a request, rising; None: a closed loop, where a request is due when a worker is free.

    constant: evenly at `rate_rps`; poisson: exponential gaps of that mean; burst: `concurrency` at once, the bursts
    spaced so that the mean rate is `rate_rps` (all at once without a rate). `ramp_s` stretches the beginning: the rate
    grows linearly from nothing to its full value over that time.
    """
    if load.arrival == "closed":
        return None
    if load.arrival == "burst":
        gap_s = load.concurrency / load.rate_rps if load.rate_rps else 0.0
        return [gap_s * (index // load.concurrency) for index in range(count)]
    rate_rps = load.rate_rps
    assert rate_rps is not None
    draw = random.Random(seed)  # noqa: S311  a schedule, no secret
    at, even = 0.0, []
    for _ in range(count):
        even.append(at)
        at += draw.expovariate(rate_rps) if load.arrival == "poisson" else 1.0 / rate_rps
    return [_ramped_s(offset_s, load.ramp_s) for offset_s in even]


def _ramped_s(offset_s: float, ramp_s: float) -> float:
    """Map even time to ramped time: under the ramp the count grows as t²/(2·ramp), afterwards as t − ramp/2."""
    if offset_s >= ramp_s / 2:
        return offset_s + ramp_s / 2
    return float((2 * ramp_s * offset_s) ** 0.5)


FIRST_WAVE_GAP_S = 0.0002
"""Between the first requests of a closed loop: a server reads one connection after the other, and the queue of a single
burst (some 50 µs a request) would be measured as its time to first token."""


def worker_delay_s(load: LoadPoint, worker: int) -> float:
    """How long a worker of a closed loop waits before its first request."""
    if load.arrival != "closed":
        return 0.0
    return worker * max(FIRST_WAVE_GAP_S, load.ramp_s / load.concurrency)
