"""The winner as a service."""

from dataclasses import replace

import yaml

from sweeper.analysis.compare import compare
from sweeper.present.deploy import compose_file, split_command, systemd_unit
from sweeper.testing.runs import model_run

COMMAND = "SGLANG_X='a b%c' python -m sglang.launch_server --model-path '/models/my model$1' --tp-size 8"


def winner_run(command: str = COMMAND):
    run = model_run(("3-1-4",), concurrency=(1,))
    run = replace(run, starts=tuple(replace(record, command=command) for record in run.starts))
    return run, compare(run).winners[0]


def test_systemd_keeps_words_together_and_its_own_signs_apart() -> None:
    unit = systemd_unit(*winner_run())
    assert 'Environment="SGLANG_X=a b%%c"' in unit
    assert (
        'ExecStart=/usr/bin/env python -m sglang.launch_server --model-path "/models/my model$$1" --tp-size 8' in unit
    )


def test_a_line_break_in_a_name_cannot_add_a_directive() -> None:
    unit = systemd_unit(*winner_run("python -m sglang.launch_server --model-path 'x\nExecStartPre=/bin/evil'"))
    assert not any(line.startswith("ExecStartPre") for line in unit.splitlines())


def test_compose_pins_the_measured_engine_mounts_local_paths_and_gives_gpus() -> None:
    service = yaml.safe_load(compose_file(*winner_run()))["services"]["sglang"]
    assert service["image"] == "lmsysorg/sglang:v0.5.23"
    assert service["volumes"] == ["/models/my model$1:/models/my model$1:ro"]
    assert service["command"][4] == "/models/my model$$1"
    assert service["ports"] == ["127.0.0.1:30000:30000"]
    assert service["deploy"]["resources"]["reservations"]["devices"][0]["count"] == 8


def test_modules_on_the_python_path_are_mounted_too() -> None:
    run = winner_run("PYTHONPATH=/opt/engine python -m sglang.launch_server --model-path org/model")
    service = yaml.safe_load(compose_file(*run))["services"]["sglang"]
    assert service["volumes"] == ["/opt/engine:/opt/engine:ro"]


def test_a_command_splits_into_environment_and_words() -> None:
    assert split_command("A=1 B='x y' python -m m --json '{\"a\"=1}'") == (
        {"A": "1", "B": "x y"},
        ["python", "-m", "m", "--json", '{"a"=1}'],
    )
