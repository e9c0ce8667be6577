"""Copies of the toy's draft with one fault each, as they are met in the field; for the tutorial and the tests."""

import json
import shutil
from array import array
from collections.abc import Callable
from pathlib import Path

from sweeper.doctor.manifest import Tensor, read_manifest, read_values
from sweeper.doctor.repair import Piece, write_tensors

Spoil = Callable[[str, Tensor], Piece]


def _dropped(name: str, tensor: Tensor) -> Piece:
    """A prefix that the training code left in the names of the decoder layer: the engine reads none of them."""
    return Piece(name=f"drafter.{name}" if name.startswith(("midlayer.", "layers.")) else name, tensor=tensor)


def _absolute(name: str, tensor: Tensor) -> Piece:
    """d2t as target ids, where the engine adds the index."""
    if name != "d2t":
        return Piece(name=name, tensor=tensor)
    ids = array("q", (index + offset for index, offset in enumerate(read_values(tensor))))
    return Piece(name=name, tensor=tensor, values=ids.tobytes())


def _whole(name: str, tensor: Tensor) -> Piece:
    return Piece(name=name, tensor=tensor)


SPOILT: dict[str, Spoil] = {"dropped-names": _dropped, "absolute-d2t": _absolute, "wrong-ids": _whole}
WRONG_IDS = [-1, 2, 4]
"""The layer ids after somebody believed the labels of the dumps (`sweeper toy --dumps`); right were 2, 4, 6."""


def write_spoilt(draft: Path, dest: Path) -> tuple[Path, ...]:
    """One folder per fault below `dest`; folders of the same name are replaced."""
    manifest = read_manifest(draft)
    made = []
    for name, spoil in SPOILT.items():
        folder = dest / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        config = dict(manifest.config)
        if name == "wrong-ids":
            config["eagle_config"] = {**config["eagle_config"], "eagle_aux_hidden_state_layer_ids": WRONG_IDS}
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        write_tensors([spoil(key, tensor) for key, tensor in manifest.tensors.items()], folder / "model.safetensors")
        made.append(folder)
    return tuple(made)
