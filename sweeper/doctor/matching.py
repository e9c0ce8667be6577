"""Which layer of the engine is each slot of a training dump? By values, never by label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sweeper.engine.layers import captured_layers, ids_for

SAME = 0.12
"""Median relative distance of the same state computed twice in half precision, with room; neighbours are further."""
CLEARLY = 0.5
"""The best layer must be at least this much nearer than the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotMatch:
    """One slot of the dump beside the engine's nearest layer."""

    slot: str
    layer: int | None
    """Index of the layer whose *input* this is; None: no layer is near enough, or two are equally near."""
    nearest: int
    cosine: float
    """Mean over tokens."""
    distance: float
    """Median over tokens of |dump - engine| / |engine|."""
    second_distance: float
    norm: float
    """Mean length of the dump's states."""
    engine_norm: float
    first_values: tuple[float, ...]
    engine_first_values: tuple[float, ...]


Kind = Literal["right", "other-ids", "reordered", "unreachable", "partly", "other-model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What settles it."""

    matches: tuple[SlotMatch, ...]
    kind: Kind
    layers: tuple[int, ...] | None
    """Layers the dump was made of, in slot order; None unless every slot was found."""
    ids: tuple[int, ...] | None
    """Layer ids that make this engine deliver them."""
    sentence: str


def match_slots(slots: Sequence[tuple[str, Tensor]], layers: Mapping[int, Tensor]) -> tuple[SlotMatch, ...]:
    """Compare every slot [tokens, hidden] with every engine layer [tokens, hidden], token by token."""
    return tuple(_match(name, states, layers) for name, states in slots)


def _match(name: str, states: Tensor, layers: Mapping[int, Tensor]) -> SlotMatch:
    scored = sorted((_distance(states, layer), index) for index, layer in layers.items())
    (best, nearest), second = scored[0], scored[1][0] if len(scored) > 1 else float("inf")
    engine = layers[nearest]
    rows = min(len(states), len(engine))
    cosine = torch.nn.functional.cosine_similarity(states[:rows].float(), engine[:rows].float(), dim=-1).mean()
    return SlotMatch(
        slot=name,
        layer=nearest if best <= SAME and best <= CLEARLY * second else None,
        nearest=nearest,
        cosine=float(cosine),
        distance=best,
        second_distance=second,
        norm=float(states.float().norm(dim=-1).mean()),
        engine_norm=float(engine.float().norm(dim=-1).mean()),
        first_values=_first(states),
        engine_first_values=_first(engine),
    )


def _distance(states: Tensor, layer: Tensor) -> float:
    """The median leaves out the few first tokens whose states are enormous."""
    rows = min(len(states), len(layer))
    ours, theirs = states[:rows].float(), layer[:rows].float()
    return float(((ours - theirs).norm(dim=-1) / theirs.norm(dim=-1).clamp_min(1e-9)).median())


def _first(states: Tensor) -> tuple[float, ...]:
    """Five values of the second token: the first one is often a sink without meaning."""
    return tuple(round(float(value), 4) for value in states[min(1, len(states) - 1)][:5])


def judge(
    matches: Sequence[SlotMatch], *, architecture: str, num_layers: int, version: str, configured: Sequence[int] | None
) -> Wiring:
    """The sentence: which ids reproduce the dump on this target and engine, against those configured."""
    found = [item.layer for item in matches]
    if all(layer is None for layer in found):
        nearest = min(item.distance for item in matches)
        sentence = f"These states are not from this model: the nearest of all layers is still {nearest:.0%} away."
        return _wiring(matches, "other-model", sentence)
    lost = [item.slot for item in matches if item.layer is None]
    if lost:
        known = ", ".join(_told(item) for item in matches if item.layer is not None)
        return _wiring(matches, "partly", f"Slot {', '.join(lost)} is no layer that the engine can capture; {known}.")
    layers = tuple(layer for layer in found if layer is not None)
    if list(layers) != sorted(set(layers)):
        return _reordered(matches, layers)
    ids = ids_for(architecture=architecture, num_layers=num_layers, layers=layers, version=version)
    told = "; ".join(_told(item) for item in matches)
    where = f"{architecture} of SGLang {version}"
    if ids is None:
        text = f"{told}; no layer ids make {where} capture {list(layers)}: train the draft on other layers."
        return _wiring(matches, "unreachable", text, layers)
    now = captured_layers(architecture=architecture, num_layers=num_layers, ids=configured, version=version)
    if now is not None and now.layers == layers:
        return _wiring(matches, "right", f"{told}; the configured ids deliver exactly these.", layers, ids)
    given = "the default" if configured is None else str(list(configured))
    gets = f", while {given} delivers {list(now.layers)}" if now is not None else ""
    return _wiring(matches, "other-ids", f"{told}; on {where} set {list(ids)}{gets}.", layers, ids)


def _reordered(matches: Sequence[SlotMatch], layers: tuple[int, ...]) -> Wiring:
    order = [layers.index(layer) for layer in sorted(layers)]
    text = (
        f"The dump holds the layers in the order {list(layers)}; the engine always delivers {sorted(layers)}. No layer "
        f"ids repair that: put the blocks of fc's input columns into the order {order}, or dump and train again."
    )
    return _wiring(matches, "reordered", text, layers)


def _told(item: SlotMatch) -> str:
    where = "the embedding" if item.layer == 0 else f"the output of layer {(item.layer or 0) - 1}"
    return f"your slot `{item.slot}` is {where} (input of layer {item.layer})"


def _wiring(
    matches: Sequence[SlotMatch],
    kind: Kind,
    sentence: str,
    layers: tuple[int, ...] | None = None,
    ids: tuple[int, ...] | None = None,
) -> Wiring:
    return Wiring(matches=tuple(matches), kind=kind, layers=layers, ids=ids, sentence=sentence)


def portions(*, architecture: str, num_layers: int, version: str, size: int) -> tuple[tuple[int, ...], ...]:
    """Layer ids that together capture every layer this target can deliver, `size` per server start."""
    reachable = []
    for index in range(num_layers):
        alone = captured_layers(architecture=architecture, num_layers=num_layers, ids=(index,), version=version)
        if alone is not None and not alone.unreached and not alone.crashes:
            reachable.append(index)
    # A portion that begins with 1 would be shifted on DeepSeek-type targets, so 0 and 1 stay together.
    return tuple(tuple(reachable[i : i + size]) for i in range(0, len(reachable), size))
