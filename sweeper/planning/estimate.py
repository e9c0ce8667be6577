"""How long a plan will take, roughly: from measured figures of the CPU engine, and from typical GPU servers."""

from collections.abc import Mapping, Sequence

from sweeper.core.experiment import Workload
from sweeper.core.lossless import REFERENCE_PROMPTS, REFERENCE_TOKENS
from sweeper.core.trial import Arm, ServerStart, Trial
from sweeper.planning.facts import Facts

CPU_START_S = 30.0
"""Toy server from spawn to ready and stopped again, two cores."""
GPU_START_S = 90.0
"""Imports, NCCL, graph capture and stop of a GPU server, without reading weights."""
READ_BYTES_PER_S = 2e9
"""Weights from local NVMe or page cache, all ranks together."""
CPU_TOK_PER_S = 170.0
GPU_TOK_PER_S = 70.0
"""Output tok/s of one user without speculation: the toy on two cores; a large model on its GPUs."""
CPU_SCALING, GPU_SCALING = 0.6, 0.85
"""Exponent of concurrency in a server's throughput."""
WARM_UP = 1.3
"""Warm-up at each load point, as a factor on its measured load."""


def estimate_s(
    arms: Sequence[Arm],
    trials: Sequence[Trial],
    schedule: Sequence[ServerStart],
    workload: Workload,
    *,
    repeats: int,
    facts: Facts,
) -> float:
    """Seconds if every answer had `max_tokens` tokens; natural ends make it shorter."""
    by_arm = {arm.arm_id: arm for arm in arms}
    load_s: dict[str, float] = {}
    for trial in trials:
        rate = _tok_per_s(by_arm[trial.arm_id].server.device, trial.load.concurrency)
        seconds = workload.num_prompts * facts.turns * workload.max_tokens / rate
        if trial.load.rate_rps:
            seconds = max(seconds, workload.num_prompts / trial.load.rate_rps)
        load_s[trial.arm_id] = load_s.get(trial.arm_id, 0.0) + seconds
    total = 0.0
    for start in schedule:
        arm = by_arm[start.group_id]
        total += _start_s(arm, facts.weight_bytes) + load_s.get(arm.arm_id, 0.0) * (repeats + WARM_UP - 1)
    return round(total + _references_s(arms, trials, workload), 1)


def _references_s(arms: Sequence[Arm], trials: Sequence[Trial], workload: Workload) -> float:
    """The greedy pass of each baseline that records log-probabilities, at its lowest concurrency."""
    if workload.temperature > 0:
        return 0.0
    tokens = min(workload.num_prompts, REFERENCE_PROMPTS) * min(workload.max_tokens, REFERENCE_TOKENS)
    compared = {arm.baseline_id for arm in arms if not arm.is_baseline}
    lowest: dict[str, int] = {}
    for trial in trials:
        lowest[trial.arm_id] = min(trial.load.concurrency, lowest.get(trial.arm_id, trial.load.concurrency))
    return sum(
        tokens / _tok_per_s(arm.server.device, lowest[arm.arm_id])
        for arm in arms
        if arm.arm_id in compared and arm.arm_id in lowest
    )


def _tok_per_s(device: str, concurrency: int) -> float:
    if device == "cpu":
        return CPU_TOK_PER_S * float(concurrency**CPU_SCALING)
    return GPU_TOK_PER_S * float(concurrency**GPU_SCALING)


def _start_s(arm: Arm, weight_bytes: Mapping[str, int]) -> float:
    if arm.server.device == "cpu":
        return CPU_START_S
    return GPU_START_S + weight_bytes.get(arm.server.model_path, 0) / READ_BYTES_PER_S
