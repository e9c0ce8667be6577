"""Colours of the terminal's tables are for people who want them."""

import io
import re
from dataclasses import replace

import pytest

from sweeper.core.result import Skipped
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


def test_long_names_are_told_whole_and_no_line_is_wider_than_80() -> None:
    run = model_run(("3-1-4", "5-1-6"), concurrency=(1, 8))
    arms = tuple(
        replace(arm, label=f"{arm.label} draft=/models/kimi-k25-eagle3-epoch{number} ids=2,30,58")
        for number, arm in enumerate(run.plan.arms)
    )
    tables = told(replace(run, plan=replace(run.plan, arms=arms))).split("To run at")[0]
    assert "…" not in tables and max(map(len, tables.splitlines())) <= 80
    for column in ("over load", "draft 1 → last", "TPOT ms", "even at"):
        assert column in tables


def test_what_is_the_same_of_several_configurations_is_said_once() -> None:
    run = model_run(("3-1-4", "5-1-6"), concurrency=(1,))
    reason = "not started: the engine refused the same argument in baseline"
    measured = tuple(one for one in run.measurements if run.plan.arm(one.arm_id).is_baseline)
    ended = tuple(
        Skipped(trial_id=trial.trial_id, reason=reason)
        for trial in run.plan.trials
        if not run.plan.arm(trial.arm_id).is_baseline
    )
    text = told(replace(run, measurements=measured, results=ended))
    assert f"3-1-4, 5-1-6: {reason}" in " ".join(text.split())
    assert text.count("not started") == 1
