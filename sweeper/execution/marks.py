"""What a reader must know about a measurement before trusting it."""

from sweeper.analysis.engagement import engagement_mark
from sweeper.analysis.quality import cache_mark, content_marks, generator_marks, greedy_mark, simulation_mark
from sweeper.core.launch import Difference, Server
from sweeper.core.result import Conditions, Mark, Metrics
from sweeper.core.run import GroupJob
from sweeper.core.sample import LoadOutcome

MANY_ERRORS = 0.05
"""Beyond this share of failed requests the load was another one than that of the other arms."""


def marks_of(
    job: GroupJob,
    server: Server,
    outcome: LoadOutcome,
    metrics: Metrics,
    conditions: Conditions,
    differences: tuple[Difference, ...],
) -> tuple[Mark, ...]:
    doubts = (
        simulation_mark(server.plan.env),
        cache_mark(metrics),
        engagement_mark(metrics),
        _sampling_mark(job, server),
    )
    return (
        *(mark for mark in doubts if mark is not None),
        *content_marks(outcome.samples, draft_tokens=server.effective.num_draft_tokens),
        *_difference_marks(differences),
        *_error_marks(metrics),
        *generator_marks(outcome.health),
        *_throttle_marks(conditions),
        *_prompt_marks(job),
        *_flush_marks(outcome),
        *_stopped_marks(outcome),
    )


def _sampling_mark(job: GroupJob, server: Server) -> Mark | None:
    raw = server.effective.raw.get("speculative_use_rejection_sampling", False)
    return greedy_mark(
        temperature=job.workload.temperature,
        top_p=job.workload.top_p,
        top_k=job.workload.top_k,
        device=job.arm.server.device,
        speculative_rejection_sampling=None if job.arm.server.spec is None else bool(raw),
    )


def _difference_marks(differences: tuple[Difference, ...]) -> tuple[Mark, ...]:
    return tuple(
        Mark(
            code="config-differs",
            message=f"{d.key}: requested {d.requested!r}, effective {d.effective!r}"
            + (f" ({d.explained})" if d.explained else ""),
        )
        for d in differences
    )


def _error_marks(metrics: Metrics) -> tuple[Mark, ...]:
    lost = metrics.requests - metrics.ok
    if lost == 0:
        return ()
    told = ", ".join(f"{count} {kind}" for kind, count in metrics.errors.items())
    share = lost / metrics.requests
    return (
        Mark(
            code="request-errors",
            message=f"{lost} of {metrics.requests} requests failed: {told}",
            ranked=share <= MANY_ERRORS,
        ),
    )


def _throttle_marks(conditions: Conditions) -> tuple[Mark, ...]:
    if not conditions.throttle_reasons:
        return ()
    message = f"the GPU was throttled: {', '.join(conditions.throttle_reasons)}"
    share, lowest = conditions.throttled_share, conditions.sm_clock_mhz_min
    if share is not None and lowest is not None:
        message += f", in {share:.0%} of the readings, down to {lowest:.0f} MHz"
    return (Mark(code="throttled", message=message),)


def _prompt_marks(job: GroupJob) -> tuple[Mark, ...]:
    if job.prompts.representative or job.arm.server.spec is None:
        return ()
    return (Mark(code="random-prompts", message="random tokens: acceptance on them says nothing about real text"),)


def _flush_marks(outcome: LoadOutcome) -> tuple[Mark, ...]:
    if outcome.flush.startswith("flushed"):
        return ()
    return (Mark(code="cache-not-flushed", message=f"the prefix cache was not emptied: {outcome.flush}"),)


def _stopped_marks(outcome: LoadOutcome) -> tuple[Mark, ...]:
    return (Mark(code="over-saturated", message=outcome.stopped, ranked=False),) if outcome.stopped else ()
