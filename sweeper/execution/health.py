"""How far the load generator can be trusted: its own lag, lateness and CPU, measured beside the load."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from sweeper.core.sample import GeneratorHealth, Sample

BEAT_S = 0.02
_CPU_SHARE_MAX = 0.9
_LAG_SHARE_MAX = 0.05
_STALL_MS = 50.0
_STALLED_SHARE_MAX = 0.05


@dataclass(slots=True)
class Monitor:
    """A heartbeat in the generator's event loop; `stop` ends the window."""

    lag_ns: list[int] = field(default_factory=list)
    late_ns: list[int] = field(default_factory=list)
    """How long each worker that had work to do took to send it."""
    _cpu_start_s: float = 0.0
    _start_ns: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0

    def start(self) -> None:
        self._cpu_start_s, self._start_ns = time.thread_time(), time.perf_counter_ns()

    def stop(self) -> None:
        self.cpu_s = time.thread_time() - self._cpu_start_s
        self.wall_s = (time.perf_counter_ns() - self._start_ns) / 1e9

    async def beat(self) -> None:
        """Runs until cancelled."""
        while True:
            due_ns = time.perf_counter_ns() + int(BEAT_S * 1e9)
            await asyncio.sleep(BEAT_S)
            self.lag_ns.append(max(0, time.perf_counter_ns() - due_ns))

    def health(self, samples: Sequence[Sample]) -> GeneratorHealth:
        lag_ms = sorted(lag / 1e6 for lag in self.lag_ns)
        late_ms = sorted(late / 1e6 for late in self.late_ns)
        share = self.cpu_s / self.wall_s if self.wall_s > 0 else None
        return GeneratorHealth(
            loop_lag_p99_ms=_quantile(lag_ms, 0.99),
            loop_lag_max_ms=lag_ms[-1] if lag_ms else None,
            send_late_p99_ms=_quantile(late_ms, 0.99),
            cpu_s=self.cpu_s,
            cpu_share=share,
            bottleneck=bottleneck(
                cpu_share=share,
                lag_median_ms=_quantile(lag_ms, 0.5),
                late_median_ms=_quantile(late_ms, 0.5),
                samples=samples,
            ),
            stalled=stalled(lag_ms, wall_s=self.wall_s),
        )


def bottleneck(
    *, cpu_share: float | None, lag_median_ms: float | None, late_median_ms: float | None, samples: Sequence[Sample]
) -> str | None:
    """Why the generator set the pace, in a sentence; None: it did not.

    A busy core cannot keep up by definition; a lag matters when it is 5 % of what was measured with it. Medians: a
    machine that stood still once stopped the server too, and shows in the largest lag.
    """
    if cpu_share is not None and cpu_share > _CPU_SHARE_MAX:
        return f"the load generator used {cpu_share:.0%} of its core"
    answer_ms = [(sample.end_ns - sample.send_ns) / 1e6 for sample in samples if sample.ok]
    if not answer_ms:
        return None
    typical_ms = sorted(answer_ms)[len(answer_ms) // 2]
    for name, value_ms in (("event loop lagged by", lag_median_ms), ("requests were sent late by", late_median_ms)):
        if value_ms is not None and value_ms > 2.0 and value_ms > _LAG_SHARE_MAX * typical_ms:
            return f"the load generator's {name} {value_ms:.1f} ms, against {typical_ms:.0f} ms a request"
    return None


def stalled(lag_ms: Sequence[float], *, wall_s: float) -> str | None:
    """A sentence when waits of 50 ms and more took 5 % of the window; None: it ran evenly.

    Such a measurement still ranks: whatever stood still, its repeats show the noise; its reader has to know.
    """
    lost_s = sum(lag for lag in lag_ms if lag >= _STALL_MS) / 1e3
    if wall_s <= 0 or lost_s <= _STALLED_SHARE_MAX * wall_s:
        return None
    return f"the load generator stood still for {lost_s:.1f} s of {wall_s:.1f} s: this machine was busy elsewhere"


def _quantile(rising: Sequence[float], share: float) -> float | None:
    return rising[min(len(rising) - 1, int(share * len(rising)))] if rising else None
