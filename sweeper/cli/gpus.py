"""`sweeper gpus`: the GPUs of this node and who holds them."""

import json
from datetime import UTC, datetime
from typing import Any

import click

from sweeper.effects.cleaning import Leftover, find_leftovers
from sweeper.effects.gpu import Gpu, Holder, NvmlGpus
from sweeper.engine.log import clean_line
from sweeper.errors import PreflightError


@click.command("gpus")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(as_json: bool) -> int:
    """GPU, memory, utilisation, clocks and holders (pid, user, command, since when, ours or foreign)."""
    inventory = NvmlGpus().read()
    leftovers, lost = _ledger()
    if as_json:
        click.echo(
            json.dumps(
                {
                    "driver": inventory.driver,
                    "problem": inventory.problem,
                    "ledger_problem": lost,
                    "gpus": [_gpu_document(gpu, leftovers) for gpu in inventory.gpus],
                    "servers": [_server_document(item) for item in leftovers or ()],
                }
            )
        )
        return 0
    if inventory.problem:
        click.echo(inventory.problem)
    if lost:
        click.echo(f"what is ours cannot be told: {lost}")
    for gpu in inventory.gpus:
        click.echo(_gpu_line(gpu))
        for holder in gpu.holders:
            click.echo("    " + _holder_line(holder, leftovers))
        if not gpu.holders and gpu.memory_used_bytes > 1 << 30:
            click.echo("    held by a process not visible here (other container or namespace, or a leaked context)")
    for item in leftovers or ():
        click.echo(server_line(item))
    return 0


def _ledger() -> tuple[tuple[Leftover, ...] | None, str | None]:
    """Our servers, or why they cannot be told: the GPUs are there to be seen without a ledger too."""
    try:
        return find_leftovers(), None
    except PreflightError as error:
        return None, str(error)


def server_line(item: Leftover) -> str:
    """One server of ours: where it is, what lives of it, and whether a run still wants it."""
    where = f"GPU {','.join(map(str, item.entry.gpu_ids))}" if item.entry.gpu_ids else "CPU"
    pids = ", ".join(str(info.pid) for info in item.members) or "nothing alive"
    state = "left over" if item.orphan else f"of a run going on (pid {item.entry.owner.pid})"
    return f"server of run {item.entry.run_id} on {where}, port {item.entry.port}: {state}; {pids}"


def _gpu_line(gpu: Gpu) -> str:
    parts = [
        f"GPU {gpu.index}  {gpu.name}",
        f"{_gib(gpu.memory_used_bytes)} of {_gib(gpu.memory_total_bytes)}",
        _shown(gpu.utilisation_pct, "%"),
        _shown(gpu.sm_clock_mhz, " MHz"),
        _shown(gpu.temperature_c, " °C"),
        _shown(gpu.power_w, " W", digits=0),
        ", ".join(gpu.throttle_reasons),
    ]
    return "  ".join(part for part in parts if part)


def _holder_line(holder: Holder, leftovers: tuple[Leftover, ...] | None) -> str:
    if not holder.visible:
        return f"pid {holder.pid}: not visible here (other container or namespace)"
    owner = _owner(holder, leftovers)
    since = datetime.fromtimestamp(holder.since_s, UTC).isoformat(timespec="seconds") if holder.since_s else "?"
    memory = _gib(holder.used_bytes) if holder.used_bytes is not None else "memory unknown"
    return (
        f"pid {holder.pid}  {holder.user}  {memory}  since {since}  {owner}  {clean_line(holder.command or '')[:100]}"
    )


def _owner(holder: Holder, leftovers: tuple[Leftover, ...] | None) -> str:
    if leftovers is None:
        return "ours or foreign: not known"
    entry = next((item.entry for item in leftovers if any(info.pid == holder.pid for info in item.members)), None)
    return f"ours (run {entry.run_id})" if entry else "foreign"


def _gpu_document(gpu: Gpu, leftovers: tuple[Leftover, ...] | None) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "memory_used_bytes": gpu.memory_used_bytes,
        "memory_total_bytes": gpu.memory_total_bytes,
        "utilisation_pct": gpu.utilisation_pct,
        "sm_clock_mhz": gpu.sm_clock_mhz,
        "temperature_c": gpu.temperature_c,
        "power_w": gpu.power_w,
        "throttle_reasons": list(gpu.throttle_reasons),
        "holders": [
            {
                "pid": holder.pid,
                "visible": holder.visible,
                "user": holder.user,
                "command": clean_line(holder.command) if holder.command else None,
                "since_s": holder.since_s,
                "used_bytes": holder.used_bytes,
                "owner": _owner(holder, leftovers) if holder.visible else "not visible",
            }
            for holder in gpu.holders
        ],
    }


def _server_document(item: Leftover) -> dict[str, Any]:
    return {
        "run_id": item.entry.run_id,
        "launch_id": item.entry.launch_id,
        "gpu_ids": list(item.entry.gpu_ids),
        "port": item.entry.port,
        "pids": [info.pid for info in item.members],
        "left_over": item.orphan,
        "log_path": item.entry.log_path,
    }


def _gib(value: int) -> str:
    return f"{value / (1 << 30):.1f} GiB"


def _shown(value: float | None, unit: str, digits: int = 0) -> str:
    return "" if value is None else f"{value:.{digits}f}{unit}"
