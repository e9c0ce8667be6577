"""GPUs as NVML shows them. The only importer of pynvml, and only when first asked.

Everything that reads is a value (`Inventory`), so that a fake of one method stands in for a node of eight GPUs.
"""

import os
import pwd
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sweeper.core.redaction import redact_text
from sweeper.engine.log import clean_line

IDLE_MEMORY_BYTES = 1 << 30
"""An empty H200 shows 615 MiB used; up to here a GPU counts as empty."""
GPU_DEVICES = "/dev/nvidia"
"""Whoever has memory on a GPU has such files open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that has memory on a GPU."""

    pid: int
    used_bytes: int | None
    visible: bool
    """Its pid exists in this pid namespace; elsewhere (other container) nothing more can be said of it."""
    user: str | None = None
    command: str | None = None
    since_s: float | None = None
    """Unix time of its start."""
    sid: int | None = None
    start_ticks: int | None = None
    """With the pid its identity; see effects.process.ProcessId."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU at one moment; None: not readable here."""

    index: int
    """Physical, in PCI bus order as nvidia-smi numbers them."""
    uuid: str
    name: str
    memory_total_bytes: int
    memory_used_bytes: int
    utilisation_pct: int | None = None
    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """Since the driver was loaded; only differences mean something."""
    throttle_reasons: tuple[str, ...] = ()
    holders: tuple[Holder, ...] = ()
    pci_bus_id: str | None = None
    """As NVML writes it: `00000000:1B:00.0`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The GPUs of this node, or why there are none to see."""

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    problem: str | None = None
    """`no NVML: …`; None when NVML answered."""

    def gpu(self, index: int) -> Gpu | None:
        return next((gpu for gpu in self.gpus if gpu.index == index), None)

    def uuids(self) -> dict[int, str]:
        return {gpu.index: gpu.uuid for gpu in self.gpus}


class GpuReader(Protocol):
    """Reads the GPUs now. Implementations: NVML, and the fake shipped in sweeper.testing."""

    def read(self) -> Inventory:
        """Every GPU of the node, with the processes that hold it."""

    def sample(self, gpu_ids: Sequence[int]) -> Inventory:
        """Only these GPUs, without their processes: cheap enough to frame a measured window."""


_THROTTLES = {
    "nvmlClocksEventReasonSwPowerCap": "power cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksEventReasonSwThermalSlowdown": "thermal (software)",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "thermal (hardware)",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
}
"""NVML's reasons that slow a loaded GPU down; idle and application clocks are no throttling."""


class NvmlGpus:
    """The real GPUs. Without NVML it reads an empty inventory that says so."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._problem: str | None = None

    def read(self) -> Inventory:
        return self._read(None, holders=True)

    def sample(self, gpu_ids: Sequence[int]) -> Inventory:
        return self._read(gpu_ids, holders=False)

    def _read(self, gpu_ids: Sequence[int] | None, *, holders: bool) -> Inventory:
        nvml = self._library()
        if nvml is None:
            return Inventory(problem=self._problem)
        try:
            driver = _text(nvml.nvmlSystemGetDriverVersion())
            here = range(nvml.nvmlDeviceGetCount())
            wanted = here if gpu_ids is None else [index for index in gpu_ids if index in here]
            gpus = tuple(self._gpu(nvml, index, holders=holders) for index in wanted)
        except nvml.NVMLError as error:
            return Inventory(problem=f"NVML failed: {error}")
        return Inventory(gpus=gpus, driver=driver)

    def _library(self) -> Any:
        if self._nvml is None and self._problem is None:
            try:
                import pynvml

                pynvml.nvmlInit()
                self._nvml = pynvml
            except Exception as error:  # noqa: BLE001  any failure of a driver library means: no GPUs to see
                self._problem = f"no NVML: {error or type(error).__name__}"
        return self._nvml

    def _gpu(self, nvml: Any, index: int, *, holders: bool) -> Gpu:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        utilisation = _try(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        energy = _try(nvml, lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        power = _try(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        return Gpu(
            index=index,
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            name=_text(nvml.nvmlDeviceGetName(handle)),
            memory_total_bytes=int(memory.total),
            memory_used_bytes=int(memory.used),
            utilisation_pct=utilisation,
            sm_clock_mhz=_try(nvml, lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            temperature_c=_try(nvml, lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            power_w=None if power is None else power / 1000,
            energy_j=None if energy is None else energy / 1000,
            throttle_reasons=_throttles(nvml, handle),
            holders=_holders(nvml, handle) if holders else (),
            pci_bus_id=_try(nvml, lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
        )


def describe_holder(pid: int, used_bytes: int | None) -> Holder:
    """What this node knows of a process that NVML names."""
    folder = Path(f"/proc/{pid}")
    try:
        uid = folder.stat().st_uid
        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        boot_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        since_s = boot_s + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return Holder(pid=pid, used_bytes=used_bytes, visible=False)
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return Holder(
        pid=pid,
        used_bytes=used_bytes,
        visible=True,
        user=user,
        command=redact_text(clean_line(words)),
        since_s=since_s,
        sid=int(fields[3]),
        start_ticks=int(fields[19]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A GPU that must not be used, and why."""

    index: int
    reason: str


