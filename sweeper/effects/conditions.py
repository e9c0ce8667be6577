"""The GPUs during a measured window: what they did while the numbers were made."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

from sweeper.core.result import Conditions
from sweeper.effects.gpu import Gpu, GpuReader, Inventory

SAMPLE_EVERY_S = 1.0


class ConditionsRecorder:
    """Samples of the GPUs of one slot; `conditions` sums them up."""

    def __init__(self, gpu_ids: Sequence[int]) -> None:
        self._gpu_ids = tuple(gpu_ids)
        self._driver: str | None = None
        self._samples: list[tuple[Gpu, ...]] = []
        self._at_s: list[float] = []

    def add(self, inventory: Inventory) -> None:
        gpus = tuple(gpu for gpu in inventory.gpus if gpu.index in self._gpu_ids)
        if gpus:
            self._driver = inventory.driver
            self._samples.append(gpus)
            self._at_s.append(time.monotonic())

    def conditions(self) -> Conditions:
        """Means and extremes over samples and GPUs; energy is the sum over the GPUs from first to last sample."""
        if not self._samples:
            return Conditions()
        every = [gpu for sample in self._samples for gpu in sample]
        first, last = self._samples[0], self._samples[-1]
        clocks = [float(gpu.sm_clock_mhz) for gpu in every if gpu.sm_clock_mhz is not None]
        temperatures = [gpu.temperature_c for gpu in every if gpu.temperature_c is not None]
        return Conditions(
            gpu_names=tuple(gpu.name for gpu in first),
            gpu_uuids=tuple(gpu.uuid for gpu in first),
            driver=self._driver,
            sm_clock_mhz_mean=_mean(clocks),
            temperature_c_max=float(max(temperatures)) if temperatures else None,
            power_w_mean=self._power_w(),
            energy_j=_energy_j(first, last) if len(self._samples) > 1 else None,
            energy_over_s=self._at_s[-1] - self._at_s[0] if len(self._samples) > 1 else None,
            memory_used_bytes_max=max(sum(gpu.memory_used_bytes for gpu in sample) for sample in self._samples),
            memory_total_bytes=sum(gpu.memory_total_bytes for gpu in first),
            throttle_reasons=tuple(sorted({reason for gpu in every for reason in gpu.throttle_reasons})),
            throttled_share=_mean([float(any(gpu.throttle_reasons for gpu in sample)) for sample in self._samples]),
            sm_clock_mhz_min=min(clocks) if clocks else None,
        )

    def _power_w(self) -> float | None:
        sums = [
            sum(gpu.power_w for gpu in sample if gpu.power_w is not None)
            for sample in self._samples
            if all(gpu.power_w is not None for gpu in sample)
        ]
        return _mean(sums)


@contextlib.asynccontextmanager
async def record_conditions(
    reader: GpuReader, gpu_ids: Sequence[int], *, every_s: float = SAMPLE_EVERY_S
) -> AsyncIterator[ConditionsRecorder]:
    """Samples from entering to leaving, in a thread of its own; the first and the last sample frame the window."""
    recorder = ConditionsRecorder(gpu_ids)
    if not gpu_ids:
        yield recorder
        return
    recorder.add(await asyncio.to_thread(reader.sample, gpu_ids))
    task = asyncio.create_task(_sample(reader, recorder, gpu_ids, every_s))
    try:
        yield recorder
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        recorder.add(await asyncio.to_thread(reader.sample, gpu_ids))


async def _sample(reader: GpuReader, recorder: ConditionsRecorder, gpu_ids: Sequence[int], every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        recorder.add(await asyncio.to_thread(reader.sample, gpu_ids))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _energy_j(first: Sequence[Gpu], last: Sequence[Gpu]) -> float | None:
    start = {gpu.uuid: gpu.energy_j for gpu in first}
    pairs = [(start.get(gpu.uuid), gpu.energy_j) for gpu in last]
    differences = [end - begin for begin, end in pairs if begin is not None and end is not None]
    return sum(differences) if len(differences) == len(pairs) else None
