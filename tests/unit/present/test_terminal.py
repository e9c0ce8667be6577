"""Colours of the terminal's tables are for people who want them."""

import io
import re

import pytest

from sweeper.present.terminal import print_run
from sweeper.testing.runs import model_run

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
