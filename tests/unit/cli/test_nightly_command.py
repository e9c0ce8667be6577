"""What `sweeper nightly` says where there is nothing to say it of."""

from pathlib import Path

import pytest

from sweeper.cli import run_cli

EXPERIMENT = "name: a\nengine: {device: cpu}\nserver: {model_path: 'toy:target'}\n"


@pytest.mark.parametrize("command", ["history", "status", "accept", "mute"])
def test_a_folder_without_a_night_is_one_line_with_its_remedy(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"accept": ["--note", "so"], "mute": ["--note", "so", "--until", "2030-01-01", "--series", "x"]}
    assert run_cli(["nightly", command, "--history", str(tmp_path / "none"), *more.get(command, [])]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"sweeper: {tmp_path}/none: no ") and "correct --history" in line


@pytest.mark.parametrize("format_option", [[], ["--json"]])
def test_a_history_in_which_no_night_has_ended_says_so(
    format_option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["nightly", "history", "--history", str(tmp_path), *format_option]) == 2
    assert capsys.readouterr().err.startswith(f"sweeper: {tmp_path}: no night has ended here yet; run `sweeper nightly")


def test_no_scheduler_and_no_experiment_are_told_as_every_other_slip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.yaml"
    history = ["--history", str(tmp_path / "history")]
    assert run_cli(["nightly", "install", str(path), *history, "--cron"]) == 2
    assert capsys.readouterr().err.startswith(f"sweeper: {path}: no such file; ")
    path.write_text(EXPERIMENT)
    assert run_cli(["nightly", "install", str(path), *history]) == 2
    assert capsys.readouterr().err.startswith("sweeper: nightly install: no scheduler named; give one of --systemd")


def test_the_list_of_commands_cuts_no_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["nightly", "--help"]) == 0
    flowing = " ".join(capsys.readouterr().out.partition("Commands:")[2].split())
    assert "..." not in flowing and "from now on it is what nights are compared with" in flowing
