"""A repaired copy of a draft: renamed tensors, d2t as offsets, config corrected. The original is never written to."""

import json
import shutil
import struct
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.doctor.checks_pairing import kind_by_tensors
from sweeper.doctor.checks_vocabulary import judge_d2t
from sweeper.doctor.manifest import Manifest, Tensor, read_manifest, read_values
from sweeper.engine.checkpoints import LLAMA_EAGLE3, MLA_EAGLE3, DraftClass, draft_class, layer_prefix, load
from sweeper.engine.draft_config import draft_config
from sweeper.errors import PreflightError

_CHUNK_BYTES = 16 * 1024 * 1024
_CLASS_NAMES: Mapping[DraftClass, str] = {
    "eagle3-llama": LLAMA_EAGLE3,
    "eagle3-mla": MLA_EAGLE3,
    "eagle": "LlamaForCausalLMEagle",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One tensor of a copy: bytes of the original under a name of its own, or new bytes."""

    name: str
    tensor: Tensor
    values: bytes | None = None


def repair(draft: Path, out: Path, *, version: str, aux_layer_ids: tuple[int, ...] | None = None) -> tuple[str, ...]:
    """Write a copy of `draft` to the new folder `out` with what can be repaired without guessing; returns the changes.

    Tensor bytes are streamed, so that memory stays small. PreflightError when `out` already holds something.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PreflightError(f"{out}: already exists; name a new folder")
    manifest = read_manifest(draft)
    config, config_changes = _config(manifest, aux_layer_ids)
    kind = draft_class((config.get("architectures") or [None])[0])
    pieces, tensor_changes = _pieces(manifest, kind, version)
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(draft.iterdir()):
        if file.is_file() and file.suffix not in (".safetensors", ".bin", ".pt", ".pth") and ".index." not in file.name:
            shutil.copyfile(file, out / file.name)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    if pieces:
        write_tensors(pieces, out / "model.safetensors")
    return (*config_changes, *tensor_changes)


def _config(manifest: Manifest, aux_layer_ids: tuple[int, ...] | None) -> tuple[dict[str, Any], list[str]]:
    config, changes = dict(manifest.config), []
    parsed = draft_config(config)
    proven = kind_by_tensors(manifest)
    kind = draft_class(parsed.architecture) or proven

    def put(key: str, value: Any) -> None:
        changes.append(f"config.json: {key} {json.dumps(config.get(key))} → {json.dumps(value)}")
        config[key] = value

    if draft_class(parsed.architecture) is None and proven is not None:
        put("architectures", [_CLASS_NAMES[proven]])
    head = manifest.named("lm_head.weight")
    if parsed.tied and (head is not None or parsed.reduced_vocab):
        put("tie_word_embeddings", False)
    layers = {name.split("layers.")[1].split(".")[0] for name in manifest.tensors if "layers." in name} or {"0"}
    if (
        kind in ("eagle3-llama", "eagle3-mla")
        and manifest.tensors
        and parsed.num_hidden_layers not in (len(layers), None)
    ):
        put("num_hidden_layers", len(layers))
    _head_keys(config, manifest, kind, put)
    ids = list(aux_layer_ids) if aux_layer_ids is not None else None
    if ids is None and parsed.stray_layer_ids is not None and parsed.layer_ids is None:
        ids = list(parsed.stray_layer_ids)
    if ids is not None:
        eagle = config.get("eagle_config")
        put("eagle_config", {**(eagle if isinstance(eagle, Mapping) else {}), "eagle_aux_hidden_state_layer_ids": ids})
    return config, changes


def _head_keys(config: Mapping[str, Any], manifest: Manifest, kind: DraftClass | None, put: Any) -> None:
    parsed, head = draft_config(config), manifest.named("lm_head.weight")
    if not manifest.tensors or kind not in ("eagle3-llama", "eagle3-mla") or parsed.tied:
        return
    if head is None and parsed.draft_vocab_size is not None and parsed.draft_vocab_size == parsed.vocab_size:
        put("draft_vocab_size", None)
    elif not parsed.names_draft_vocab and kind == "eagle3-llama":
        put("draft_vocab_size", head.shape[0] if head is not None else None)


def _pieces(manifest: Manifest, kind: DraftClass | None, version: str) -> tuple[list[Piece], list[str]]:
    """The tensors of the copy. Those the engine reads keep their names; a dropped one gets the engine's name."""
    config = draft_config(manifest.config)
    pieces, changes = [], []
    dropped = set(load(manifest.tensors, config, kind, version).dropped) if kind else set()
    for name, tensor in manifest.tensors.items():
        renamed = _renamed(name, kind, version) if name in dropped and kind else name
        if renamed != name:
            changes.append(f"{name} → {renamed}")
        values = _offsets(manifest, tensor) if tensor is manifest.named("d2t") else None
        if values is not None:
            changes.append(f"{name}: absolute ids → offsets (each minus its index)")
        pieces.append(Piece(name=renamed, tensor=tensor, values=values))
    return pieces, changes


def _renamed(name: str, kind: DraftClass, version: str) -> str:
    """The engine's name of a tensor it does not read: the decoder layer under its prefix, else without `model.`."""
    for marker in ("midlayer.", "layers.0."):
        _, found, rest = name.rpartition(marker)
        if found:
            return layer_prefix(kind, version) + rest
    return name.removeprefix("model.")


def _offsets(manifest: Manifest, tensor: Tensor) -> bytes | None:
    if not tensor.is_list_of_integers or tensor.dtype != "I64":
        return None
    ids = read_values(tensor)
    flags = manifest.named("t2d")
    t2d = read_values(flags) if flags is not None and flags.is_list_of_integers else None
    judged = judge_d2t(ids, t2d, draft_config(manifest.config).vocab_size)
    if judged.kind not in ("absolute", "arange"):
        return None
    return array("q", (value - index for index, value in enumerate(ids))).tobytes()


def write_tensors(pieces: Iterable[Piece], file: Path) -> None:
    """One safetensors file, tensor by tensor."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for piece in pieces:
        size = piece.tensor.end - piece.tensor.begin
        header[piece.name] = {
            "dtype": piece.tensor.dtype,
            "shape": list(piece.tensor.shape),
            "data_offsets": [place, place + size],
        }
        place += size
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(encoded)) + encoded)
        for piece in pieces:
            for chunk in _chunks(piece):
                out.write(chunk)


def _chunks(piece: Piece) -> Iterable[bytes]:
    if piece.values is not None:
        yield piece.values
        return
    with piece.tensor.file.open("rb") as source:
        source.seek(piece.tensor.begin)
        left = piece.tensor.end - piece.tensor.begin
        while left > 0:
            chunk = source.read(min(_CHUNK_BYTES, left))
            if not chunk:
                raise PreflightError(f"{piece.tensor.file}: shorter than its header says")
            left -= len(chunk)
            yield chunk
