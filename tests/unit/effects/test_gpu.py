import os
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.effects import gpu
from sweeper.effects.cleaning import clean_gate, end_holders, holders_of
from sweeper.effects.conditions import ConditionsRecorder, record_conditions
from sweeper.effects.gpu import (
    Holder,
    Inventory,
    NvmlGpus,
    describe_holder,
    memory_returned,
    still_blocked,
)
from sweeper.effects.process import identify, spawn
from sweeper.errors import GpuBusy, PreflightError
from sweeper.testing.gpus import FakeGpus, fake_gpu, fake_node

STRANGER = Holder(pid=77, used_bytes=5 << 30, visible=True, user="bob", command="python train.py", sid=77)
UNSEEN = Holder(pid=9999999, used_bytes=5 << 30, visible=False)


def node(*gpus: Any) -> Inventory:
    return Inventory(gpus=gpus, driver="1")


async def gate(reader: FakeGpus, wanted: list[int], wait_s: float = 0.0) -> Inventory:
    return await clean_gate(reader, wanted, on_wait=lambda _: None, wait_s=wait_s)


async def test_a_foreign_process_is_named_with_gpu_pid_user_and_memory(state: Path) -> None:
    reader = FakeGpus([node(fake_gpu(0), fake_gpu(1, used_mib=5700, holders=(STRANGER,)))])
    with pytest.raises(GpuBusy, match=r"GPU 1 is held by pid 77 \(bob, 5\.0 GiB, python train\.py\); it is not ours"):
        await gate(reader, [0, 1], wait_s=60)
    assert reader.reads == 1, "a living foreign process is not waited for"


async def test_a_foreign_process_on_another_gpu_does_not_matter(state: Path) -> None:
    reader = FakeGpus([node(fake_gpu(0), fake_gpu(1, used_mib=5700, holders=(STRANGER,)))])
    assert (await gate(reader, [0])).gpu(0) == fake_gpu(0)


async def test_memory_without_a_visible_holder_blocks_its_gpu_and_a_falling_one_is_used(state: Path) -> None:
    reader = FakeGpus([fake_node(8, gpu4=50000, gpu6=41000), fake_node(8, gpu4=50000)])
    with pytest.raises(GpuBusy, match=r"GPU 4: 48\.8 GiB of memory held by a process not visible here") as caught:
        await gate(reader, [4, 6], wait_s=1.0)
    assert "GPU 6" not in str(caught.value)
    assert (await gate(FakeGpus([fake_node(8, gpu4=50000)]), [6])).gpu(6) is not None


async def test_a_pid_of_another_container_is_not_taken_for_ours(state: Path) -> None:
    reader = FakeGpus([node(fake_gpu(0, used_mib=9000, holders=(UNSEEN,)))])
    with pytest.raises(GpuBusy, match="not visible here"):
        await gate(reader, [0])


def test_an_empty_gpu_shows_memory_and_is_free() -> None:
    assert still_blocked([3], fake_node(8), frozenset()) == ()


def test_a_gpu_that_does_not_exist_is_named_with_those_that_do() -> None:
    (blocked,) = still_blocked([9], fake_node(2), frozenset())
    assert blocked.reason == "GPU 9 is not on this node (GPUs here: 0, 1)"


def test_memory_has_returned_when_it_is_what_it_was_before() -> None:
    before = [fake_gpu(0, used_mib=2000)]
    assert memory_returned(before, [fake_gpu(0, used_mib=2100)])
    assert not memory_returned(before, [fake_gpu(0, used_mib=2400)])
    assert memory_returned([fake_gpu(0, used_mib=4)], [fake_gpu(0, used_mib=615)]), "the driver's own share"


def test_this_process_is_described_from_proc() -> None:
    holder = describe_holder(os.getpid(), 1)
    assert holder.visible and holder.sid == os.getsid(0) and holder.command and holder.user
    assert not describe_holder(9999999, 1).visible


def test_force_ends_the_named_process_and_only_that(tmp_path: Path) -> None:
    first, second = (spawn(["sleep", "1000"], env={"PATH": "/bin:/usr/bin"}, log_path=tmp_path / "l") for _ in "ab")
    inventory = node(fake_gpu(0, holders=(describe_holder(first.pid, 1),)), fake_gpu(1))
    (forced,) = end_holders(holders_of(inventory, [0]), term_wait_s=5)
    assert forced.ended and forced.holder.pid == first.pid
    assert identify(second.pid) is not None
    first.wait()
    second.kill()
    second.wait()


def test_force_spares_whoever_has_the_pid_of_a_holder_that_is_gone(tmp_path: Path) -> None:
    heir = spawn(["sleep", "1000"], env={"PATH": "/bin:/usr/bin"}, log_path=tmp_path / "l")
    gone = replace(describe_holder(heir.pid, 1), start_ticks=1)
    (forced,) = end_holders([gone], term_wait_s=5)
    assert forced.ended and identify(heir.pid) is not None
    heir.kill()
    heir.wait()


def test_force_on_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(PreflightError, match="GPU 5 is not on this node"):
        holders_of(fake_node(2), [5])


