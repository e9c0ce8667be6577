"""Which CPUs stand beside which GPUs, on which of them a server belongs, and where it and the load generator run.

SGLang 0.5.23 binds its ranks, not its HTTP and detokenizer processes, to the side of their GPU, and only where
`numactl` is installed (srt/utils/numa_utils.py). So a server whose GPUs are all on one side is started there.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sweeper.core.launch import Affinity
from sweeper.effects.gpu import Gpu

SYSFS = Path("/sys")
PROC = Path("/proc")


def numa_cpus(sysfs: Path = SYSFS) -> dict[int, str]:
    """CPUs by NUMA node, as the kernel writes them: {0: "0-27,56-83", 1: …}; empty where it does not say."""
    found = {}
    for folder in (sysfs / "devices/system/node").glob("node[0-9]*"):
        cpus = _read(folder / "cpulist")
        if cpus is not None:
            found[int(folder.name.removeprefix("node"))] = cpus
    return dict(sorted(found.items()))


def gpu_numa_node(gpu: Gpu, sysfs: Path = SYSFS) -> int | None:
    """The NUMA node a GPU is attached to; None: unknown here, or the host has no such nodes (the kernel's -1)."""
    if gpu.pci_bus_id is None:
        return None
    domain, _, rest = gpu.pci_bus_id.lower().partition(":")
    node = _read(sysfs / "bus/pci/devices" / f"{domain[-4:].zfill(4)}:{rest}" / "numa_node")
    return int(node) if node is not None and node.isdigit() else None


def side_cpus(
    gpus: Sequence[Gpu], argv: Sequence[str], env: Mapping[str, str], *, sysfs: Path = SYSFS
) -> frozenset[int] | None:
    """The CPUs a server belongs on; None: its GPUs are on both sides, nothing is known, or the experiment binds it."""
    binds_itself = {"numactl", "taskset"} & {Path(word).name for word in argv} or "--numa-node" in argv
    if binds_itself or any("NUMA" in name or "CPU_AFFINITY" in name for name in env):
        return None
    sides = {gpu_numa_node(gpu, sysfs) for gpu in gpus}
    nodes = numa_cpus(sysfs)
    if len(sides) != 1 or len(nodes) < 2:
        return None
    cpus = nodes.get(next(iter(sides)) or 0) if None not in sides else None
    allowed = os.sched_getaffinity(0)
    beside = parse_cpus(cpus or "") & allowed
    return frozenset(beside) if beside and beside != allowed else None


def parse_cpus(text: str) -> set[int]:
    """`0-2,8` → {0, 1, 2, 8}."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def cpus_of(pid: int | str, proc: Path = PROC) -> str | None:
    """CPUs a process may run on, e.g. `0-27,56-83`; None: it is gone or hidden."""
    status = _read(proc / str(pid) / "status") or ""
    line = next((line for line in status.splitlines() if line.startswith("Cpus_allowed_list:")), None)
    return None if line is None else line.partition(":")[2].strip()


def observe(
    gpus: Sequence[Gpu], processes: Iterable[tuple[str, int]], *, sysfs: Path = SYSFS, proc: Path = PROC
) -> Affinity:
    """`gpus` of the server, its processes by name and pid; the load generator is the process that asks."""
    server: Mapping[str, str | None] = {f"{name} {pid}": cpus_of(pid, proc) for name, pid in processes}
    return Affinity(
        gpu_numa_nodes=tuple(gpu_numa_node(gpu, sysfs) for gpu in gpus),
        server_cpus={name: cpus for name, cpus in server.items() if cpus is not None},
        generator_cpus=cpus_of("self", proc),
    )


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
