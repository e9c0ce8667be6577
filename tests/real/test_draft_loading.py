"""The doctor's rules for tensor names against the loaders of the installed SGLang."""

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from sweeper.engine.checkpoints import load, parameters
from sweeper.engine.draft_config import draft_config

pytestmark = pytest.mark.real

BASE = {"hidden_size": 8, "vocab_size": 16, "draft_vocab_size": 8, "num_hidden_layers": 1, "fc_norm": True}
LLAMA = {**BASE, "architectures": ["LlamaForCausalLMEagle3"], "norm_before_fc": True}
MLA = {**BASE, "architectures": ["Eagle3DeepseekV2ForCausalLM"]}
FUSED = {
    ".q_proj": (".qkv_proj", "q"),
    ".k_proj": (".qkv_proj", "k"),
    ".v_proj": (".qkv_proj", "v"),
    ".gate_proj": (".gate_up_proj", 0),
    ".up_proj": (".gate_up_proj", 1),
    ".q_a_proj": (".fused_qkv_a_proj_with_mqa", "whole"),
    ".kv_a_proj_with_mqa": (".fused_qkv_a_proj_with_mqa", "whole"),
}
"""Parts of a checkpoint to the engine's fused parameter and the shard it fills."""


def spellings(names: list[str]) -> list[list[str]]:
    """The same tensors under every prefix seen in the wild, some of which the engine does not read."""
    plain = [*names, "d2t", "t2d"]
    swap = {"midlayer.": "layers.0.", "layers.0.": "midlayer."}
    turned = [next((new + n.removeprefix(old) for old, new in swap.items() if n.startswith(old)), n) for n in plain]
    prefixed = [n if n in ("lm_head.weight", "d2t", "t2d") else f"model.{n}" for n in plain]
    strange = [n.replace("self_attn", "attn") for n in plain]
    legacy = [n.replace("fc_norm.0", "aux_norm_low").replace("fc_norm.1", "aux_norm_mid") for n in plain]
    half = [n for n in plain if "kv_a_proj" not in n]
    return [plain, turned, prefixed, [f"model.{n}" for n in plain], strange, legacy, half]


def engine_parameter(name: str) -> tuple[str, Any]:
    for part, (fused, shard) in FUSED.items():
        if part in name:
            return name.replace(part, fused), shard
    return name, "whole"


@pytest.mark.parametrize(
    ("config", "file"), [(LLAMA, "llama_eagle3.py"), (MLA, "kimi_k25_eagle3.py")], ids=["Llama", "MLA"]
)
@pytest.mark.parametrize("spelling", range(7))
def test_the_doctor_places_each_tensor_where_the_engine_does(config: dict[str, Any], file: str, spelling: int) -> None:
    try:
        installed = version("sglang")
    except PackageNotFoundError:
        pytest.skip("SGLang is not installed in this interpreter")
    parsed = draft_config(config)
    kind = "eagle3-llama" if file == "llama_eagle3.py" else "eagle3-mla"
    wanted = [name for name in parameters(parsed, kind, installed)]
    tensors = spellings(wanted)[spelling]
    query = {
        "file": file,
        "class": parsed.architecture,
        "parameters": sorted({_qualified(engine_parameter(name)[0]) for name in wanted}),
        "tensors": tensors,
    }
    script = Path(__file__).with_name("loader_functions.py")
    done = subprocess.run([sys.executable, script], input=json.dumps(query), capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)
    filled = {(name, shard) for name, shards in theirs["filled"].items() for shard in shards}
    ours = load(tensors, parsed, kind, installed)
    placed = [engine_parameter(item.parameter) for item in ours.placements if item.parameter is not None]
    assert {(_qualified(name), shard) for name, shard in placed} == filled
    assert any(item.fate == "mapping" for item in ours.placements) == theirs["d2t"]


def _qualified(name: str) -> str:
    return name if name.startswith("lm_head") else f"model.{name}"
