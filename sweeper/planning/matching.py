"""Knobs that SGLang sets by itself under speculation only: pinned in every arm, so that only speculation differs."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeper.engine.flags import FlagTable
from sweeper.engine.layers import text_config
from sweeper.engine.request import attention_dp
from sweeper.engine.rules import MIXED_CHUNK, RUNNING_CAP

MOST_GRAPHS = 256
"""Largest batch with a graph of its own by default on an 80 GB GPU with tp < 4 (memory_hook.py)."""

_GRAPH_FLAGS = (
    "cuda_graph_config",
    "cuda_graph_bs_decode",
    "cuda_graph_max_bs_decode",
    "cuda_graph_backend_decode",
    "cuda_graph_bs",
    "cuda_graph_max_bs",
    "disable_cuda_graph",
    "disable_decode_cuda_graph",
    "disable_cuda_graph_padding",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Flags added to (None: taken out of) every arm, and what to say about it."""

    args: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What pinning looks at, the same for all arms of one server."""

    args: Mapping[str, Any]
    device: str
    algorithms: Collection[str]
    """Of the speculative arms; empty: nothing to match."""
    trees: bool
    """Does some arm have eagle_topk > 1?"""
    concurrency: int
    """Largest load point."""
    flags: FlagTable
    target: Mapping[str, Any] | None = None


def pins(situation: Situation) -> Pins:
    """Running cap, graph sizes and mixed chunking for baseline and arms alike; what the user gave is never changed."""
    if not situation.algorithms:
        return Pins()
    args: dict[str, Any] = {}
    notes = [*_running_cap(situation, args), *_graphs(situation, args), *_mixed_chunk(situation, args)]
    return Pins(args=args, notes=tuple(notes), warnings=tuple(_warnings(situation, {**situation.args, **args})))


def _running_cap(situation: Situation, args: dict[str, Any]) -> Iterator[str]:
    if situation.args.get("max_running_requests") is not None:
        return
    cap = max(RUNNING_CAP, situation.concurrency)
    args["max_running_requests"] = cap
    yield (
        f"max_running_requests {cap} in every arm: left alone, the engine sets {RUNNING_CAP} under speculation "
        "and far more without"
    )


def _graphs(situation: Situation, args: dict[str, Any]) -> Iterator[str]:
    if situation.device != "cuda" or any(situation.args.get(name) for name in _GRAPH_FLAGS):
        return
    flag = next((name for name in ("cuda_graph_bs_decode", "cuda_graph_bs") if situation.flags.find(name)), None)
    if flag is None:
        return
    cap = int(situation.args.get("max_running_requests") or args["max_running_requests"])
    args[flag] = graph_sizes(min(cap, MOST_GRAPHS))
    yield f"{flag} 1 … {args[flag][-1]} in every arm: left alone, the engine captures coarser sizes without speculation"


def graph_sizes(largest: int) -> list[int]:
    """Batch sizes the engine captures under speculation (cuda_graph_hook.py), up to `largest`, which is one of them."""
    steps = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8)]
    sizes = [size for size in steps if size <= largest]
    return sizes if sizes and sizes[-1] == largest else [*sizes, largest]


def _mixed_chunk(situation: Situation, args: dict[str, Any]) -> Iterator[str]:
    without = sorted(name for name in situation.algorithms if name not in MIXED_CHUNK)
    if situation.args.get("enable_mixed_chunk") and without:
        args["enable_mixed_chunk"] = None
        yield f"enable_mixed_chunk off in every arm: the engine switches it off for {', '.join(without)}"


def _warnings(situation: Situation, args: Mapping[str, Any]) -> Iterator[str]:
    cap = int(args["max_running_requests"])
    if cap < situation.concurrency:
        yield (
            f"max_running_requests {cap} is below concurrency {situation.concurrency}: load points above {cap} measure "
            "the queue; raise it or drop them"
        )
    ranks = int(args.get("attn_dp_size") or args.get("dp_size") or 1) if attention_dp(args) else 1
    if ranks > 1 and situation.concurrency > cap // ranks:
        yield (
            f"{ranks} attention-DP ranks admit {cap // ranks} requests each: an unbalanced router can exceed that at "
            f"concurrency {situation.concurrency}; raise max_running_requests to {situation.concurrency * ranks}"
        )
    undecided = not args.get("attention_backend") and not args.get("decode_attention_backend")
    if situation.trees and undecided and situation.device == "cuda" and not _latent_attention(situation.target):
        yield (
            "attention_backend is left to the engine, which may take another one for trees (eagle_topk > 1) than "
            "for chains and the baseline; set server.args.attention_backend to compare speculation alone"
        )


def _latent_attention(target: Mapping[str, Any] | None) -> bool:
    return target is not None and text_config(target).get("kv_lora_rank") is not None
