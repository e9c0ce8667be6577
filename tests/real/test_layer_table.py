"""The table of captured layers against the methods of the installed SGLang."""

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from sweeper.engine.layers import captured_layers, known_targets

pytestmark = pytest.mark.real

IDS: tuple[list[int] | None, ...] = (
    None,
    [1, 9, 16],
    [2, 10, 17],
    [3, 11, 18],
    [0, 5],
    [7, 12, 20],
    [4],
    [16, 9, 2],
    [-3, 4],
)
DEPTH = 20
SCRIPT = Path(__file__).with_name("layer_functions.py")
DRAFTS = ("NextN", "MTP", "Eagle", "Eagle3", "AssistantForCausalLM")
OTHERS = {"EmbeddingGemmaModel", "MindSporeForCausalLM"}
"""An embedding model, and a wrapper around models of another framework."""


def engine_version() -> str:
    try:
        return version("sglang")
    except PackageNotFoundError:
        pytest.skip("SGLang is not installed in this interpreter")


def test_every_row_of_the_table_is_what_the_installed_engine_computes() -> None:
    installed = engine_version()
    queries = [
        {"architecture": architecture, "num_layers": DEPTH, "ids": ids}
        for architecture in known_targets()
        if captured_layers(architecture=architecture, num_layers=DEPTH, ids=None, version=installed)
        for ids in IDS
    ]
    done = subprocess.run(
        [sys.executable, SCRIPT], input=json.dumps(queries), capture_output=True, text=True, check=True
    )
    for query, answer in zip(queries, json.loads(done.stdout), strict=True):
        ours = captured_layers(**query, version=installed)
        assert ours is not None
        if answer == "IndexError":
            assert ours.crashes, query
        else:
            assert sorted([*ours.layers, *ours.unreached]) == sorted(answer), query


def test_no_target_of_the_installed_engine_is_missing_from_the_table() -> None:
    installed = engine_version()
    found = subprocess.run([sys.executable, SCRIPT, "list"], capture_output=True, text=True, check=True)
    served = {name for name in json.loads(found.stdout) if not name.endswith(DRAFTS)} - OTHERS
    ours = {
        name
        for name in known_targets()
        if captured_layers(architecture=name, num_layers=DEPTH, ids=None, version=installed) is not None
    }
    assert served == ours