def test_conditions_are_means_extremes_and_energy_from_first_to_last() -> None:
    recorder = ConditionsRecorder([1])
    recorder.add(node(fake_gpu(0), fake_gpu(1, used_mib=1000, energy_j=500.0)))
    recorder.add(node(fake_gpu(0), fake_gpu(1, used_mib=3000, energy_j=900.0)))
    conditions = recorder.conditions()
    assert conditions.energy_j == 400.0
    assert conditions.energy_over_s is not None and conditions.energy_over_s >= 0
    assert conditions.memory_used_bytes_max == 3000 << 20
    assert (conditions.power_w_mean, conditions.sm_clock_mhz_mean, conditions.temperature_c_max) == (
        120.0,
        1980.0,
        40.0,
    )
    assert conditions.gpu_names == ("NVIDIA H200",)


def test_a_slow_down_of_one_reading_is_told_with_its_share_and_the_lowest_clock() -> None:
    recorder = ConditionsRecorder([0, 1])
    capped = replace(fake_gpu(1), throttle_reasons=("power cap",), sm_clock_mhz=1815)
    for second in (capped, *[fake_gpu(1)] * 3):
        recorder.add(node(fake_gpu(0), second))
    conditions = recorder.conditions()
    assert conditions.throttle_reasons == ("power cap",)
    assert (conditions.throttled_share, conditions.sm_clock_mhz_min) == (0.25, 1815.0)


async def test_the_window_is_framed_by_samples_even_when_it_is_short() -> None:
    script = [node(fake_gpu(0, energy_j=10.0)), node(fake_gpu(0, energy_j=17.5))]
    async with record_conditions(FakeGpus(script), [0], every_s=60) as recorder:
        pass
    assert recorder.conditions().energy_j == 7.5


async def test_a_cpu_run_has_no_gpu_conditions() -> None:
    async with record_conditions(FakeGpus([Inventory(problem="no NVML")]), []) as recorder:
        pass
    assert recorder.conditions().gpu_names == ()
    assert recorder.conditions().energy_j is None


class NvmlError(Exception):
    pass


def fake_nvml(**more: Any) -> types.ModuleType:
    """The functions of pynvml that are used, for one GPU in a container without power readings."""

    def unsupported(*_: Any) -> Any:
        raise NvmlError("Not Supported")

    module = types.ModuleType("pynvml")
    functions = {
        "NVMLError": NvmlError,
        "NVML_CLOCK_SM": 1,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlClocksThrottleReasonHwSlowdown": 8,
        "nvmlClocksEventReasonSwPowerCap": 4,
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"580.65",
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": lambda _: types.SimpleNamespace(total=100, used=7),
        "nvmlDeviceGetUUID": lambda _: b"GPU-1",
        "nvmlDeviceGetName": lambda _: "NVIDIA X",
        "nvmlDeviceGetUtilizationRates": lambda _: types.SimpleNamespace(gpu=93),
        "nvmlDeviceGetTotalEnergyConsumption": unsupported,
        "nvmlDeviceGetPowerUsage": unsupported,
        "nvmlDeviceGetPciInfo": lambda _: types.SimpleNamespace(busId=b"00000000:1B:00.0"),
        "nvmlDeviceGetClockInfo": lambda *_: 1500,
        "nvmlDeviceGetTemperature": lambda *_: 61,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 1 | 4 | 8,
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [types.SimpleNamespace(pid=9999999, usedGpuMemory=None)],
        "nvmlDeviceGetGraphicsRunningProcesses": unsupported,
        **more,
    }
    for name, value in functions.items():
        setattr(module, name, value)
    return module


def test_what_a_gpu_does_not_report_is_none_and_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    inventory = NvmlGpus().read()
    (gpu,) = inventory.gpus
    assert (inventory.driver, gpu.uuid, gpu.utilisation_pct, gpu.temperature_c) == ("580.65", "GPU-1", 93, 61)
    assert (gpu.power_w, gpu.energy_j) == (None, None)
    assert gpu.throttle_reasons == ("power cap", "hardware slowdown"), "idle clocks are no throttling"
    assert gpu.holders == (Holder(pid=9999999, used_bytes=None, visible=False),)


def test_a_pid_of_the_host_is_not_taken_for_the_process_here_that_has_the_same_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = fake_nvml(
        nvmlDeviceGetComputeRunningProcesses=lambda _: [types.SimpleNamespace(pid=os.getpid(), usedGpuMemory=5)]
    )
    monkeypatch.setitem(sys.modules, "pynvml", named)
    monkeypatch.setattr(gpu, "GPU_DEVICES", str(tmp_path / "nvidia"))
    (seen,) = NvmlGpus().read().gpus
    assert seen.holders == (Holder(pid=os.getpid(), used_bytes=5, visible=False),)
    assert holders_of(Inventory(gpus=(seen,)), [0]) == (), "clean --force must not end it"
    with (tmp_path / "nvidia0").open("w"):
        (seen,) = NvmlGpus().read().gpus
    assert [(holder.pid, holder.visible) for holder in seen.holders] == [(os.getpid(), True)]


def test_without_the_driver_library_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise NvmlError("NVML Shared Library Not Found")

    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(nvmlInit=missing))
    assert NvmlGpus().read() == Inventory(problem="no NVML: NVML Shared Library Not Found")


def test_a_sample_reads_only_the_gpus_of_the_slot_and_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(_: Any) -> Any:
        raise AssertionError("processes are no part of a sample")

    two = fake_nvml(nvmlDeviceGetCount=lambda: 2, nvmlDeviceGetComputeRunningProcesses=looked)
    monkeypatch.setitem(sys.modules, "pynvml", two)
    (gpu,) = NvmlGpus().sample([1, 5]).gpus
    assert (gpu.index, gpu.memory_used_bytes, gpu.holders) == (1, 7, ())
