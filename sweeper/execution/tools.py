"""The real tools of a group: SGLang on this node, the load generator, NVML. Built inside the worker that uses them."""

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweeper.core.experiment import Workload
from sweeper.core.launch import Difference, LaunchPlan, Server
from sweeper.core.run import GroupJob
from sweeper.core.sample import LoadOutcome, PromptSet
from sweeper.core.trial import LoadPoint, ServerConfig
from sweeper.effects import ledger
from sweeper.effects.conditions import record_conditions
from sweeper.effects.gpu import NvmlGpus
from sweeper.effects.overlay import overlay_for
from sweeper.effects.ports import reserve_port
from sweeper.effects.server import SglangLauncher
from sweeper.effects.startup import argument, dump_stacks
from sweeper.engine.argv import launch_plan
from sweeper.engine.audit import differences
from sweeper.engine.request import attention_dp
from sweeper.errors import StoreError
from sweeper.execution.alarm import Listen
from sweeper.execution.loadgen import LoadTarget, drive
from sweeper.execution.reference import record_reference
from sweeper.execution.runner import Tools
from sweeper.store import layout

CPU_ENGINE = Path(__file__).parent.parent / "data" / "cpu_engine"


def real_tools() -> Tools:
    """A function at the top of a module, so that workers of other processes import it by name."""
    gpus = NvmlGpus()
    launcher = SglangLauncher(gpus=gpus)
    return Tools(
        launcher=launcher,
        accompany=launcher.accompany,
        prepare=prepare,
        drive=drive_server,
        watch_gpus=lambda gpu_ids: record_conditions(gpus, gpu_ids),
        differences=server_differences,
        dump_stacks=keep_stacks,
        record_reference=record_reference,
    )


@contextmanager
def prepare(job: GroupJob) -> Iterator[LaunchPlan]:
    """See Tools.prepare."""
    server = job.arm.server
    folder = layout.start_dir(job.run_dir, job.group_id, job.start)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made on this node: {error.strerror}") from error
    with reserve_port(holder=f"run {job.run_id}", dp_attention=attention_dp(server.args)) as port:
        yield launch_plan(
            server,
            launch_id=uuid.uuid4().hex[:12],
            gpu_ids=job.gpu_ids,
            nnodes=job.nodes,
            port=port,
            log_path=folder / layout.SERVER_LOG,
            python=sys.executable,
            cpu_engine_dir=CPU_ENGINE,
            draft_overlay=overlay_for(server),
        )


async def drive_server(
    server: Server,
    prompts: PromptSet,
    workload: Workload,
    load: LoadPoint,
    *,
    num_prompts: int | None = None,
    listen: Listen | None = None,
) -> LoadOutcome:
    plan = server.plan
    target = LoadTarget(base_url=plan.base_url, model=plan.served_model_name, api_key=argument(plan, "--api-key"))
    return await drive(target, prompts, workload, load, num_prompts=num_prompts, listen=listen)


def server_differences(requested: ServerConfig, server: Server) -> tuple[Difference, ...]:
    return differences(requested, server.effective, server.effective.version)


def keep_stacks(server: Server) -> None:
    entry = ledger.read_entry(server.plan.launch_id)
    if entry is not None and entry.sid is not None:
        dump_stacks(entry.sid, server.plan.log_path)
