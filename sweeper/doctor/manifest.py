"""A checkpoint folder read without torch and without executing anything of it: config.json and safetensors headers.

Tensor bytes are never loaded, except those of small integer tensors (d2t, t2d), by offset.
"""

import json
import re
import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from sweeper.errors import PreflightError

_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
_CODES = {"I64": "q", "I32": "i", "U8": "B", "BOOL": "B", "I16": "h"}
_MAX_HEADER_BYTES = 100_000_000
"""The format's own limit; a larger number is a damaged or hostile file."""
_MAX_JSON_BYTES = 100_000_000
_MAX_VALUES = 16_000_000
_LAYER = re.compile(r"(?:^|\.)(?:layers\.(\d{1,9})|midlayer)\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One entry of a safetensors header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    begin: int
    """Byte offset in `file`."""
    end: int

    @property
    def is_list_of_integers(self) -> bool:
        return self.dtype in _CODES and len(self.shape) == 1 and self.shape[0] <= _MAX_VALUES


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a checkpoint folder says of itself."""

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    """Empty: the folder has no weights."""

    def named(self, word: str) -> Tensor | None:
        """The tensor called `word`, whatever module it stands in."""
        names = (name for name in self.tensors if name == word or name.endswith(f".{word}"))
        return next((self.tensors[name] for name in names), None)

    def shape(self, name: str) -> tuple[int, ...] | None:
        tensor = self.tensors.get(name)
        return tensor.shape if tensor else None

    @property
    def layers(self) -> set[int]:
        """Numbers of the decoder layers that have tensors; an EAGLE-3 `midlayer` counts as 0."""
        return {int(match.group(1) or 0) for name in self.tensors if (match := _LAYER.search(name))}


def read_manifest(path: Path, *, pickled_too: bool = False) -> Manifest:
    """Config and tensor headers of a draft folder. PreflightError with a remedy when they cannot be read.

    `pickled_too`: a folder whose weights are pickled is no error; they stay unread, as if there were none.
    """
    files = _weight_files(path, pickled_too)
    tensors: dict[str, Tensor] = {}
    for file in files:
        tensors.update(read_tensors(file))
    return Manifest(path=path, config=read_config(path), tensors=tensors)


def read_config(path: Path) -> Mapping[str, Any]:
    """config.json of a folder (or that file itself)."""
    file = path if path.is_file() else path / "config.json"
    if not file.exists():
        raise PreflightError(f"{path}: no config.json; give the folder of a Hugging Face style checkpoint")
    config = _json(file)
    if not isinstance(config, Mapping):
        raise PreflightError(f"{file}: not a JSON object")
    return config


def read_values(tensor: Tensor) -> Sequence[int]:
    """The integers of a small one-dimensional tensor, in order (BOOL as 0 and 1)."""
    assert tensor.is_list_of_integers
    values = array(_CODES[tensor.dtype])
    with tensor.file.open("rb") as file:
        file.seek(tensor.begin)
        values.frombytes(file.read(tensor.end - tensor.begin))
    return values


def _weight_files(path: Path, pickled_too: bool) -> tuple[Path, ...]:
    if not path.is_dir():
        raise PreflightError(f"{path}: no such folder")
    index = path / "model.safetensors.index.json"
    if index.exists():
        return _indexed(index)
    files = tuple(sorted(path.glob("*.safetensors")))
    pickled = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in path.glob(pattern))
    if not files and not pickled_too and any("model" in name or name.endswith(".bin") for name in pickled):
        raise PreflightError(
            f"{path}: only pickled weights ({', '.join(pickled[:3])}), which can run code when read; "
            "save the draft as safetensors (`save_pretrained(..., safe_serialization=True)`)"
        )
    return files


def _indexed(index: Path) -> tuple[Path, ...]:
    listing = _json(index)
    weight_map = listing.get("weight_map") if isinstance(listing, Mapping) else None
    if not isinstance(weight_map, Mapping) or not all(isinstance(name, str) for name in weight_map.values()):
        raise PreflightError(f"{index}: has no weight_map from tensor names to files")
    names = sorted(set(weight_map.values()))
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise PreflightError(f"{index}: names files outside its folder ({outside[0]!r}); refused")
    missing = [name for name in names if not (index.parent / name).exists()]
    if missing:
        raise PreflightError(f"{index}: lists {len(missing)} file(s) that are not here, first {missing[0]!r}")
    return tuple(index.parent / name for name in names)


def read_tensors(file: Path) -> dict[str, Tensor]:
    """The header of one safetensors file, by tensor name."""
    if not file.is_file():  # a pipe would be waited on for ever
        raise _damaged(file, "it is no file")
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(_MAX_HEADER_BYTES, size - 8):
            raise _damaged(file, f"its header would be {length} bytes of a file of {size}")
        raw = stream.read(length)
    try:
        entries = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _damaged(file, "its header is not JSON") from error
    if not isinstance(entries, dict):
        raise _damaged(file, "its header is not a JSON object")
    entries.pop("__metadata__", None)
    return {name: _tensor(file, name, entry, 8 + length, size) for name, entry in entries.items()}


def _tensor(file: Path, name: str, entry: Any, start: int, size: int) -> Tensor:
    if not isinstance(entry, Mapping):
        raise _damaged(file, f"{name!r} is not described")
    dtype, shape, offsets = entry.get("dtype"), _naturals(entry.get("shape")), _naturals(entry.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
        raise _damaged(file, f"{name!r} lacks a dtype, shape or place")
    begin, end = start + offsets[0], start + offsets[1]
    if not start <= begin <= end <= size:
        raise _damaged(file, f"{name!r} lies at bytes {begin}..{end} of a file of {size}; the file is cut off")
    if dtype in _BYTES and prod(shape) * _BYTES[dtype] != end - begin:
        raise _damaged(file, f"{name!r} is {dtype} {list(shape)} but has {end - begin} bytes")
    return Tensor(name=name, dtype=dtype, shape=tuple(shape), file=file, begin=begin, end=end)


def _naturals(value: Any) -> list[int] | None:
    if isinstance(value, list) and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value):
        return value
    return None


def _damaged(file: Path, why: str) -> PreflightError:
    return PreflightError(f"{file}: not a sound safetensors file: {why}; download or save it again")


def _json(file: Path) -> Any:
    if not file.is_file():
        raise PreflightError(f"{file}: not a file; put the JSON file itself there")
    if file.stat().st_size > _MAX_JSON_BYTES:
        raise PreflightError(f"{file}: larger than any such file is; refused")
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise PreflightError(f"{file}: not JSON: {error}") from error
