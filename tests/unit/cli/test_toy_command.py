import json
from pathlib import Path

import pytest

from sweeper.cli import run_cli


def test_the_pair_is_unpacked_where_asked_and_its_places_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pair"
    assert run_cli(["toy", str(folder)]) == 0
    places = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert places == {
        name: str(folder / end)
        for name, end in (("target", "target"), ("draft", "draft"), ("prompts", "prompts.jsonl"))
    }
    config = json.loads((folder / "draft" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert (folder / "target" / "model.safetensors").stat().st_size > 1_000_000


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run_cli(["toy", str(tmp_path / "file" / "pair")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_folder_of_others_is_left_alone_and_one_of_ours_is_written_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "build.log").write_text("mine")
    assert run_cli(["toy", str(tmp_path)]) == 2
    assert "holds other files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    ours = tmp_path / "pair"
    ours.mkdir()
    assert run_cli(["toy", str(ours)]) == 0
    (ours / "notes.txt").write_text("mine")
    (ours / "draft" / "config.json").write_text("{}")
    assert run_cli(["toy", str(ours)]) == 0
    assert (ours / "draft" / "config.json").stat().st_size > 2
    assert (ours / "notes.txt").read_text() == "mine"
