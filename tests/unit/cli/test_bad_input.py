"""Every mistake a user can make in an experiment file or on the command line: one clear line, exit code 2."""

import errno
import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from sweeper.cli import root, run_cli

HEAD = "name: a\nengine: {device: cpu}\nserver: {model_path: 'toy:target'}\n"


def said(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run_cli(argv) == 2
    captured = capsys.readouterr()
    text = (captured.err or captured.out).strip()
    assert "Traceback" not in text
    return text


def experiment(folder: Path, text: str) -> str:
    path = folder / "x.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("command", ["plan", "check", "run"])
def test_a_missing_file(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "none.yaml")
    assert said([command, path], capsys) == f"sweeper: {path}: no such file; see experiments/ for examples"


def test_a_results_folder_that_is_no_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = os.fsdecode(os.fsencode(tmp_path) + b"/re\xff")
    text = said(["run", experiment(tmp_path, HEAD), "--out", out], capsys)
    assert "its path is no UTF-8 text, which Ray cannot pass on; rename it" in text
    assert not Path(out).exists()


@pytest.mark.parametrize("command", ["plan", "check", "run"])
def test_a_folder_for_a_file(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "a folder, not an experiment file" in said([command, str(tmp_path)], capsys)


@pytest.mark.parametrize("command", ["plan", "check", "run"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD + "worklaod: {}\n", "x.yaml:4: worklaod: unknown key; did you mean workload?"),
        (HEAD + "run: {starts: two}\n", "x.yaml:4: run.starts: must be a whole number, got 'two'; write digits"),
        (HEAD + "baseline: {args: {no_such: 1}}\n", "x.yaml:4: baseline.args.no_such: SGLang 0.5.23 has no flag"),
        (HEAD.replace("'toy:target'", "'toy:other'"), "toy:other: the shipped models are toy:target, toy:draft"),
        (HEAD + "sweep: {server.args.tp_size: [1, many]}\n", "x.yaml:4: sweep.server.args.tp_size: tp_size must be"),
        (HEAD + 'workload: {stop: ["\\ud800"]}\n', "x.yaml:4: workload.stop.0: holds control characters"),
        (HEAD + "workload: {num_prompts: 1000000000}\n", "x.yaml:4: workload.num_prompts: should be less than or"),
        (HEAD + "workload: {temperature: .inf}\n", "x.yaml:4: workload.temperature: must be a"),
        (
            HEAD + "speculative: {exclude: [{topk: 1}]}\n",
            "x.yaml:4: speculative.exclude.0.topk: no such key of a point; ",
        ),
        (
            HEAD + "workload: {arrival: {kind: poisson}}\n",
            "x.yaml:4: workload.arrival.rate_rps: missing; poisson arrivals need",
        ),
    ],
)
def test_a_mistake_in_the_file(
    command: str, text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command == "plan" and "toy:other" in text:
        pytest.skip("plan says unchecked")
    found = said([command, experiment(tmp_path, text)], capsys)
    assert expected in found
    assert len(found.splitlines()) == 1


def test_text_that_is_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"name: \xff\xfe\n")
    assert "x.yaml:1: not UTF-8 text; save it as UTF-8" in said(["plan", str(path)], capsys)


def test_a_draft_that_is_not_here_is_unchecked_in_plan_and_refused_by_check_and_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = experiment(tmp_path, HEAD + "speculative:\n  configs: [3-1-4]\n  draft_model_path: /no/draft\n")
    expected = f"{path}:6: speculative.draft_model_path: /no/draft: no such folder; correct the path"
    assert run_cli(["plan", path, "--json"]) == 0
    assert expected in json.loads(capsys.readouterr().out)["unchecked"]
    for command in ("check", "run"):
        assert said([command, path], capsys) == f"sweeper: {expected}"


def test_each_of_several_problems_has_its_line_and_the_name_of_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = experiment(
        tmp_path,
        "name: x\nserver: {model_path: /no/target}\nspeculative:\n  configs:\n"
        "    - {num_steps: 3, draft_model_path: /no/first}\n"
        "sweep:\n  speculative.draft_model_path:\n    - /no/second\nengine:\n  device: cuda\n",
    )
    assert said(["check", path], capsys).splitlines() == [
        f"sweeper: {path}:2: server.model_path: /no/target: no such folder; correct the path",
        f"sweeper: {path}:8: sweep.speculative.draft_model_path.0: /no/second: no such folder; correct the path",
        f"sweeper: {path}:5: speculative.configs.0.draft_model_path: /no/first: no such folder; correct the path",
        f"sweeper: {path}:10: engine.device: cuda, but no NVIDIA GPU is visible here; run on a GPU node, or set "
        "device: cpu",
    ]


def test_check_warns_once_of_a_load_too_short_for_its_concurrency(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = experiment(tmp_path, HEAD + "workload: {num_prompts: 8, concurrency: [4]}\n")
    assert run_cli(["check", path]) == 0
    assert capsys.readouterr().out.count("concurrency 4") == 1


@pytest.mark.parametrize("prompts", ["/dev/null", "/", "random:9:1", "toy:poems"])
def test_prompts_that_no_load_can_be_made_of(prompts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = experiment(tmp_path, HEAD + f"workload: {{prompts: '{prompts}'}}\n")
    for command in ("check", "run"):
        assert "workload.prompts: " in said([command, path], capsys)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "p.jsonl: no prompts in it"),
        (b'{"text": "a"}\n{"text":\n', "p.jsonl:2: not JSON"),
        (b'{"text": "a"}\n{"words": 3}\n', "p.jsonl:2: no prompt; known keys"),
        (b'{"text": ""}\n', "p.jsonl: prompt 'p-1' is empty; give it a text or remove it"),
        (b"\xff\xfe", "p.jsonl: cannot be read"),
    ],
)
def test_a_prompt_file_that_no_load_can_be_made_of(
    content: bytes, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check` reads it as `run` will: in the evening, not at night."""
    (tmp_path / "p.jsonl").write_bytes(content)
    path = experiment(tmp_path, HEAD + "workload: {prompts: p.jsonl}\n")
    for command in ("check", "run"):
        assert expected in said([command, path], capsys)


def test_check_says_what_the_prompts_lack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    path = experiment(tmp_path, HEAD + "workload: {prompts: p.jsonl, num_prompts: 8, concurrency: [1]}\n")
    assert run_cli(["check", path]) == 0
    assert "has 2 prompts, not the 8 asked for" in capsys.readouterr().out


def test_no_gpu_although_cuda_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = experiment(tmp_path, HEAD.replace("device: cpu", "device: cuda"))
    for command in ("check", "run"):
        assert "no NVIDIA GPU is visible here; run on a GPU node, or set device: cpu" in said([command, path], capsys)


def test_sglang_not_installed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = experiment(tmp_path, HEAD.replace("device: cpu", f"device: cpu, python: {tmp_path}/python"))
    expected = f"SGLang is not installed in {tmp_path}/python; install sglang==0.5.23 there, or set engine.python"
    for command in ("check", "run"):
        assert expected in said([command, path], capsys)


@pytest.mark.skipif(find_spec("sglang") is None, reason="SGLang is not installed in this interpreter")
@pytest.mark.parametrize(
    ("only", "expected"), [("stepz=3", "unknown key stepz"), ("steps=9", "no trial matches"), ("steps", "KEY=VALUE")]
)
def test_a_slip_in_only_is_told_before_ray_starts(
    only: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = experiment(tmp_path, HEAD)
    text = said(["run", path, "--only", only, "--out", str(tmp_path / "results")], capsys)
    assert expected in text and "Ray" not in text
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("argv", [["import", "."], ["import", "none.json"]])
def test_files_that_cannot_be_imported_come_with_a_remedy(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert said(argv, capsys).endswith("; name the files that the tools wrote")


def test_an_unknown_option_and_a_missing_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such option" in said(["plan", "--nope"], capsys)
    assert "Missing argument" in said(["plan"], capsys)


def test_a_path_that_the_system_refuses_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text("{}")
    os.mkfifo(tmp_path / "model.safetensors")
    assert "model.safetensors: not a sound safetensors file: it is no file" in said(["doctor", str(tmp_path)], capsys)
    path = experiment(tmp_path, HEAD)
    text = said(["nightly", "install", path, "--history", "h", "--cron", "--to", path], capsys)
    assert text == f"sweeper: {path}: File exists; correct the path, its permissions or the disk"


def test_the_password_of_a_cluster_address_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert "hunter2" not in said(["clean", "--dry-run", "--ray-address", "ray://me:hunter2@127.0.0.1:1"], capsys)


def test_a_damaged_verdict_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "verdict.json").write_text("[" * 100_000)
    assert "verdict.json: damaged; remove it" in said(["nightly", "status", "--history", str(tmp_path)], capsys)


@pytest.mark.parametrize(
    "words", [["accept", "--note", "n"], ["mute", "--series", "x", "--until", "2099-01-01", "--note", "n"]]
)
def test_a_word_for_a_history_that_is_not_there(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "nigths"
    assert "no such history; correct --history" in said(["nightly", *words, "--history", str(missing)], capsys)
    assert not missing.exists()


ESCAPE = "\x1b]0;owned\x07\x1b[31m"


@pytest.mark.parametrize(
    "argv",
    [
        ["report", f"/no/{ESCAPE}run"],
        ["clean", "--dry-run", "--ray-address", f"127.0.0.1:1{ESCAPE}"],
        ["bench", "http://127.0.0.1:9", "--out", f"/no/{ESCAPE}out"],
        ["import", f"/no/{ESCAPE}file"],
        ["export", f"/no/{ESCAPE}run", "--format", "csv"],
        ["plan", f"/no/{ESCAPE}x.yaml"],
        ["nightly", "status", "--history", f"/no/{ESCAPE}h"],
        ["dashboard", "--port", f"{ESCAPE}1"],
    ],
)
def test_no_message_drives_the_terminal(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = said(argv, capsys)
    assert text
    assert text.replace("\n", "").isprintable()


def test_a_file_is_no_folder_of_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "passwd"
    file.write_text("root\n")
    for argv in ([str(file)], [str(tmp_path), "--history", str(file)]):
        assert f"{file}: a file, not a folder of results" in said(["dashboard", *argv, "--port", "0"], capsys)


def test_what_a_schedule_cannot_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = experiment(tmp_path, HEAD)
    argv = ["nightly", "install", path, "--cron", "--to", str(tmp_path / "to")]
    assert "holds control characters" in said([*argv, "--history", f"{tmp_path}/h\n* * * * * id"], capsys)
    history = ["--history", str(tmp_path / "h")]
    assert "cannot be read" in said([*argv, *history, "--policy", "/nonexistent"], capsys)
    policy = tmp_path / "policy.yaml"
    policy.write_text("alhpa: 0.01\n")
    assert "alhpa" in said([*argv, *history, "--policy", str(policy)], capsys)
    assert not (tmp_path / "to").exists()
    assert not (tmp_path / "h").exists()


def test_a_terminal_that_is_gone_is_no_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def lost(**options: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(root, "main", lost)
    assert run_cli(["report"]) == 2
    assert "Input/output error" in capsys.readouterr().err
