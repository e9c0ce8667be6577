"""`sweeper diagnose` without an engine: dumps and finished runs."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from test_accuracy import sample  # noqa: E402

from sweeper.cli import run_cli  # noqa: E402
from sweeper.cli.diagnose import wiring_text  # noqa: E402
from sweeper.doctor.matching import SlotMatch, Wiring  # noqa: E402
from sweeper.doctor.wiring import WiringReport  # noqa: E402
from sweeper.testing.model import Model  # noqa: E402
from sweeper.testing.runs import model_run  # noqa: E402
from sweeper.testing.stored import store_run  # noqa: E402


def dump(path: Path) -> str:
    given = sample()
    torch.save(
        {"input_ids": given.input_ids, "hidden_states": given.states, "generated_from": given.generated_from}, path
    )
    return str(path)


def test_accuracy_of_dumps_is_a_table_and_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--samples", dump(tmp_path / "d.pt"), "--live", "1.1", "--num-steps", "4", "--engine-version", "0.5.23"]
    assert run_cli(["diagnose", "accuracy", "toy:target", "--draft", "toy:draft", *options]) == 1
    said = capsys.readouterr().out
    assert "the wiring, not the draft, is at fault" in said
    assert said.count("%") >= 10


def test_accuracy_as_json_has_each_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--samples", dump(tmp_path / "d.pt"), "--steps", "3", "--json", "--engine-version", "0.5.23"]
    assert run_cli(["diagnose", "accuracy", "toy:target", "--draft", "toy:draft", *options]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["joint"]) == len(document["accept_length"]) == 3
    assert document["verdict"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--samples", "/nowhere.pt"], "no such file or folder"),
        (["--live", "2.0"], "belong together"),
        (["--live", "2.0", "--num-steps", "9"], "must be 1 to --steps"),
    ],
)
def test_bad_input_is_one_line(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["diagnose", "accuracy", "toy:target", "--draft", "toy:draft", *options]) == 2
    assert said in capsys.readouterr().err


def test_a_finished_run_is_explained_arm_by_arm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = store_run(model_run(["3-1-4", "5-1-6"], concurrency=[4]), tmp_path)
    assert run_cli(["diagnose", "run", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [arm["label"] for arm in document] == ["3-1-4", "5-1-6"]
    assert all(arm["sentence"].endswith(": fine") for arm in document)


def test_the_table_of_slots_fits_80_columns_and_sets_the_values_under_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    values = (-1234.5678, 0.000123, 2.0, -0.48632, 12.5)
    match = SlotMatch(
        slot="hidden_states_59", layer=None, nearest=59, cosine=-0.9999, distance=123.456, second_distance=234.567,
        norm=12345.67, engine_norm=12345.67, first_values=values, engine_first_values=values,
    )  # fmt: skip
    wiring = Wiring(matches=(match,), kind="other-model", layers=None, ids=None, sentence="These states are not. " * 9)
    lines = wiring_text(WiringReport(wiring=wiring, tokens=192, decode_distance=0.01)).splitlines()
    assert max(map(len, lines)) <= 80
    ours, theirs = (line for line in lines if "-1235" in line)
    assert ours.index("-1235") == theirs.index("-1235")


def test_what_a_finished_run_is_told_fits_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    folder = store_run(model_run(["3-1-4"], concurrency=[4], model=Model(acceptance=0.1)), tmp_path)
    assert run_cli(["diagnose", "run", str(folder)]) == 1
    said = capsys.readouterr().out
    assert "excluded:" in said
    assert max(map(len, said.splitlines())) <= 80
