"""One unmeasured pass over some prompts on a baseline's server: its greedy answers with their log-probabilities."""

import asyncio
import time
from datetime import UTC, datetime

from sweeper.analysis.lossless import reference_prompts
from sweeper.core.launch import Server
from sweeper.core.lossless import REFERENCE_PROMPTS, REFERENCE_TOKENS, Reference, ReferenceAnswer
from sweeper.core.result import Fingerprint
from sweeper.core.run import GroupJob
from sweeper.core.sample import Prompt
from sweeper.effects.http import ControlClient
from sweeper.effects.hub import local_checkpoint, read_config
from sweeper.effects.startup import argument
from sweeper.engine.logprobs import reference_answer, reference_path, reference_request, target_dtype
from sweeper.errors import PreflightError, first_of


async def record_reference(server: Server, job: GroupJob) -> Reference:
    """Raises OSError when the server does not answer, ValueError when it answers without log-probabilities."""
    workload, concurrency = job.workload, job.reference_at or 1
    prompts = reference_prompts(job.prompts.prompts, REFERENCE_PROMPTS)
    await server.flush()
    began_s = time.monotonic()
    places = asyncio.Semaphore(concurrency)
    async with ControlClient(server.plan.base_url, api_key=argument(server.plan, "--api-key")) as client:

        async def ask(prompt: Prompt) -> ReferenceAnswer:
            body = reference_request(prompt, workload, model=server.plan.served_model_name, max_tokens=REFERENCE_TOKENS)
            path = reference_path(workload)
            async with places:
                status, text = await client.post(path, body, timeout_s=workload.request_timeout_s)
            if status != 200:
                raise OSError(f"POST {path}: HTTP {status}: {client.quoted(text)}")
            return reference_answer(text, prompt, workload, max_tokens=REFERENCE_TOKENS)

        try:
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(ask(prompt)) for prompt in prompts]
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
    return Reference(
        arm_id=job.arm.arm_id,
        group_id=job.group_id,
        start=job.start,
        recorded_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        fingerprint=Fingerprint(
            engine=server.engine,
            prompts_sha256=job.prompts.sha256,
            gpu=(),
            driver=None,
            device=job.arm.server.device,
        ),
        dtype=dtype_of(server, job),
        concurrency=concurrency,
        seconds=round(time.monotonic() - began_s, 3),
        answers=tuple(task.result() for task in asked),
    )


def dtype_of(server: Server, job: GroupJob) -> str | None:
    """The engine tells what it was asked for, which may be `auto`; then the checkpoint says."""
    try:
        config = read_config(local_checkpoint(job.arm.server.model_path) / "config.json")
    except (PreflightError, OSError):
        config = None
    return target_dtype(server.info.get("dtype"), config)
