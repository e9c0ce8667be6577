"""On a made-up host of two sides, and on one that says nothing."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.effects.affinity import cpus_of, gpu_numa_node, numa_cpus, observe, parse_cpus, side_cpus
from sweeper.effects.gpu import Gpu
from sweeper.effects.process import spawn
from sweeper.testing.gpus import fake_gpu


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Eight GPUs, four a side; a process on the far side; 56 cores a side."""
    for node, cpus in enumerate(("0-55", "56-111")):
        folder = tmp_path / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
    for index in range(8):
        folder = tmp_path / f"bus/pci/devices/0000:{16 * index + 0xB:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{index // 4}\n")
    (tmp_path / "4711").mkdir()
    (tmp_path / "4711/status").write_text("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t56-111\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text("Cpus_allowed_list:\t0-111\n")
    return tmp_path


def gpu(index: int) -> Gpu:
    """NVML writes eight digits of domain, in capitals."""
    return replace(fake_gpu(index), pci_bus_id=f"00000000:{16 * index + 0xB:02X}:00.0")


def test_each_gpu_is_found_on_its_side(host: Path) -> None:
    assert [gpu_numa_node(gpu(index), host) for index in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert numa_cpus(host) == {0: "0-55", 1: "56-111"}


def test_what_a_server_was_bound_to_is_read_from_the_kernel(host: Path) -> None:
    seen = observe([gpu(5)], [("sglang::scheduler_TP0", 4711), ("sglang::detokenizer", 99)], sysfs=host, proc=host)
    assert seen.gpu_numa_nodes == (1,)
    assert seen.server_cpus == {"sglang::scheduler_TP0 4711": "56-111"}
    assert seen.generator_cpus == "0-111"


def test_what_the_host_does_not_say_is_unknown(tmp_path: Path) -> None:
    assert gpu_numa_node(gpu(0), tmp_path) is None
    assert gpu_numa_node(fake_gpu(0), tmp_path) is None
    assert numa_cpus(tmp_path) == {}
    folder = tmp_path / "bus/pci/devices/0000:0b:00.0"
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text("-1\n")
    assert gpu_numa_node(gpu(0), tmp_path) is None


def test_this_process_may_run_where_the_kernel_says() -> None:
    assert cpus_of(os.getpid()) == cpus_of("self")
    assert cpus_of("self")


def test_a_server_whose_gpus_are_on_one_side_belongs_there(host: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))
    (host / "devices/system/node/node0/cpulist").write_text(f"{mine[0]}\n")
    (host / "devices/system/node/node1/cpulist").write_text("4000-4010\n")
    assert side_cpus([gpu(1), gpu(2)], ["python"], {}, sysfs=host) == (frozenset({mine[0]}) if len(mine) > 1 else None)
    assert side_cpus([gpu(5)], ["python"], {}, sysfs=host) is None, "none of its CPUs is ours"


def test_nothing_is_bound_where_it_would_hurt_or_is_not_ours_to_say(host: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))
    (host / "devices/system/node/node0/cpulist").write_text(f"{mine[0]}\n")
    assert side_cpus([gpu(index) for index in range(8)], ["python"], {}, sysfs=host) is None
    assert side_cpus([], ["python"], {}, sysfs=host) is None
    assert side_cpus([gpu(0)], ["/usr/bin/numactl", "-N", "0", "python"], {}, sysfs=host) is None
    assert side_cpus([gpu(0)], ["python", "--numa-node", "0"], {}, sysfs=host) is None
    assert side_cpus([gpu(0)], ["python"], {"SGLANG_AUTO_NUMA_BIND": "0"}, sysfs=host) is None
    assert side_cpus([fake_gpu(0)], ["python"], {}, sysfs=host) is None


def test_lists_of_cpus_are_read_as_the_kernel_writes_them() -> None:
    assert parse_cpus("0-2,8,10-11") == {0, 1, 2, 8, 10, 11}


def test_a_process_starts_on_the_cpus_it_was_given_and_we_stay_on_ours(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    one = frozenset({min(before)})
    words = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
    assert spawn(words, env=dict(os.environ), log_path=tmp_path / "log", cpus=one).wait() == 0
    assert (tmp_path / "log").read_text().strip() == str(sorted(one))
    assert os.sched_getaffinity(0) == before
