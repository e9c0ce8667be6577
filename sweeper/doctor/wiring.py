"""Runs the dump's tokens through the engine and finds out what the dump's slots are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from sweeper.doctor.accuracy import embedding
from sweeper.doctor.live import Engine, Text, capture
from sweeper.doctor.manifest import read_config, read_manifest
from sweeper.doctor.matching import Wiring, judge, match_slots, portions
from sweeper.doctor.samples import Sample
from sweeper.engine.draft_config import TargetConfig, draft_config, target_config
from sweeper.engine.layers import captured_layers
from sweeper.errors import PreflightError

_TOKENS = 192
_SAMPLES = 2
_GENERATED = 12
PATHS_DIFFER = 0.2
"""Median distance of one state from prefill and from decode above which the two paths do not compute the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WiringReport:
    """Slots against layers, and prefill against decode."""

    wiring: Wiring
    tokens: int
    """Tokens that were compared."""
    decode_distance: float | None
    """Median distance of states after generated tokens to the states of the same text as a prompt."""

    @property
    def paths_agree(self) -> bool:
        return self.decode_distance is None or self.decode_distance <= PATHS_DIFFER


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStates:
    """What the engine's layers hold for the tokens of the samples, one sample after the other."""

    layers: Mapping[int, Tensor]
    """Index of a layer to what enters it, [tokens, hidden]; 0 is the embedding."""
    decode_distance: float | None


def examine_wiring(
    engine: Engine, draft: Path, samples: Sequence[Sample], *, version: str, portion: int = 16
) -> WiringReport:
    """Start the target once per `portion` layers and compare. PreflightError, ServerError."""
    used = shortened(samples)
    states = engine_states(engine, used, version=version, portion=portion)
    return compare(engine.target, draft, used, states, version=version)


def shortened(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """As much of the dumps as is worth running: states of a 1 T model are large."""
    return tuple(
        Sample(
            name=sample.name,
            input_ids=sample.input_ids[:_TOKENS],
            slots=tuple((name, states[:_TOKENS]) for name, states in sample.slots),
        )
        for sample in samples[:_SAMPLES]
    )


def compare(
    target: Path, draft: Path, samples: Sequence[Sample], states: EngineStates, *, version: str
) -> WiringReport:
    """Match the slots of `samples` with the engine's layers for the same tokens."""
    _, architecture, num_layers, _ = _shape(target)
    config = draft_config(read_config(draft))
    samples = [sample.auxiliary(config.num_aux) for sample in samples]
    names = [name for name, _ in samples[0].slots]
    slots = [(name, torch.cat([sample.slots[i][1] for sample in samples])) for i, name in enumerate(names)]
    wiring = judge(
        match_slots(slots, states.layers),
        architecture=architecture,
        num_layers=num_layers,
        version=version,
        configured=config.layer_ids,
    )
    tokens = sum(len(sample.input_ids) for sample in samples)
    return WiringReport(wiring=wiring, tokens=tokens, decode_distance=states.decode_distance)


def engine_states(engine: Engine, samples: Sequence[Sample], *, version: str, portion: int) -> EngineStates:
    """Run the tokens of `samples`; the first portion also checks prefill against decode."""
    config, architecture, num_layers, hidden = _shape(engine.target)
    found: dict[int, Tensor] = {}
    decoded = None
    texts = [Text(name=sample.name, input_ids=tuple(sample.input_ids.tolist())) for sample in samples]
    half = Text(name="decode", input_ids=texts[0].input_ids[: _half(samples)], max_new_tokens=_GENERATED)
    for ids in portions(architecture=architecture, num_layers=num_layers, version=version, size=portion):
        seen = captured_layers(architecture=architecture, num_layers=num_layers, ids=ids, version=version)
        assert seen is not None
        *whole, generated, again = capture(engine, [*texts, half], layer_ids=ids, hidden=hidden, again=True)
        for place, layer in enumerate(seen.layers):
            found[layer] = torch.cat(
                [sample.slots[place][1][: len(t.input_ids)] for sample, t in zip(whole, texts, strict=True)]
            )
        decoded = _path_distance(generated, again) if decoded is None else decoded
    if not found:
        raise PreflightError(f"{config.architecture} of SGLang {version} captures no layers; EAGLE3 cannot run on it")
    found[0] = torch.cat([_embedded(engine.target, sample.input_ids) for sample in samples])
    return EngineStates(layers=found, decode_distance=decoded)


def _half(samples: Sequence[Sample]) -> int:
    return max(len(samples[0].input_ids) // 2, 1)


def _shape(target: Path) -> tuple[TargetConfig, str, int, int]:
    config = target_config(read_config(target))
    if config.architecture is None or config.num_hidden_layers is None or config.hidden_size is None:
        raise PreflightError(f"{target}: config.json names no class, depth or width")
    return config, config.architecture, config.num_hidden_layers, config.hidden_size


def _path_distance(generated: Sample, again: Sample) -> float | None:
    """States after generated tokens against those of the same tokens given as a prompt."""
    start, end = generated.generated_from or 0, len(generated.slots[0][1])
    if end <= start:
        return None
    ours, theirs = generated.states[start:end], again.states[start:end]
    return float(((ours - theirs).norm(dim=-1) / theirs.norm(dim=-1).clamp_min(1e-9)).median())


def _embedded(target: Path, tokens: Tensor) -> Tensor:
    return torch.nn.functional.embedding(tokens, embedding(read_manifest(target)).float())
