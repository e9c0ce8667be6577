import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
        # On a busy machine most tokens are read together with the one before: a median of nothing between them.
        assert 0 <= report[key]["p50"] <= report[key]["p99"] and report[key]["p99"] > 0, key
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
        (["http://127.0.0.1:9", "--stop", "\udcff"], "is not UTF-8 text"),
        (["http://127.0.0.1:9", "--model", "\udcff"], "is not UTF-8 text"),
        (["http://127.0.0.1:9", "--chat-template-kwargs", '{"a": "\\ud800"}'], "write a JSON object"),
    ],
)
def test_bad_input_is_one_line_with_the_remedy(arguments, told, capsys):
    assert run_cli(["bench", *arguments]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "\x1b" not in err


class Echoing(BaseHTTPRequestHandler):
    """Refuses everything, and says with which key, in red."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def do_GET(self) -> None:
        key = self.headers["authorization"].removeprefix("Bearer ")
        body = f"\x1b]0;owned\x07\x1b[31mno such key: {key}\u202e; token=hf_{'a' * 30}".encode()
        self.send_response(403)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal."""


@contextmanager
def echoing() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echoing)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_what_a_server_says_is_shown_without_escapes_and_without_the_key_it_was_sent(monkeypatch, capsys):
    monkeypatch.setenv("SWEEPER_API_KEY", "correct horse")
    with echoing() as url:
        assert run_cli(["bench", url, "--num-prompts", "2", "--warmup", "1", "--json"]) == 1
        report = json.loads(capsys.readouterr().out)
        assert run_cli(["bench", url, "--num-prompts", "2"]) == 1
    assert report["error_examples"] == {"status": "HTTP 403: no such key: ***; token=***"}
    assert report["flush"] == "not flushed: HTTP 403: no such key: ***; token=***"
    assert "\x1b" not in capsys.readouterr().out


def test_bench_starts_without_ray_pandas_torch_and_sglang():
    code = (
        "import sys, sweeper.cli.bench, sweeper.present.bench_report, sweeper.effects.prompts;"
        "print([m for m in ('ray', 'pandas', 'torch', 'sglang', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
