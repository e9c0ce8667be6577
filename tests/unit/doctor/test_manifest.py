"""Reading checkpoint folders: sound ones of any size fast, damaged or hostile ones with one clear error."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from drafts import Draft, write_checkpoint
from sound_drafts import LLAMA

from sweeper.doctor.manifest import read_config, read_manifest, read_values
from sweeper.errors import PreflightError

ENTRY = {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}


def safetensors(file: Path, header: Any, *, data_bytes: int = 8, claimed: int | None = None) -> None:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(raw) if claimed is None else claimed) + raw + bytes(data_bytes))


def folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text("{}")
    return path


def test_names_shapes_and_small_values_are_read_by_offset(tmp_path: Path) -> None:
    manifest = read_manifest(write_checkpoint(tmp_path / "draft", LLAMA))
    assert manifest.shape("fc.weight") == (4096, 12288)
    d2t = manifest.named("d2t")
    assert d2t is not None
    assert list(read_values(d2t)) == LLAMA.values["d2t"]


def test_a_checkpoint_of_120_gigabytes_is_read_by_its_header_alone(tmp_path: Path) -> None:
    tensors = {f"layers.{i}.mlp.{i}.weight": ("BF16", (8192, 36000)) for i in range(204)}
    path = write_checkpoint(tmp_path / "draft", Draft(config={}, tensors=tensors, target=None))
    manifest = read_manifest(path)
    assert sum(tensor.end - tensor.begin for tensor in manifest.tensors.values()) > 120e9


def test_shards_are_followed_through_the_index_and_other_files_ignored(tmp_path: Path) -> None:
    path = folder(tmp_path / "draft")
    for name, tensor in (("a.safetensors", "x"), ("b.safetensors", "y"), ("stray.safetensors", "z")):
        safetensors(path / name, {tensor: ENTRY, "__metadata__": {"format": "pt"}})
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert set(read_manifest(path).tensors) == {"x", "y"}


@pytest.mark.parametrize(
    ("weight_map", "said"),
    [
        ({"x": "../outside.safetensors"}, "outside its folder"),
        ({"x": "gone.safetensors"}, "not here"),
        ({"x": 7}, "no weight_map"),
        ([], "no weight_map"),
    ],
)
def test_an_index_that_cannot_be_followed_is_refused(tmp_path: Path, weight_map: Any, said: str) -> None:
    path = folder(tmp_path / "draft")
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(PreflightError, match=said):
        read_manifest(path)


@pytest.mark.parametrize(
    ("header", "more", "said"),
    [
        ({"x": ENTRY}, {"claimed": 2**62}, "its header would be"),
        ({"x": ENTRY}, {"claimed": 0}, "its header would be"),
        (b"not json at all", {}, "not JSON"),
        (b"[" * 100_000, {}, "not JSON"),
        ([1, 2], {}, "not a JSON object"),
        ({"x": 7}, {}, "not described"),
        ({"x": {**ENTRY, "shape": [-2, -2]}}, {}, "lacks a dtype, shape or place"),
        ({"x": {**ENTRY, "data_offsets": [0]}}, {}, "lacks a dtype, shape or place"),
        ({"x": {**ENTRY, "data_offsets": [0, 10**30]}}, {}, "cut off"),
        ({"x": {**ENTRY, "data_offsets": [8, 0]}}, {}, "cut off"),
        ({"x": {**ENTRY, "shape": [2, 3]}}, {}, "but has 8 bytes"),
        ({"x": ENTRY}, {"data_bytes": 3}, "cut off"),
    ],
)
def test_a_damaged_or_hostile_header_is_one_clear_error(
    tmp_path: Path, header: Any, more: dict[str, int], said: str
) -> None:
    path = folder(tmp_path / "draft")
    safetensors(path / "model.safetensors", header, **more)
    with pytest.raises(PreflightError, match=said) as caught:
        read_manifest(path)
    assert "\n" not in str(caught.value)


def test_an_empty_weight_file_is_an_error(tmp_path: Path) -> None:
    path = folder(tmp_path / "draft")
    (path / "model.safetensors").touch()
    with pytest.raises(PreflightError, match="not a sound safetensors file"):
        read_manifest(path)


def test_pickled_weights_are_refused_with_the_way_out(tmp_path: Path) -> None:
    path = folder(tmp_path / "draft")
    (path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(PreflightError, match="safe_serialization=True"):
        read_manifest(path)


def test_a_folder_without_weights_is_a_config_only_case(tmp_path: Path) -> None:
    assert read_manifest(folder(tmp_path / "draft")).tensors == {}


@pytest.mark.parametrize(("text", "said"), [("{", "not JSON"), ("[]", "not a JSON object")])
def test_a_config_that_is_no_object_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(PreflightError, match=said):
        read_config(tmp_path)
