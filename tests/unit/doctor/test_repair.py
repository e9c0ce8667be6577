"""`--fix` repairs a copy; the original keeps every byte."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from drafts import Draft, write_checkpoint
from sound_drafts import LLAMA, LLAMA_TARGET, MLA, SOUND

from sweeper.doctor.examine import Diagnosis, examine
from sweeper.doctor.manifest import read_manifest, read_values
from sweeper.doctor.repair import repair
from sweeper.errors import PreflightError

TINY = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4}


def tiny(draft: Draft = LLAMA) -> Draft:
    """A draft of the same make whose weights are small enough to be compared byte by byte."""
    shapes = {
        "embed_tokens": (20, 8), "fc": (8, 24), "q_proj": (8, 16), "k_proj": (8, 16), "v_proj": (8, 16),
        "o_proj": (8, 8), "gate_proj": (16, 8), "up_proj": (16, 8), "down_proj": (8, 16), "lm_head": (6, 8),
        "d2t": (6,), "t2d": (20,),
    }  # fmt: skip
    tensors = {
        name: (dtype, next((shape for part, shape in shapes.items() if part in name), (8,)))
        for name, (dtype, _) in draft.tensors.items()
    }
    ids = [1, 2, 5, 11, 12, 19]
    values = {"d2t": [token - i for i, token in enumerate(ids)], "t2d": [i in ids for i in range(20)]}
    small = replace(draft, tensors=tensors, values=values)
    return small.configured(**TINY, vocab_size=20, draft_vocab_size=6)


def look(path: Path, tmp_path: Path, version: str = "0.5.23") -> Diagnosis:
    target = tmp_path / "target"
    target.mkdir(exist_ok=True)
    (target / "config.json").write_text(json.dumps({**LLAMA_TARGET, "hidden_size": 8, "vocab_size": 20}))
    return examine(path, target, version=version, algorithm="EAGLE3")


def digest(path: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.iterdir()}


def fill(path: Path, seed: int) -> None:
    """Give every weight byte a value, so that a shifted copy would show."""
    manifest = read_manifest(path)
    with (path / "model.safetensors").open("r+b") as file:
        for tensor in manifest.tensors.values():
            if tensor.dtype == "BF16":
                file.seek(tensor.begin)
                file.write(bytes((seed + tensor.begin + i) % 251 for i in range(tensor.end - tensor.begin)))


def payload(path: Path) -> dict[str, bytes]:
    whole = (path / "model.safetensors").read_bytes()
    return {name: whole[t.begin : t.end] for name, t in read_manifest(path).tensors.items()}


def test_dropped_names_get_the_spelling_of_that_release_and_keep_their_bytes(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "draft", tiny().renamed("midlayer.", "model.layers.0."))
    fill(path, 7)
    before, bytes_before = digest(path), payload(path)
    changes = repair(path, tmp_path / "fixed", version="0.5.10")
    assert "model.layers.0.self_attn.q_proj.weight → midlayer.self_attn.q_proj.weight" in changes
    assert len(changes) == 10
    assert look(tmp_path / "fixed", tmp_path, "0.5.10").errors == ()
    assert digest(path) == before
    after = payload(tmp_path / "fixed")
    assert {name.replace("midlayer.", "model.layers.0."): data for name, data in after.items()} == bytes_before


def test_absolute_ids_become_offsets(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "draft", tiny().mapped([1, 2, 5, 11, 12, 19]))
    assert [item.code for item in look(path, tmp_path).errors] == ["d2t-absolute-ids"]
    changes = repair(path, tmp_path / "fixed", version="0.5.23")
    assert changes == ("d2t: absolute ids → offsets (each minus its index)",)
    mended = read_manifest(tmp_path / "fixed").named("d2t")
    assert mended is not None
    assert list(read_values(mended)) == [1, 1, 3, 8, 8, 14]
    assert look(tmp_path / "fixed", tmp_path).errors == ()


def test_class_layer_count_tying_and_misplaced_ids_are_corrected_in_the_config(tmp_path: Path) -> None:
    spoilt = tiny().configured(
        architectures=["LlamaForCausalLM"],
        num_hidden_layers=32,
        tie_word_embeddings=True,
        eagle_aux_hidden_state_layer_ids=[1, 15, 28],
    )
    path = write_checkpoint(tmp_path / "draft", spoilt)
    changes = repair(path, tmp_path / "fixed", version="0.5.23")
    assert len(changes) == 4
    config = json.loads((tmp_path / "fixed" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["eagle_config"] == {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}
    assert look(tmp_path / "fixed", tmp_path).errors == ()


def shrunk(draft: Draft) -> Draft:
    """The same names over two numbers each: a repair copies every byte."""
    return replace(draft, tensors={name: (dtype, (2,)) for name, (dtype, _) in draft.tensors.items()}, values={})


def test_a_missing_head_of_the_full_vocabulary_is_borrowed(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "draft", shrunk(MLA.without("lm_head")))
    changes = repair(path, tmp_path / "fixed", version="0.5.23")
    assert changes == ("config.json: draft_vocab_size 129280 → null",)


def test_given_layer_ids_are_written_into_the_copy(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "draft", tiny())
    repair(path, tmp_path / "fixed", version="0.5.23", aux_layer_ids=(3, 9, 20))
    config = json.loads((tmp_path / "fixed" / "config.json").read_text())
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [3, 9, 20]


@pytest.mark.parametrize("family", [name for name, (_, algorithm) in SOUND.items() if "MLA" in name or "3.1" in name])
def test_a_sound_draft_is_copied_without_a_change(family: str, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "draft", shrunk(SOUND[family][0].without("d2t", "t2d")))
    assert repair(path, tmp_path / "fixed", version="0.5.23") == ()


def test_an_existing_folder_is_never_written_into(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "draft", tiny())
    with pytest.raises(PreflightError, match="name a new folder"):
        repair(path, path, version="0.5.23")
