"""From errors and empty loads to failures: the class, the sentence and the remedy that a result carries."""

from collections import Counter
from dataclasses import replace
from typing import cast, get_args

from sweeper.core.launch import Difference
from sweeper.core.result import Failure, FailureClass
from sweeper.core.sample import LoadOutcome
from sweeper.core.trial import Arm
from sweeper.errors import DiskError, GpuBusy, ServerError, StoreError, SweeperError

REMEDIES: dict[FailureClass, str] = {
    "bad_argument": "correct or remove the named flag; `sweeper plan` shows the command",
    "model_not_found": "check server.model_path on the node that ran this",
    "draft_not_found": "check speculative.draft_model_path on the node that ran this",
    "draft_mismatch": "run `sweeper doctor` on the draft",
    "oom_load": "raise mem_fraction_static, use more GPUs or a smaller model",
    "oom_capture": "lower mem_fraction_static or cuda_graph_max_bs",
    "oom_run": "lower mem_fraction_static or max_running_requests",
    "nccl": "check NCCL settings and the links between the GPUs",
    "port": "run again with --retry-failed: another port is chosen",
    "illegal_memory": "try another attention_backend; report it to SGLang with the log",
    "hang_start": "see the log; raise engine.ready_timeout_s if loading is only slow",
    "hang_capture": "see the log; lower cuda_graph_max_bs",
    "hang_load": "see the log; raise workload.stall_timeout_s if the server is only slow",
    "scheduler_dead": "see the telling lines of the log",
    "wrong_server": "another server answers on this port; `sweeper gpus` shows whose",
    "config_differs": "name the configuration as the engine runs it",
    "engine_missing": "install SGLang in the interpreter that engine.python names",
    "crash_start": "see the telling lines of the log",
    "crash_load": "see the telling lines of the log",
    "gpu_busy": "wait for the holder, or choose other GPUs; `sweeper gpus` shows it",
    "empty": "see the errors of the requests in samples.parquet and the server's log",
    "node_lost": "run again with --retry-failed: finished measurements are kept",
    "disk": "free that disk or make it writable, then run again with --retry-failed; no configuration is at fault",
    "generator": "see the errors of the requests in samples.parquet",
    "unknown": "see the log of the server",
}

LASTING: frozenset[FailureClass] = frozenset(
    {
        "bad_argument",
        "model_not_found",
        "draft_not_found",
        "draft_mismatch",
        "oom_load",
        "oom_capture",
        "config_differs",
        "engine_missing",
    }
)
"""Another start of the same server would fail the same way."""

TRANSIENT: frozenset[FailureClass] = frozenset({"port", "node_lost"})
"""Worth one more try."""


def worth_another_try(failure: Failure) -> bool:
    """A server that died because another held its GPU, too: its next start ends a leftover of ours or refuses by name.

    A GPU that was refused before anything started has no log and stays refused.
    """
    return failure.failure_class in TRANSIENT or (failure.failure_class == "gpu_busy" and bool(failure.log_lines))


_SPEC_KEYS = ("algorithm", "num_steps", "eagle_topk", "num_draft_tokens", "draft_model_path")


def failure_of(error: SweeperError) -> Failure:
    if isinstance(error, ServerError):
        name = error.failure_class if error.failure_class in get_args(FailureClass) else "unknown"
        failure_class = cast(FailureClass, name)
        return Failure(
            failure_class=failure_class,
            message=str(error),
            remedy=error.remedy or REMEDIES[failure_class],
            log_lines=error.log_lines[-20:],
        )
    if isinstance(error, GpuBusy):
        return Failure(failure_class="gpu_busy", message=str(error), remedy=REMEDIES["gpu_busy"])
    if isinstance(error, DiskError | StoreError):  # before a server ran: its ledger entry, its log, its folder
        return Failure(failure_class="disk", message=str(error), remedy=REMEDIES["disk"])
    return Failure(
        failure_class="unknown", message=str(error), remedy="correct that, then run again with --retry-failed"
    )


def outcome_failure(outcome: LoadOutcome) -> Failure | None:
    """Why this load gave nothing usable; None when at least one request was answered with a token, or uncounted."""
    answered = [sample for sample in outcome.samples if sample.ok]
    if any(sample.output_tokens != 0 for sample in answered):
        return None
    if answered:
        return Failure(
            failure_class="empty",
            message=f"no tokens counted: {len(answered)} of {len(outcome.samples)} requests were answered, "
            "all with 0 output tokens",
            remedy=REMEDIES["empty"],
        )
    kinds = Counter(sample.error.kind for sample in outcome.samples if sample.error is not None)
    lines = tuple(dict.fromkeys(f"{s.error.kind}: {s.error.message}" for s in outcome.samples if s.error is not None))[
        :20
    ]
    hung = bool(kinds) and set(kinds) <= {"stall", "timeout"}
    failure_class: FailureClass = "hang_load" if hung else "empty"
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "no request was sent"
    return Failure(
        failure_class=failure_class,
        message=f"no request was answered: {counted}",
        remedy=REMEDIES[failure_class],
        log_lines=lines,
    )


def label_lie(arm: Arm, differences: tuple[Difference, ...]) -> str | None:
    """A sentence when the server runs another speculative configuration than the arm's name says, unexplained."""
    lies = [d for d in differences if d.explained is None and d.key.removeprefix("speculative_") in _SPEC_KEYS]
    if not lies:
        return None
    told = ", ".join(f"{d.key} is {d.effective!r}, not {d.requested!r}" for d in lies)
    return f"the engine does not run {arm.label}: {told}"


def with_start(failure: Failure, start: int) -> Failure:
    return replace(failure, start=start)
