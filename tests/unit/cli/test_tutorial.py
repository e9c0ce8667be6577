"""The tutorial does what it says: its commands without a server, in their order, from an empty folder."""

from pathlib import Path

import pytest
from walkthrough import Step, missing, steps

from sweeper.cli import run_cli

pytest.importorskip("torch")


def test_the_commands_of_the_tutorial_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    told = [step for step in steps() if step.command.startswith("sweeper ")]
    walked = [step for step in told if not step.needs_a_server]
    assert len(walked) >= 6 and len(told) - len(walked) == 3
    for step in walked:
        code = run_cli(step.arguments)
        printed = capsys.readouterr().out
        assert code in (0, 1), step.command
        assert missing(step, printed) == [], f"{step.command}\n{printed}"


def test_a_line_that_was_not_printed_is_missed() -> None:
    step = Step(command="sweeper x", output=("first 1.00", "…", "last"))
    assert missing(step, "first 1.04\nanything\nlast\n") == []
    assert missing(step, "first 2.00\nlast\n") == ["first 1.00", "last"]
    assert missing(step, "last\nfirst 1.00\n") == ["last"]
