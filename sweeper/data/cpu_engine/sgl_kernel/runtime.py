"""Start-up calls of the engine's process. Tensor parallelism runs over gloo."""

import os

from .library import op


@op("init_cpu_threads_env(str cpu_ids) -> ()")
def init_cpu_threads_env(cpu_ids: str) -> None:
    """Nothing to do: OMP_NUM_THREADS decides, and pinning would stack the servers of one machine on the same cores."""


@op("initialize(int size, int rank) -> ()")
def initialize(size: int, rank: int) -> None:
    """There is no shared-memory segment here: local size 0 makes SGLang's groups use torch.distributed (gloo)."""
    os.environ["LOCAL_SIZE"] = "0"
