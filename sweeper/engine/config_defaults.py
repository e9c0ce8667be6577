"""What the engine reads in a draft's config.json where the file is silent: the defaults of its config class.

`save_pretrained` leaves out what equals the default, so silence is a statement. From transformers 5.19, checked there
in tests/real; unknown model types have no defaults here, and nothing is concluded from their silence.
"""

from collections.abc import Mapping
from typing import Any

_LLAMA = {"max_position_embeddings": 2048, "rope_theta": 10000.0, "tie_word_embeddings": False}
_QWEN = {"max_position_embeddings": 32768, "rope_theta": 10000.0, "tie_word_embeddings": False}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": _LLAMA,
    "qwen2": {**_QWEN, "num_key_value_heads": 32},
    "qwen3": {**_QWEN, "num_key_value_heads": 32, "head_dim": 128},
    "qwen3_moe": {**_QWEN, "num_key_value_heads": 4},
    "mistral": {**_LLAMA, "max_position_embeddings": 131072, "num_key_value_heads": 8},
    "llama4_text": {
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "deepseek_v3": {**_LLAMA, "max_position_embeddings": 4096},
    "gpt_oss": {
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "attention_bias": True,
    },
    "gemma3_text": {
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
        "num_key_value_heads": 4,
        "head_dim": 256,
    },
}
"""By `model_type`. Rope of gpt_oss and gemma3_text is nested by kind of layer and left alone."""


def with_defaults(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """`raw` with what its config class would add."""
    found = dict(DEFAULTS.get(str(raw.get("model_type")), {}))
    if "rope_parameters" in raw:
        found.pop("rope_theta", None)
    return {**found, **raw}
