"""A launcher and a load without a server: scripted starts, scripted pace. For tests of all that stands above them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sweeper.core.experiment import Workload
from sweeper.core.launch import (
    Affinity,
    EffectiveConfig,
    EngineFingerprint,
    LaunchPlan,
    Phase,
    Server,
    ServerFailure,
    StartupTimes,
)
from sweeper.core.lossless import Reference, ReferenceAnswer
from sweeper.core.result import Fingerprint
from sweeper.core.run import GroupJob
from sweeper.core.sample import GeneratorHealth, LoadOutcome, PromptSet, RequestError, Sample, SpecCounters
from sweeper.core.trial import LoadPoint
from sweeper.errors import SweeperError

FAKE_ENGINE = EngineFingerprint(version="0.0.fake", files_sha256="f" * 64)
UNSAID = EffectiveConfig(
    version=None,
    model_path=None,
    served_model_name=None,
    algorithm=None,
    draft_model_path=None,
    num_steps=None,
    eagle_topk=None,
    num_draft_tokens=None,
    max_running_requests=None,
    tp_size=None,
    dp_size=None,
    attention_backend=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How one start goes."""

    fails: SweeperError | None = None
    """Raised instead of becoming ready."""
    dies_after_loads: int | None = None
    """Loads answered before its process is gone; warm-up loads count."""
    hangs_after_loads: int | None = None
    """Loads answered before requests stall."""
    blocks_in_load: bool = False
    """The first load never ends: only cancelling does."""
    effective: EffectiveConfig = UNSAID
    tok_per_s: float = 100.0
    accepted: tuple[int, ...] | None = None
    """Histogram of accepted drafts of every request; None: no speculation."""


@dataclass(slots=True, kw_only=True)
class FakeServer:
    plan: LaunchPlan
    script: Script
    loads: int = 0
    stopped: bool = False
    info: Mapping[str, Any] = field(default_factory=lambda: {"fake": True})
    times: StartupTimes = field(default_factory=lambda: StartupTimes(ready_s=0.0))
    engine: EngineFingerprint = FAKE_ENGINE
    affinity: Affinity = field(default_factory=Affinity)

    @property
    def effective(self) -> EffectiveConfig:
        return self.script.effective

    @property
    def is_dead(self) -> bool:
        limit = self.script.dies_after_loads
        return limit is not None and self.loads >= limit

    @property
    def is_hung(self) -> bool:
        limit = self.script.hangs_after_loads
        return limit is not None and self.loads >= limit

    async def flush(self) -> str:
        return "flushed"

    async def failure(self) -> ServerFailure | None:
        if not self.is_dead:
            return None
        return ServerFailure(failure_class="crash_load", message="the fake server died", remedy="script it otherwise")


class FakeLauncher:
    """Implements core.launch.Launcher. `servers` holds every server started, in order."""

    def __init__(self, script: Callable[[LaunchPlan], Script] | None = None) -> None:
        self._script = script or (lambda plan: Script())
        self.servers: list[FakeServer] = []

    def launch(
        self, plan: LaunchPlan, *, run_id: str, owner_pid: int, on_phase: Callable[[Phase, str], None]
    ) -> AbstractAsyncContextManager[Server]:
        return self._launch(plan, on_phase)

    @asynccontextmanager
    async def _launch(self, plan: LaunchPlan, on_phase: Callable[[Phase, str], None]) -> AsyncIterator[Server]:
        script = self._script(plan)
        on_phase("loading", "loading weights")
        if script.fails is not None:
            raise script.fails
        server = FakeServer(plan=plan, script=script)
        self.servers.append(server)
        on_phase("ready", "")
        try:
            yield server
        finally:
            server.stopped = True


async def fake_drive(
    server: Server,
    prompts: PromptSet,
    workload: Workload,
    load: LoadPoint,
    *,
    num_prompts: int | None = None,
    listen: Callable[[SpecCounters | None], bool] | None = None,
) -> LoadOutcome:
    """Answers every prompt at the scripted pace, without waiting: its clock is made up."""
    assert isinstance(server, FakeServer)
    if server.script.blocks_in_load:
        await asyncio.Event().wait()
    broken = server.is_dead or server.is_hung
    server.loads += 1
    chosen = prompts.prompts[:num_prompts] if num_prompts else prompts.prompts
    tokens = workload.max_tokens
    pace_ns = int(1e9 / server.script.tok_per_s)
    samples = []
    for index, prompt in enumerate(chosen):
        send_ns = index // load.concurrency * tokens * pace_ns * load.concurrency
        chunk_ns = tuple(send_ns + (step + 1) * pace_ns * load.concurrency for step in range(tokens))
        sample = Sample(
            index=index,
            prompt_id=prompt.prompt_id,
            category=prompt.category,
            due_ns=send_ns,
            send_ns=send_ns,
            chunk_ns=chunk_ns,
            chunk_tokens=(1,) * tokens,
            end_ns=chunk_ns[-1],
            input_tokens=8,
            cached_tokens=0,
            output_tokens=tokens,
            finish_reason="length",
            text=f"answer to {prompt.prompt_id}",
            output_ids=tuple(range(index, index + tokens)),
            spec=_counters(server.script.accepted),
        )
        samples.append(_broken(sample, server) if broken else sample)
        if listen is not None and not broken and not listen(sample.spec):
            listen = None
    health = GeneratorHealth(loop_lag_p99_ms=0.1, loop_lag_max_ms=0.2, send_late_p99_ms=0.1, cpu_s=0.1, cpu_share=0.01)
    return LoadOutcome(samples=tuple(samples), health=health, flush="not asked")


async def fake_reference(server: Server, job: GroupJob) -> Reference:
    """What fake_drive answers, with its second token a tie."""
    assert isinstance(server, FakeServer)
    if server.is_dead:
        raise OSError("the fake server died")
    tokens = job.workload.max_tokens
    answers = [
        ReferenceAnswer(
            prompt_id=prompt.prompt_id,
            text=f"answer to {prompt.prompt_id}",
            output_ids=tuple(range(index, index + tokens)),
            pieces=None,
            best=(-0.1,) * tokens,
            second=tuple(-0.2 if position == 1 else -3.0 for position in range(tokens)),
            cut=False,
        )
        for index, prompt in enumerate(job.prompts.prompts)
    ]
    return Reference(
        arm_id=job.arm.arm_id,
        group_id=job.group_id,
        start=job.start,
        recorded_at="2026-01-01T00:00:00+00:00",
        fingerprint=Fingerprint(
            engine=server.engine, prompts_sha256=job.prompts.sha256, gpu=(), driver=None, device=job.arm.server.device
        ),
        dtype="bfloat16",
        concurrency=job.reference_at or 1,
        seconds=0.0,
        answers=tuple(answers),
    )


def _counters(accepted: tuple[int, ...] | None) -> SpecCounters | None:
    if accepted is None:
        return None
    steps = sum(accepted)
    return SpecCounters(
        verify_steps=steps,
        correct_drafts=sum(count * drafts for drafts, count in enumerate(accepted)),
        proposed_drafts=steps * (len(accepted) - 1),
        histogram=accepted,
    )


def _broken(sample: Sample, server: FakeServer) -> Sample:
    kind = RequestError(kind="dropped" if server.is_dead else "stall", message="scripted")
    return replace(
        sample,
        chunk_ns=(),
        chunk_tokens=None,
        end_ns=sample.send_ns,
        output_tokens=None,
        finish_reason=None,
        text="",
        output_ids=None,
        spec=None,
        error=kind,
    )
