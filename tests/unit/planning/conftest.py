"""Builders for planner tests: an experiment from YAML text, and the facts of a machine that has everything."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sweeper.core.experiment import Experiment
from sweeper.core.trial import Plan
from sweeper.effects.engine_flags import shipped_table
from sweeper.planning.config import parse_experiment
from sweeper.planning.facts import Facts
from sweeper.planning.plan import make_plan

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
}
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
}
DRAFT = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 4096,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 131072,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28], "use_aux_hidden_state": True},
}


@pytest.fixture(scope="session")
def facts() -> Callable[..., Facts]:
    table = shipped_table()

    def make(target: Mapping[str, Any] | None = LLAMA, draft: Mapping[str, Any] | None = DRAFT, **more: Any) -> Facts:
        configs = {"/m/target": target, "/m/draft": draft, "/m/other": draft}
        return Facts(
            flags=table,
            engine_version="0.5.23",
            engine_installed="0.5.23",
            configs={path: config for path, config in configs.items() if config is not None},
            **more,
        )

    return make


HEAD = "name: t\nserver: {model_path: /m/target, args: {tp_size: 2}}\n"


@pytest.fixture
def experiment() -> Callable[[str], Experiment]:
    def parse(text: str) -> Experiment:
        return parse_experiment(text if "server:" in text else HEAD + text, Path("x.yaml"))

    return parse


@pytest.fixture
def plan(experiment: Callable[[str], Experiment], facts: Callable[..., Facts]) -> Callable[..., Plan]:
    def make(text: str, **more: Any) -> Plan:
        return make_plan(experiment(text), facts(**more))

    return make
