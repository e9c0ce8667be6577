"""A node's GPUs from a script: eight of them on a laptop, memory that falls late, holders that are not ours."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sweeper.effects.gpu import Gpu, Holder, Inventory

EMPTY_BYTES = 615 << 20
"""What an empty H200 shows."""
TOTAL_BYTES = 143771 << 20


def fake_gpu(index: int, *, used_mib: int = 615, holders: tuple[Holder, ...] = (), energy_j: float = 0.0) -> Gpu:
    """One GPU of a node whose GPUs differ only in their number."""
    return Gpu(
        index=index,
        uuid=f"GPU-{index:08d}-0000-0000-0000-000000000000",
        name="NVIDIA H200",
        memory_total_bytes=TOTAL_BYTES,
        memory_used_bytes=used_mib << 20,
        utilisation_pct=0,
        sm_clock_mhz=1980,
        temperature_c=40,
        power_w=120.0,
        energy_j=energy_j,
        holders=holders,
    )


def fake_node(count: int = 8, **held_mib: int) -> Inventory:
    """A node of `count` GPUs; `gpu4=61440` puts that many MiB on GPU 4, without a visible holder."""
    used = {int(name.removeprefix("gpu")): mib for name, mib in held_mib.items()}
    return Inventory(
        gpus=tuple(fake_gpu(index, used_mib=used.get(index, 615)) for index in range(count)), driver="580.1"
    )


@dataclass(slots=True)
class FakeGpus:
    """Implements effects.gpu.GpuReader: each read gives the next inventory; the last one stays."""

    script: Sequence[Inventory]
    reads: int = field(default=0)

    def read(self) -> Inventory:
        inventory = self.script[min(self.reads, len(self.script) - 1)]
        self.reads += 1
        return inventory

    def sample(self, gpu_ids: Sequence[int]) -> Inventory:
        inventory = self.read()
        chosen = tuple(replace(gpu, holders=()) for gpu in inventory.gpus if gpu.index in gpu_ids)
        return replace(inventory, gpus=chosen)
