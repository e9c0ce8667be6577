"""`sweeper clean`: end what Sweeper left behind on this node, name the rest, touch nothing else."""

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from sweeper.cli.gpus import server_line
from sweeper.effects import ledger
from sweeper.effects.cleaning import (
    Cleaned,
    Forced,
    Leftover,
    clean_leftovers,
    end_holders,
    find_leftovers,
    holders_of,
    wait_for_memory,
)
from sweeper.effects.gpu import Gpu, Holder, NvmlGpus
from sweeper.engine.log import clean_line
from sweeper.errors import ConfigError

if TYPE_CHECKING:
    from sweeper.execution.ray_cluster import Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a cleaning did, or would do."""

    dry_run: bool
    leftovers: tuple[Leftover, ...]
    cleaned: tuple[Cleaned, ...]
    forced: tuple[Forced, ...]
    foreign: tuple[tuple[Gpu, Holder], ...]
    unreadable: tuple[str, ...]
    problem: str | None
    ray: "tuple[Held, ...]" = ()
    """What Sweeper holds in the Ray cluster that was named."""
    released: "tuple[Held, ...]" = ()


@click.command("clean")
@click.option("--dry-run", is_flag=True, help="Say what would be ended; end nothing.")
@click.option("--force", is_flag=True, help="With --gpu: end every process on that GPU, also what is not ours.")
@click.option("--gpu", "gpu_ids", type=int, multiple=True, help="Physical id, for --force; may be given several times.")
@click.option("--ray-address", metavar="ADDRESS", help="Also release what dead runs hold in this Ray cluster.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(dry_run: bool, force: bool, gpu_ids: tuple[int, ...], ray_address: str | None, as_json: bool) -> int:
    """End servers that are in this node's ledger and that nobody wants any more; list foreign holders, leave them.

    With --ray-address (or RAY_ADDRESS) placement groups and actors of runs that are gone are released there too.
    """
    if force != bool(gpu_ids):
        raise ConfigError("--force needs --gpu N, and --gpu needs --force: name the GPUs whose processes are to end")
    outcome = _clean(dry_run, gpu_ids)
    if address := ray_address or os.environ.get("RAY_ADDRESS"):
        outcome = _with_ray(outcome, address)
    click.echo(json.dumps(_document(outcome)) if as_json else "\n".join(_lines(outcome)))
    survivors = any(item.remaining for item in outcome.cleaned) or any(not item.ended for item in outcome.forced)
    return 1 if survivors and not dry_run else 0


def _clean(dry_run: bool, gpu_ids: Sequence[int]) -> Outcome:
    reader = NvmlGpus()
    before = reader.read()
    targets = holders_of(before, gpu_ids) if gpu_ids else ()
    leftovers = find_leftovers()
    cleaned: tuple[Cleaned, ...] = ()
    forced = tuple(Forced(holder=holder, ended=False) for holder in targets)
    problem = None
    if not dry_run:
        cleaned = clean_leftovers()
        forced = end_holders(targets)
        held = {index for item in cleaned if item.ended for index in item.leftover.entry.gpu_ids} | set(gpu_ids)
        empty = [_emptied(gpu) for gpu in before.gpus if gpu.index in held]
        problem = asyncio.run(wait_for_memory(reader, empty))
    now = before if dry_run else reader.read()
    ours = {info.pid for item in leftovers for info in item.members}
    return Outcome(
        dry_run=dry_run,
        leftovers=leftovers,
        cleaned=cleaned,
        forced=forced,
        foreign=tuple((gpu, holder) for gpu in now.gpus for holder in gpu.holders if holder.pid not in ours),
        unreadable=tuple(str(path) for path in ledger.unreadable_entries()),
        problem=problem,
    )


def _with_ray(outcome: Outcome, address: str) -> Outcome:
    from sweeper.execution.ray_cluster import find_ours, joined, release

    with joined(address):
        held = find_ours()
        stale = [one for one in held if one.stale and not outcome.dry_run]
        return replace(outcome, ray=held, released=tuple(one for one in stale if release(one)))


def _emptied(gpu: Gpu) -> Gpu:
    """What the GPU should show once the ended processes' memory is gone."""
    return replace(gpu, memory_used_bytes=0)


def _lines(outcome: Outcome) -> list[str]:
    lines = [server_line(item) for item in outcome.leftovers]
    if outcome.dry_run:
        lines += [
            f"would end {len(item.members)} process(es) of run {item.entry.run_id}"
            for item in outcome.leftovers
            if item.orphan
        ]
        lines += [f"would end (forced) {_holder(item.holder)}" for item in outcome.forced]
    for item in outcome.cleaned:
        how = " (SIGKILL was needed)" if item.killed else ""
        lines.append(f"ended {len(item.ended)} process(es) of run {item.leftover.entry.run_id}{how}")
        if item.remaining:
            lines.append(f"still alive: {', '.join(map(str, item.remaining))}")
    if not outcome.dry_run:
        lines += [
            f"{'ended' if item.ended else 'could not end'} (forced) {_holder(item.holder)}" for item in outcome.forced
        ]
    lines += [_ray_line(one, outcome) for one in outcome.ray]
    lines += [f"foreign, left alone: GPU {gpu.index}: {_holder(holder)}" for gpu, holder in outcome.foreign]
    lines += [f"not a whole ledger entry, left alone: {path}" for path in outcome.unreadable]
    if outcome.problem:
        lines.append(outcome.problem)
    return lines or ["nothing of ours is left on this node"]


def _ray_line(held: "Held", outcome: Outcome) -> str:
    if not held.stale:
        return f"Ray {held.kind} {held.name}: in use by {held.owner}, left alone"
    done = "would release" if outcome.dry_run else "released" if held in outcome.released else "already gone:"
    return f"{done} Ray {held.kind} {held.name} of {held.owner}, which is gone"


def _holder(holder: Holder) -> str:
    if not holder.visible:
        return f"pid {holder.pid}, not visible here"
    return f"pid {holder.pid} ({holder.user}): {clean_line(holder.command or '')[:100]}"


def _document(outcome: Outcome) -> dict[str, Any]:
    return {
        "dry_run": outcome.dry_run,
        "servers": [
            {
                "run_id": item.entry.run_id,
                "launch_id": item.entry.launch_id,
                "gpu_ids": list(item.entry.gpu_ids),
                "pids": [info.pid for info in item.members],
                "left_over": item.orphan,
            }
            for item in outcome.leftovers
        ],
        "ended": [
            {"launch_id": item.leftover.entry.launch_id, "pids": list(item.ended), "remaining": list(item.remaining)}
            for item in outcome.cleaned
        ],
        "forced": [{"pid": item.holder.pid, "ended": item.ended} for item in outcome.forced],
        "foreign": [
            {"gpu": gpu.index, "pid": holder.pid, "visible": holder.visible} for gpu, holder in outcome.foreign
        ],
        "unreadable": list(outcome.unreadable),
        "problem": outcome.problem,
        "ray": [
            {"kind": one.kind, "name": one.name, "stale": one.stale, "released": one in outcome.released}
            for one in outcome.ray
        ],
    }
