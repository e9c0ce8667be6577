"""The command that a reader pastes."""

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