def still_blocked(wanted: Sequence[int], inventory: Inventory, ours: frozenset[int]) -> tuple[Blocked, ...]:
    """Which wanted GPUs cannot be launched on now. `ours`: session ids of servers of ours.

    A GPU is free when nobody foreign has memory on it and its used memory is that of an empty GPU.
    """
    blocked = []
    for index in wanted:
        gpu = inventory.gpu(index)
        if gpu is None:
            known = ", ".join(str(item.index) for item in inventory.gpus) or inventory.problem or "none"
            blocked.append(Blocked(index=index, reason=f"GPU {index} is not on this node (GPUs here: {known})"))
            continue
        reason = _blocking(gpu, ours)
        if reason:
            blocked.append(Blocked(index=index, reason=reason))
    return tuple(blocked)


def _blocking(gpu: Gpu, ours: frozenset[int]) -> str | None:
    foreign = [holder for holder in gpu.holders if holder.sid is None or holder.sid not in ours]
    visible = [holder for holder in foreign if holder.visible]
    if visible:
        who = ", ".join(
            f"pid {holder.pid} ({holder.user}, {_gib(holder.used_bytes)}, {(holder.command or '?')[:60]})"
            for holder in visible
        )
        force = f"`sweeper clean --force --gpu {gpu.index}`"
        return f"GPU {gpu.index} is held by {who}; it is not ours: choose another GPU, or {force}"
    if gpu.memory_used_bytes > IDLE_MEMORY_BYTES and not any(holder.sid in ours for holder in gpu.holders):
        return (
            f"GPU {gpu.index}: {_gib(gpu.memory_used_bytes)} of memory held by a process not visible here "
            "(other container or namespace, or a leaked context); nothing to end from this side"
        )
    return None


def memory_returned(before: Sequence[Gpu], now: Sequence[Gpu], *, tolerance_bytes: int = 256 << 20) -> bool:
    """Has every GPU fallen back to what it held before the launch (or to what an empty one shows)?"""
    held = {gpu.index: gpu.memory_used_bytes for gpu in before}
    return all(gpu.memory_used_bytes <= max(held.get(gpu.index, 0) + tolerance_bytes, IDLE_MEMORY_BYTES) for gpu in now)


def _gib(value: int | None) -> str:
    return "memory unknown" if value is None else f"{value / (1 << 30):.1f} GiB"


def _holders(nvml: Any, handle: Any) -> tuple[Holder, ...]:
    found: dict[int, int | None] = {}
    for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        for process in _try(nvml, lambda name=name: getattr(nvml, name)(handle)) or ():
            found[int(process.pid)] = getattr(process, "usedGpuMemory", None)
    return tuple(
        describe_holder(pid, used) if _has_gpu_open(pid) else Holder(pid=pid, used_bytes=used, visible=False)
        for pid, used in sorted(found.items())
    )


def _has_gpu_open(pid: int) -> bool:
    """False: in a container NVML may name a pid of the host, which here is a bystander of the same number."""
    try:
        files = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # another user's: it cannot be told
        return True
    for file in files:
        with suppress(OSError):
            if str(file.readlink()).startswith(GPU_DEVICES):
                return True
    return False


def _throttles(nvml: Any, handle: Any) -> tuple[str, ...]:
    query = (
        getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
    )
    mask = _try(nvml, lambda: query(handle)) or 0
    return tuple(words for name, words in _THROTTLES.items() if mask & int(getattr(nvml, name, 0)))


def _try(nvml: Any, read: Any) -> Any:
    with suppress(nvml.NVMLError):
        return read()
    return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
