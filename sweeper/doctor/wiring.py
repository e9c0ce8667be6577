"""Runs the dump's tokens through the engine and finds out what the dump's slots are."""

from collections.abc import Sequence
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


def examine_wiring(
    engine: Engine, draft: Path, samples: Sequence[Sample], *, version: str, portion: int = 16
) -> WiringReport:
    """Start the target once per `portion` layers and compare. PreflightError, ServerError."""
    config = target_config(read_config(engine.target))
    if config.architecture is None or config.num_hidden_layers is None or config.hidden_size is None:
        raise PreflightError(f"{engine.target}: config.json names no class, depth or width")
    used = [_cut(sample) for sample in samples[:_SAMPLES]]
    layers, decoded = _layers(engine, used, config, version=version, portion=portion)
    layers[0] = torch.cat([_embedded(engine.target, sample.input_ids) for sample in used])
    names = [name for name, _ in used[0].slots]
    slots = [(name, torch.cat([sample.slots[i][1] for sample in used])) for i, name in enumerate(names)]
    wiring = judge(
        match_slots(slots, layers),
        architecture=config.architecture,
        num_layers=config.num_hidden_layers,
        version=version,
        configured=draft_config(read_config(draft)).layer_ids,
    )
    return WiringReport(wiring=wiring, tokens=sum(len(s.input_ids) for s in used), decode_distance=decoded)


def _cut(sample: Sample) -> Sample:
    slots = tuple((name, states[:_TOKENS]) for name, states in sample.slots)
    return Sample(name=sample.name, input_ids=sample.input_ids[:_TOKENS], slots=slots)


def _layers(
    engine: Engine, samples: Sequence[Sample], config: TargetConfig, *, version: str, portion: int
) -> tuple[dict[int, Tensor], float | None]:
    assert config.architecture is not None and config.num_hidden_layers is not None and config.hidden_size is not None
    found: dict[int, Tensor] = {}
    decoded = None
    for ids in portions(
        architecture=config.architecture, num_layers=config.num_hidden_layers, version=version, size=portion
    ):
        seen = captured_layers(
            architecture=config.architecture, num_layers=config.num_hidden_layers, ids=ids, version=version
        )
        assert seen is not None
        texts = [Text(name=s.name, input_ids=tuple(s.input_ids.tolist())) for s in samples]
        first = tuple(samples[0].input_ids.tolist())
        half = Text(name="decode", input_ids=first[: max(len(first) // 2, 1)], max_new_tokens=_GENERATED)
        *whole, generated = capture(engine, [*texts, half], layer_ids=ids, hidden=config.hidden_size)
        for place, layer in enumerate(seen.layers):
            rows = [w.slots[place][1][: len(s.input_ids)] for w, s in zip(whole, samples, strict=True)]
            found[layer] = torch.cat(rows)
        if decoded is None:
            decoded = _path_distance(engine, generated, ids, config.hidden_size)
    if not found:
        raise PreflightError(f"{config.architecture} of SGLang {version} captures no layers; EAGLE3 cannot run on it")
    return found, decoded


def _path_distance(engine: Engine, generated: Sample, ids: tuple[int, ...], hidden: int) -> float | None:
    """States after generated tokens against those of the same tokens given as a prompt."""
    start, end = generated.generated_from or 0, len(generated.slots[0][1])
    if end <= start:
        return None
    text = Text(name="prompt", input_ids=tuple(generated.input_ids[:end].tolist()))
    (again,) = capture(engine, [text], layer_ids=ids, hidden=hidden)
    ours, theirs = generated.states[start:end], again.states[start:end]
    return float(((ours - theirs).norm(dim=-1) / theirs.norm(dim=-1).clamp_min(1e-9)).median())


def _embedded(target: Path, tokens: Tensor) -> Tensor:
    return torch.nn.functional.embedding(tokens, embedding(read_manifest(target)).float())
