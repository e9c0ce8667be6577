import json
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.cli import run_cli
from sweeper.testing.server import running

FAST = ("--prefill-ms", "3", "--step-ms", "1", "--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3")


def test_the_report_has_the_figures_at_its_top_level(tmp_path: Path, capsys):
    out = tmp_path / "report.json"
    with running(*FAST) as url:
        code = run_cli(
            ["bench", url, "--num-prompts", "120", "--concurrency", "8", "--output-tokens", "4:9", "--out", str(out)]
        )
    report = json.loads(out.read_text())
    assert code == 0
    assert (report["client"], report["completed"], report["requests"]) == ("sweeper", 120, 120)
    for key in (
        "duration_s",
        "input_tokens",
        "output_tokens",
        "output_tps",
        "request_rps",
        "peak_tps",
        "accept_length",
    ):
        assert report[key] > 0, key
    for key in ("ttft_ms", "tpot_ms", "itl_ms", "icl_ms", "e2e_ms"):
        assert 0 < report[key]["p50"] <= report[key]["p99"], key
    assert report["metrics"]["output_len"]["min"] == 4
    assert report["server"]["num_draft_tokens"] == 4
    assert "accept length" in capsys.readouterr().out


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_json_is_one_document_on_stdout_and_a_failed_request_is_exit_code_1(endpoint, capsys):
    with running(*FAST, "--fault", "error:0.5") as url:
        code = run_cli(["bench", url, "--endpoint", endpoint, "--num-prompts", "20", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == 1
    assert report["completed"] + report["errors"]["error_chunk"] == 20
    assert report["error_examples"] == {"error_chunk": "scripted error"}


def test_a_warm_up_leaves_no_warm_cache_and_is_not_counted(capsys):
    with running(*FAST) as url:
        code = run_cli(["bench", url, "--num-prompts", "12", "--warmup", "12", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (code, report["requests"], report["flush"], report["metrics"]["cached_tokens"]) == (0, 12, "flushed", 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["http://127.0.0.1:9"], "is the server running there?"),
        (["ftp://x"], "write http://HOST:PORT"),
        (["http://127.0.0.1:9", "--input-tokens", "9:2"], "LO:HI"),
        (["http://127.0.0.1:9", "--arrival", "constant"], "needs --request-rate"),
        (["http://127.0.0.1:9", "--prompts", "builtin:poems"], "builtin:code"),
        (["http://127.0.0.1:9", "--out", "/no/such/folder/report.json"], "cannot write"),
        (["http://127.0.0.1:9", "--chat-template-kwargs", "[]"], "write a JSON object"),
        (["http://127.0.0.1:99999"], "write http://HOST:PORT"),
        (["http://127.0.0.1:-1"], "write http://HOST:PORT"),
        (["http://127.0.0.1:0"], "write http://HOST:PORT"),
        (["http://127.0.0.1:abc"], "write http://HOST:PORT"),
        (["http://[::1"], "write http://HOST:PORT"),
        (["http://a..b:1"], "write http://HOST:PORT"),
        (["http://127.0.0.1\x1b[31m:9"], "write http://HOST:PORT"),
        (["http://127.0.0.1\n:9"], "write http://HOST:PORT"),
        (["http://127.0.0.1:9", "--temperature", "nan"], "is no number to measure with"),
        (["http://127.0.0.1:9", "--temperature", "inf"], "is no number to measure with"),
        (["http://127.0.0.1:9", "--top-p", "nan"], "is no number to measure with"),
        (["http://127.0.0.1:9", "--request-rate", "nan"], "is no number to measure with"),
        (["http://127.0.0.1:9", "--request-rate", "1e-300"], "x>=0.001"),
        (["http://127.0.0.1:9", "--ramp-s", "1e300"], "is not in the range 0<=x<=86400"),
        (["http://127.0.0.1:9", "--give-up-late-s", "1e300"], "is not in the range"),
        (["http://127.0.0.1:9", "--num-prompts", "1" + "0" * 30], "is not in the range 1<=x<=1000000"),
        (["http://127.0.0.1:9", "--concurrency", "1" + "0" * 30], "is not in the range"),
        (["http://127.0.0.1:9", "--prompts", "random:1:999999999999"], "with 1 ≤ LO ≤ HI"),
        (["http://127.0.0.1:9", "--prompts", "random:1:99000000"], "ask for less"),
        (["http://127.0.0.1:9", "--prompts", "random:²"], "with 1 ≤ LO ≤ HI"),
        (["http://127.0.0.1:9", "--prompts", "random:9:1"], "with 1 ≤ LO ≤ HI"),
        (["http://127.0.0.1:9", "--tokenizer", "nosuch/x"], "does not exist"),
    ],
)
def test_bad_input_is_one_line_with_the_remedy(arguments, told, capsys):
    assert run_cli(["bench", *arguments]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "\x1b" not in err


def test_bench_starts_without_ray_pandas_torch_and_sglang():
    code = (
        "import sys, sweeper.cli.bench, sweeper.present.bench_report, sweeper.effects.prompts;"
        "print([m for m in ('ray', 'pandas', 'torch', 'sglang', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
