"""Which target layers an EAGLE3 arm is fed from, and whether its draft can be fed so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.core.trial import SpecConfig
from sweeper.engine.drafts import aux_states, num_layers, own_layer_ids
from sweeper.engine.layers import Capture, captured_layers, ids_for, target_architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """What the engine captures for one arm. `layers` None: not EAGLE3, or not known here."""

    layers: tuple[int, ...] | None = None
    notes: tuple[str, ...] = ()
    illegal: str | None = None


def feed(spec: SpecConfig, *, target: Mapping[str, Any] | None, draft: Mapping[str, Any] | None, version: str) -> Feed:
    """The layers captured for `spec`; `illegal` when its requested ids cannot work on this pair."""
    if spec.algorithm != "EAGLE3" or target is None:
        return Feed()
    architecture, blocks = target_architecture(target), num_layers(target)
    block = (draft or {}).get("eagle_config")
    if isinstance(block, Mapping) and block.get("use_aux_hidden_state") is False and spec.aux_layer_ids is None:
        return Feed(notes=("eagle_config.use_aux_hidden_state is false: the draft sees the last hidden state only",))
    ids = spec.aux_layer_ids if spec.aux_layer_ids is not None else own_layer_ids(draft)
    if architecture is None or blocks is None or (ids is None and draft is None):
        return Feed()
    capture = captured_layers(architecture=architecture, num_layers=blocks, ids=ids, version=version)
    if capture is None:
        reason = (
            f"SGLang {version} captures no layers for EAGLE3 on {architecture}; use EAGLE, or another engine version"
        )
        return Feed(illegal=reason)
    notes = []
    if ids is None:
        notes.append("the draft's eagle_config names no layer ids: the engine takes its default layers")
    if capture.reordered:
        notes.append(f"ids {_text(ids)} are not ascending: the engine captures in layer order {_text(capture.layers)}")
    illegal = None
    if spec.aux_layer_ids is not None:
        illegal = _unfit(spec.aux_layer_ids, capture, aux_states(draft), architecture, blocks, version)
    elif capture.unreached:
        notes.append(f"the draft's own ids {_text(ids)} ask for layers that are never captured; run `sweeper doctor`")
    return Feed(layers=capture.layers, notes=tuple(notes), illegal=illegal)


def _unfit(
    ids: tuple[int, ...], capture: Capture, states: int | None, architecture: str, blocks: int, version: str
) -> str | None:
    if states is not None and len(ids) != states:
        return f"the draft takes {states} captured states, got {len(ids)} ids {_text(ids)}; give {states}"
    if capture.unreached:
        last = ids_for(architecture=architecture, num_layers=blocks, layers=(0, blocks - 1), version=version)
        hint = f"; ids lie between {last[0]} and {last[1]} here" if last else ""
        return (
            f"ids {_text(ids)} ask for layer {_text(capture.unreached)} of {blocks}, which is never captured: the "
            f"draft would get {len(capture.layers)} of {len(ids)} states and the first request fails{hint}"
        )
    return None


def _text(numbers: tuple[int, ...] | None) -> str:
    return ", ".join(map(str, numbers or ()))
