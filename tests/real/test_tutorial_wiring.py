"""The tutorial's question to the live engine: which layers the dumps were made of."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from walkthrough import missing, steps

from sweeper.cli import run_cli

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(find_spec("sglang") is None, reason="SGLang is not installed in this interpreter"),
]


def test_the_dumps_of_the_tutorial_are_named_as_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    unpacking = next(step for step in steps() if "sweeper toy" in step.command)
    assert run_cli(unpacking.arguments) == 0
    step = next(step for step in steps() if "diagnose wiring" in step.command)
    capsys.readouterr()
    assert run_cli(step.arguments) == 1, "these ids are not those of the training"
    printed = capsys.readouterr().out
    assert missing(step, printed) == [], printed
