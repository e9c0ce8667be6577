"""The command that a reader pastes."""

import shlex
from dataclasses import replace

from sweeper.core.run import RunData
from sweeper.present.launch_command import paste_command, wrapped
from sweeper.testing.runs import model_run


def with_command(command: str) -> RunData:
    run = model_run(("3-1-4",), concurrency=(1,))
    return replace(run, starts=tuple(replace(record, command=command) for record in run.starts))


def test_what_belonged_to_the_run_is_taken_out() -> None:
    run = with_command(
        "CUDA_VISIBLE_DEVICES=0,1 SGLANG_X=1 SWEEPER_LAUNCH_ID=ab /opt/venv/bin/python -m sglang.launch_server "
        "--model-path '/models/my model' --host 127.0.0.1 --port 30123 --served-model-name sweeper-ab --tp-size 2"
    )
    assert paste_command(run, run.plan.arms[1]) == (
        "SGLANG_X=1 python -m sglang.launch_server --model-path '/models/my model' --tp-size 2"
    )


def test_an_arm_that_never_started_is_written_from_its_request() -> None:
    run = replace(model_run(("3-1-4",)), starts=())
    command = paste_command(run, run.plan.arms[1])
    assert command.startswith("python -m sglang.launch_server --model-path moonshotai/Kimi-K2.5")
    assert "--speculative-num-steps 3" in command


def test_wrapping_adds_only_backslashes_and_spaces() -> None:
    run = model_run(("3-1-4",))
    command = paste_command(run, run.plan.arms[1])
    assert " ".join(wrapped(command, width=60).replace("\\\n", "").split()) == command
    assert max(map(len, wrapped(command, width=60).splitlines())) <= 62


def test_a_wrapped_command_is_the_same_to_a_shell_also_where_a_value_looks_like_a_flag() -> None:
    command = (
        "A='x --y' python -m sglang.launch_server --model-path /models/a --json '{\"a\": \"x --y\"}' --flag "
        "--draft-model-path /a/path/that/is/much/longer/than/the/width/of/this/terminal --ids 1 2 3"
    )
    lines = wrapped(command, width=40).split("\n")
    assert all(line.endswith(" \\") for line in lines[:-1]) and len(lines) > 4
    assert shlex.split("\n".join(lines).replace("\\\n", " ")) == shlex.split(command)
    assert all(len(line) <= 40 for line in lines if "/much/longer/" not in line)
