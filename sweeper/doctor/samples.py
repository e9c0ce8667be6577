"""Hidden states with their tokens: training dumps in the common layouts, or captured from a live engine."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sweeper.doctor.manifest import read_tensors
from sweeper.doctor.numerics import read_tensor
from sweeper.errors import PreflightError

_IDS = ("input_ids", "token_ids", "tokens")
_STATES = ("aux_hidden_states", "aux_hidden_state", "hidden_states", "hidden_state")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sequence."""

    name: str
    input_ids: Tensor
    """[tokens] int64."""
    slots: tuple[tuple[str, Tensor], ...]
    """Name and states [tokens, hidden] of each captured layer, in the order in which the draft gets them."""
    generated_from: int | None = None
    """Index of the first token that the target itself wrote, greedily; None: not known to be its own."""

    def auxiliary(self, count: int) -> "Sample":
        """Without the target's last state, which some dumps keep as one more slot behind the `count` of the draft."""
        return replace(self, slots=self.slots[:count]) if len(self.slots) == count + 1 else self

    @property
    def states(self) -> Tensor:
        """[tokens, slots * hidden]."""
        return torch.cat([tensor for _, tensor in self.slots], -1)


def read_samples(path: Path, *, hidden: int) -> tuple[Sample, ...]:
    """Every dump below `path` (a file or a folder); `hidden` is the target's width.

    Layouts: a list of per-layer tensors (the last may be the final state), one tensor with all states side by side, or
    stacked; in `.pt` (read without running code) or safetensors. PreflightError when a file is none of these.
    """
    files = [path] if path.is_file() else sorted(f for f in path.glob("**/*") if f.suffix in _SUFFIXES)
    if not files:
        raise PreflightError(f"{path}: no dumps here; expected .pt, .pth, .ckpt or .safetensors files")
    return tuple(sample for file in files for sample in _read(file, hidden))


_SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors")


def _read(file: Path, hidden: int) -> Iterator[Sample]:
    content = _safetensors(file) if file.suffix == ".safetensors" else _pickled(file)
    for index, item in enumerate(content if isinstance(content, list | tuple) else [content]):
        if not isinstance(item, Mapping):
            raise PreflightError(f"{file}: not a map of tensors, but {type(item).__name__}")
        yield replace(_sample(file, item, hidden), name=f"{file.name}[{index}]" if index else file.name)


def _pickled(file: Path) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001  torch raises many kinds; all mean the same to the user
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PreflightError(
            f"{file}: cannot be read without running code ({first[:120]}); save plain tensors"
        ) from None


def _safetensors(file: Path) -> Mapping[str, Any]:
    tensors = {name: read_tensor(entry) for name, entry in read_tensors(file).items()}
    groups: dict[str, list[tuple[int, Tensor]]] = {}
    for name in list(tensors):
        stem, _, number = name.rpartition(".")
        if number.isdecimal():
            groups.setdefault(stem, []).append((int(number), tensors.pop(name)))
    return {**tensors, **{stem: [t for _, t in sorted(items, key=lambda i: i[0])] for stem, items in groups.items()}}


def _sample(file: Path, item: Mapping[str, Any], hidden: int) -> Sample:
    ids = next((item[name] for name in _IDS if isinstance(item.get(name), Tensor | list)), None)
    found = next((name for name in _STATES if isinstance(item.get(name), Tensor | list | tuple)), None)
    if ids is None or found is None:
        raise PreflightError(f"{file}: has {sorted(map(str, item))}; needs input_ids and hidden_states")
    tokens = torch.as_tensor(ids).long().flatten()
    slots = _slots(file, item[found], len(tokens), hidden, item.get("layer_names") or item.get("names"))
    start = item.get("generated_from", item.get("prompt_length"))
    return Sample(
        name=file.name,
        input_ids=tokens,
        slots=slots,
        generated_from=int(start) if isinstance(start, int) else None,
    )


def _slots(
    file: Path, states: Any, tokens: int, hidden: int, names: Sequence[str] | None
) -> tuple[tuple[str, Tensor], ...]:
    parts = list(states) if isinstance(states, list | tuple) else _split(file, states, tokens, hidden)
    for part in parts:
        if not isinstance(part, Tensor) or part.numel() != tokens * hidden:
            shape = list(part.shape) if isinstance(part, Tensor) else type(part).__name__
            raise PreflightError(f"{file}: a state is {shape}; needed {tokens} tokens x {hidden}")
    labels = [str(name) for name in names] if names and len(names) == len(parts) else map(str, range(len(parts)))
    return tuple((label, part.reshape(tokens, hidden).float()) for label, part in zip(labels, parts, strict=True))


def _split(file: Path, states: Tensor, tokens: int, hidden: int) -> list[Tensor]:
    """One tensor as its layers: [tokens, n * hidden] (side by side) or [n, tokens, hidden] (stacked)."""
    count, rest = divmod(states.numel(), tokens * hidden)
    if rest or count == 0:
        raise PreflightError(f"{file}: states {list(states.shape)} are no multiple of {tokens} tokens x {hidden}")
    if states.shape[-1] == hidden:
        return list(states.reshape(count, tokens, hidden))
    return list(states.reshape(tokens, count * hidden).chunk(count, -1))
