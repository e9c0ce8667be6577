"""A server configuration as the command that starts it. Pure: nothing about a launch is decided elsewhere."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweeper.core.launch import LaunchPlan
from sweeper.core.redaction import redact_argv, redact_env
from sweeper.core.trial import ServerConfig, SpecConfig
from sweeper.engine.devices import visible_devices
from sweeper.engine.ports import nccl_port

MODULE = "sglang.launch_server"

CPU_ARGS: Mapping[str, Any] = {
    "attention_backend": "intel_amx",
    "mem_fraction_static": 0.3,
    "max_total_tokens": 8192,
    "sleep_on_idle": True,
}
"""The CPU engine's defaults; the experiment's own values win. Idle servers must not keep a core busy."""

CPU_ENV: Mapping[str, str] = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "SGLANG_NCCL_SO_PATH": "none",  # several ranks use gloo; a CUDA build of torch would bring NCCL, which needs a GPU
    "TORCHDYNAMO_DISABLE": "1",  # compiling a few small functions costs 8 s at the first request and gains nothing
    "PYTHONDONTWRITEBYTECODE": "",  # importing the engine from source costs 7 s more in each of its processes
}

UNPREFIXED = ("enable_multi_layer_eagle", "uno_lora_path", "spec_trace_dir")
"""Speculation's flags that do not begin with `speculative`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where one node's part of a server runs."""

    gpu_ids: tuple[int, ...]
    """Physical ids; empty on the CPU engine."""
    host: str = "127.0.0.1"
    """As the other nodes reach it."""
    port: int
    log_path: Path


def launch_plan(  # noqa: PLR0913  every argument is one fact of the launch
    server: ServerConfig,
    *,
    launch_id: str,
    gpu_ids: Sequence[int],
    host: str = "127.0.0.1",
    port: int,
    log_path: Path,
    python: str,
    cpu_engine_dir: Path | None = None,
    draft_overlay: Path | None = None,
    given_devices: str | None = None,
    nnodes: int = 1,
) -> LaunchPlan:
    """The complete launch of one server on one node.

    `python`: interpreter with SGLang, used when the experiment names none. `draft_overlay`: folder that stands in for
    the draft (aux_layer_ids). `given_devices`: CUDA_VISIBLE_DEVICES of the launching process; None: unset. `nnodes`:
    nodes the server spans (then see `rank_plans`).
    """
    name = f"sweeper-{launch_id}"
    argv = [
        *server.command_prefix,
        server.python or python,
        "-m",
        MODULE,
        *server_words(server, draft_overlay=draft_overlay),
        *("--host", host, "--port", str(port), "--served-model-name", name),
        *(() if "nccl_port" in server.args else ("--nccl-port", str(nccl_port(port)))),
    ]
    if server.device == "cpu":
        env = _cpu_env(server, cpu_engine_dir)
    else:
        visible = visible_devices(gpu_ids, given=given_devices, needed=server.gpus // nnodes)
        env = {**server.env, "CUDA_VISIBLE_DEVICES": visible}
    env["SWEEPER_LAUNCH_ID"] = launch_id
    return LaunchPlan(
        launch_id=launch_id,
        argv=tuple(argv),
        env=env,
        gpu_ids=tuple(gpu_ids),
        host=host,
        port=port,
        base_url=f"http://{host}:{port}",
        served_model_name=name,
        ready_timeout_s=server.ready_timeout_s,
        log_path=log_path,
    )


def paste_line(server: ServerConfig, *, draft_overlay: Path | None = None) -> str:
    """The command as a user would type it, secrets hidden: `python -m sglang.launch_server --model-path …`."""
    plan = LaunchPlan(
        launch_id="",
        argv=redact_argv(("python", "-m", MODULE, *server_words(server, draft_overlay=draft_overlay))),
        env=redact_env(server.env),
        gpu_ids=(),
        host="",
        port=0,
        base_url="",
        served_model_name="",
        ready_timeout_s=0,
        log_path=Path(),
    )
    return plan.shell()


def rank_plans(plan: LaunchPlan, seats: Sequence[Seat], *, dist_port: int) -> tuple[LaunchPlan, ...]:
    """One launch per node for a server that spans several: rank 0 answers requests, all meet at its `dist_port`.

    `plan` is the launch on one node; `seats[r]` is the node of rank r, rank 0 first. One seat gives the plan unchanged.
    The further ranks answer no requests, but each takes a port; their launch ids (`…-r1`) stand in their own ledgers.
    """
    if len(seats) == 1:
        return (plan,)
    meeting = f"{seats[0].host}:{dist_port}"
    together = ("--nnodes", str(len(seats)), "--node-rank")
    return tuple(
        _rank_plan(plan, rank, seat, (*together, str(rank), "--dist-init-addr", meeting))
        for rank, seat in enumerate(seats)
    )


def _rank_plan(plan: LaunchPlan, rank: int, seat: Seat, words: Sequence[str]) -> LaunchPlan:
    argv = list(plan.argv)
    argv[len(argv) - argv[::-1].index("--port")] = str(seat.port)
    launch_id = f"{plan.launch_id}-r{rank}" if rank else plan.launch_id
    env = {**plan.env, "SWEEPER_LAUNCH_ID": launch_id}
    if seat.gpu_ids:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, seat.gpu_ids))
    return replace(
        plan,
        launch_id=launch_id,
        argv=(*argv, *words),
        env=env,
        gpu_ids=seat.gpu_ids,
        port=seat.port,
        base_url=f"http://{plan.host}:{seat.port}",
        log_path=seat.log_path,
    )


def server_words(server: ServerConfig, *, draft_overlay: Path | None = None) -> tuple[str, ...]:
    """The flags that decide what the server does, without host, port and name."""
    args = dict(server.args)
    words = ["--model-path", server.model_path]
    if server.device == "cpu":
        words += ["--device", "cpu"]
        args = {**CPU_ARGS, **args}
    for name, value in args.items():
        words += flag_words(name, value)
    if server.spec is not None:
        words += speculative_words(server.spec, draft_overlay)
    return tuple(words)


def speculative_words(spec: SpecConfig, draft_overlay: Path | None = None) -> Iterator[str]:
    """`--speculative-algorithm …` and its further flags; what is None is left to the engine."""
    draft = str(draft_overlay) if draft_overlay is not None else spec.draft_model_path
    fields = {
        "algorithm": spec.algorithm,
        "draft_model_path": draft,
        "num_steps": spec.num_steps,
        "eagle_topk": spec.eagle_topk,
        "num_draft_tokens": spec.num_draft_tokens,
        **spec.args,
    }
    for name, value in fields.items():
        yield from flag_words(name if name in UNPREFIXED else f"speculative_{name}", value)


def flag_words(name: str, value: Any) -> Iterator[str]:
    """One flag: true ⇒ present, false or None ⇒ absent, list ⇒ several values, map ⇒ JSON, else its text."""
    if value is None or value is False:
        return
    option = "--" + name.replace("_", "-")
    if value is True:
        yield option
    elif isinstance(value, Mapping):
        yield from (option, json.dumps(value, separators=(",", ":")))
    elif isinstance(value, list | tuple):
        yield from (option, *(json.dumps(item) if isinstance(item, Mapping) else str(item) for item in value))
    elif str(value).startswith("-"):
        yield f"{option}={value}"
    else:
        yield from (option, str(value))


def _cpu_env(server: ServerConfig, cpu_engine_dir: Path | None) -> dict[str, str]:
    """The engine's stand-in for its native kernels must be found before anything of the same name."""
    paths = [str(cpu_engine_dir) if cpu_engine_dir else "", server.env.get("PYTHONPATH", "")]
    return {**CPU_ENV, **server.env, "PYTHONPATH": ":".join(path for path in paths if path)}
