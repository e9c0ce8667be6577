"""The stand-in is package data, outside the import graph: these tests put its folder first, as the launcher does."""

import sys
from pathlib import Path

import pytest

import sweeper

sys.path.insert(0, str(Path(sweeper.__file__).parent / "data" / "cpu_engine"))
torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(20260714)
