"""`sweeper doctor` as the user meets it."""

import json
from pathlib import Path

import pytest
from drafts import Draft, write_checkpoint
from sound_drafts import LLAMA, SOUND
from test_repair import tiny

from sweeper.cli import run_cli


def on_disk(tmp_path: Path, draft: Draft) -> tuple[str, str]:
    path = write_checkpoint(tmp_path / "draft", draft)
    target = tmp_path / "target.json"
    target.write_text(json.dumps(draft.target))
    return str(path), str(target)


def test_a_sound_draft_exits_0_and_says_what_was_excluded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft, target = on_disk(tmp_path, SOUND["Kimi K2.5 multimodal, Llama class"][0])
    assert run_cli(["doctor", draft, "--target", target, "--engine-version", "0.5.23"]) == 0
    said = capsys.readouterr().out
    assert "captured layers  2, 30, 58" in said
    assert "Nothing in these files explains a low accept length." in said
    assert "excluded" in said


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_findings_fit_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.chdir(tmp_path)
    on_disk(Path(), LLAMA.configured(architectures=["LlamaForCausalLM"]))
    assert run_cli(["doctor", "draft", "--target", "target.json", "--engine-version", "0.5.23"]) == 1
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= min(columns, 100)
    assert "\n\n\n" not in said


def test_json_is_one_document_and_errors_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft, target = on_disk(tmp_path, SOUND["Kimi K2.5 multimodal, Llama class"][0])
    options = ["--engine-version", "0.5.23", "--aux-layer-ids=-1,2,30", "--json"]
    assert run_cli(["doctor", draft, "--target", target, *options]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["captured_layers"] == [2, 30]
    (found,) = [item for item in document["findings"] if item["severity"] == "error"]
    assert found["code"] == "layer-ids-unreached"
    assert set(found) == {"code", "severity", "evidence", "remedy"}


def test_fix_writes_a_copy_and_examines_it_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_checkpoint(tmp_path / "draft", tiny().mapped([1, 2, 5, 11, 12, 19]))
    assert run_cli(["doctor", str(path), "--engine-version", "0.5.23"]) == 1
    capsys.readouterr()
    assert run_cli(["doctor", str(path), "--engine-version", "0.5.23", "--fix", str(tmp_path / "out"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["changes"] == ["d2t: absolute ids → offsets (each minus its index)"]
    assert document["draft"] == str(tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--aux-layer-ids", "2,x"], "write numbers with commas"),
        (["--engine-version", "latest"], "is not an SGLang release"),
        (["--arg", "quantization"], "write KEY=VALUE"),
        (["--target", "/nowhere"], "no such folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    path = write_checkpoint(tmp_path / "draft", LLAMA)
    assert run_cli(["doctor", str(path), *options]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1


def test_server_arguments_and_environment_are_part_of_the_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_checkpoint(tmp_path / "draft", LLAMA)
    options = ["--arg", "quantization=fp8", "--env", "SGLANG_SIMULATE_ACC_LEN=3", "--json", "--engine-version=0.5.23"]
    assert run_cli(["doctor", str(path), *options]) == 1
    codes = [item["code"] for item in json.loads(capsys.readouterr().out)["findings"]]
    assert codes == ["simulated-acceptance", "draft-inherits-quantization"]


def test_the_target_itself_given_as_its_draft_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["doctor", "toy:target", "--target", "toy:target", "--engine-version", "0.5.23"]) == 1
    said = capsys.readouterr().out
    assert "draft-is-a-model" in said and "no weights" not in said
    standalone = ["--algorithm", "STANDALONE", "--engine-version", "0.5.23"]
    assert run_cli(["doctor", "toy:target", "--target", "toy:target", *standalone]) == 0


def test_an_eagle3_draft_is_no_standalone_model(capsys: pytest.CaptureFixture[str]) -> None:
    standalone = ["--algorithm", "STANDALONE", "--engine-version", "0.5.23"]
    assert run_cli(["doctor", "toy:draft", "--target", "toy:target", *standalone, "--json"]) == 1
    found = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["severity"] == "error"]
    assert [one["code"] for one in found] == ["algorithm-standalone-for-eagle3"]
    assert "EAGLE3" in found[0]["remedy"]
