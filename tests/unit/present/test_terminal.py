"""Colours of the terminal's tables are for people who want them."""

import io
import re

import pytest

from sweeper.core.run import RunData
from sweeper.present.markdown import render_markdown
from sweeper.present.terminal import print_run
from sweeper.testing.runs import Model, model_run

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38)[;m]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("no_color", [False, True])
def test_a_terminal_gets_colours_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch, no_color: bool) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    print_run(model_run(concurrency=(1,), repeats=2), file=terminal)
    assert bool(COLOUR.search(terminal.getvalue())) is not no_color


def told(run: RunData) -> str:
    out = io.StringIO()
    print_run(run, file=out)
    return out.getvalue()


def test_load_points_that_share_a_command_are_told_in_one_breath() -> None:
    run = model_run(("3-1-4",), concurrency=(1, 4))
    assert "To run at concurrency 1 and 4:\n" in told(run)
    assert "To run at concurrency 1 and 4:\n" in render_markdown(run)


def test_the_baselines_command_comes_with_its_reason() -> None:
    run = model_run(("3-1-4",), concurrency=(1,), repeats=2, model=Model(repeat_noise=0.6, start_noise=0.4))
    assert "At concurrency 1 nothing is known to be faster; the baseline:\n" in told(run)
    assert "To run at" not in told(run)
