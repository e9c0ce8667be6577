"""What a night leaves behind: files, messages, and what is thrown away later."""

import json
import multiprocessing
import threading
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner
from thought_nights import FIRST, Nights

from sweeper.analysis.figures.nights import draw_nights
from sweeper.analysis.figures.style import BASELINE
from sweeper.cli.nightly import command
from sweeper.core.result import Failure
from sweeper.effects.http import post_json
from sweeper.errors import ConfigError
from sweeper.nightly.circumstances import checkpoint_revision
from sweeper.nightly.history import RESUME_WITHIN, History
from sweeper.nightly.outputs import write_page
from sweeper.nightly.retention import prune
from sweeper.nightly.settings import Retention, Webhook, read_settings
from sweeper.nightly.webhooks import send
from sweeper.testing.model import Story

EVIL = "<img src=x onerror=alert(1)> & `rm` | *"


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(History(tmp_path / "history"))


def broken(message: str) -> Story:
    return Story(failures={"3-1-4": Failure(failure_class="unknown", message=message, remedy="none")})


def test_a_night_leaves_verdict_summary_junit_and_page(nights: Nights) -> None:
    nights.quiet(5)
    ended = nights.night(story=Story(acceptance={"3-1-4": 0.6}))
    root = nights.history.root
    verdict = json.loads((root / "verdict.json").read_text())
    assert verdict["state"] == "regressed" and verdict["sentence"] == ended.sentence
    assert verdict["alarms"][0]["quantity"] == "accept_length"
    suite = ET.parse(root / "junit.xml").getroot().find("testsuite")
    assert suite is not None and int(suite.get("failures", "0")) == len(verdict["alarms"])
    assert int(suite.get("tests", "0")) == 18
    assert (root / "summary.md").read_text().startswith("## kimi-k25-eagle3, night 20261106-030000")
    write_page(nights.history, nights.history.nights(), ended.verdict)
    page = (root / "history.html").read_text()
    assert 'data-figure="accept_length"' in page and "regressed" in page
    assert (ended.folder / "verdict.json").read_bytes() == (root / "verdict.json").read_bytes()


def test_hostile_text_is_escaped_everywhere(nights: Nights) -> None:
    nights.night()
    verdict = nights.night(story=broken(EVIL + "\x00\x1b")).verdict
    root = nights.history.root
    write_page(nights.history, nights.history.nights(), verdict)
    assert "<img" not in (root / "history.html").read_text()
    assert "<img" not in (root / "summary.md").read_text()
    ET.parse(root / "junit.xml")


def test_the_history_is_read_back_as_it_was_written(nights: Nights) -> None:
    nights.quiet(3)
    before = nights.history.nights()
    assert History(nights.history.root).nights() == before
    assert [night.night_id for night in before] == ["20261101-030000", "20261102-030000", "20261103-030000"]


def test_a_night_that_was_cut_goes_on_and_an_old_one_does_not(tmp_path: Path) -> None:
    history = History(tmp_path)
    begun = history.begin("x", FIRST)
    assert history.begin("x", FIRST + timedelta(hours=2)) == begun
    later = history.begin("x", FIRST + RESUME_WITHIN + timedelta(minutes=1))
    assert later.night_id != begun.night_id


def hold(root: str, ready: Any, done: Any) -> None:
    with History(Path(root)).locked() as ours:
        assert ours
        ready.set()
        done.wait(20)


def test_a_second_call_while_one_runs_says_so_and_is_fine(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    process = context.Process(target=hold, args=(str(tmp_path), ready, done))
    process.start()
    try:
        assert ready.wait(30)
        assert History(tmp_path).running()
        result = invoke("run", "x.yaml", "--history", str(tmp_path), "--json")
        assert result.return_value == 0
        assert json.loads(result.stdout) == {"state": "running", "pid": str(process.pid)}
        assert f"process {process.pid} is at it; nothing is started" in result.stderr
    finally:
        done.set()
        process.join()
    assert not History(tmp_path).running()


def test_webhooks_get_their_shape_and_their_address_is_never_shown(nights: Nights) -> None:
    nights.quiet(3)
    ended = nights.night(story=broken("a < b & c"))
    sent: list[tuple[str, Mapping[str, Any]]] = []
    secret = "https://hooks.example/T0/secret"

    def post(url: str, body: Mapping[str, Any]) -> int:
        sent.append((url, body))
        if len(sent) == 3:
            raise OSError(f"not sent to {url}")
        return 200

    hooks = [Webhook(url_env="A", shape="slack"), Webhook(url_env="A"), Webhook(url_env="A"), Webhook(url_env="B")]
    problems = send(ended.verdict, hooks, post, env={"A": secret})
    assert sent[0][1]["text"].startswith("Sweeper nightly kimi-k25-eagle3: regressed")
    assert "a &lt; b &amp; c" in sent[0][1]["text"]
    assert sent[1][1]["state"] == "regressed" and "series" not in sent[1][1]
    assert problems == ("webhook A: not sent to …", "webhook B: the variable holds no http(s) address")
    assert "secret" not in json.dumps([body for _, body in sent])


class Hook(BaseHTTPRequestHandler):
    got: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        self.got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


def test_a_message_reaches_a_real_address_and_an_unreachable_one_is_named_without_it() -> None:
    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/secret"
        assert post_json(url, {"text": "fine"}) == 204
        assert Hook.got == [{"text": "fine"}]
    with pytest.raises(OSError, match="not sent: ConnectError") as caught:
        post_json(url, {})
    assert "secret" not in str(caught.value)


def test_webhooks_are_silent_about_fine_nights(nights: Nights) -> None:
    nights.quiet(2)
    fine = nights.night().verdict
    assert fine.state == "fine"
    sent: list[str] = []
    assert send(fine, [Webhook(url_env="A")], lambda url, body: sent.append(url) or 200, env={"A": "https://x"}) == ()
    assert sent == []


def test_retention_prunes_raw_samples_first_then_runs_and_never_the_numbers(nights: Nights) -> None:
    (nights.history.root / "nights" / "20261015-030000").mkdir(parents=True)  # cut, and never gone on with
    nights.quiet(4)
    folders = sorted((nights.history.root / "nights").iterdir())
    for folder in folders:
        run = folder / "runs" / "x" / "r"
        run.mkdir(parents=True)
        (run / "samples.parquet").write_bytes(b"0" * 1000)
        (run / "measurement.json").write_bytes(b"{}")
    now = datetime(2026, 11, 20, tzinfo=UTC)
    prune(nights.history, Retention(samples_days=17, runs_days=18), now)
    raw = [(folder / "runs" / "x" / "r" / "samples.parquet").exists() for folder in folders]
    runs = [(folder / "runs").exists() for folder in folders]
    assert raw == [False, False, False, True, True] and runs == [False, False, True, True, True]
    prune(nights.history, Retention(max_gib=1e-9), now)
    assert [(folder / "runs").exists() for folder in folders] == [False, False, False, False, True]
    assert len(nights.history.nights()) == 4


def test_a_policy_file_is_read_and_a_wrong_one_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("alpha: 0.001\nmin_effects: {accept_length: 0.03}\nwebhooks: [{url_env: HOOK, shape: slack}]\n")
    settings = read_settings(path)
    assert settings.policy().min_effect("accept_length") == 0.03
    assert settings.policy().min_effect("speedup") == 0.01
    for text, message in (
        ("alpa: 1", "alpa: Extra inputs"),
        ("webhooks: [{url_env: 'https://x'}]", "webhooks.0.url_env"),
        ("a: [", "policy.yaml:1: not YAML"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_settings(path)


def test_the_policy_file_of_the_documentation_is_valid(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "nightly.md").read_text()
    (tmp_path / "policy.yaml").write_text(text.split("```yaml\n")[1].split("```")[0])
    settings = read_settings(tmp_path / "policy.yaml")
    assert settings.alpha == 1.5e-5 and settings.webhooks[1].when == ["regressed"]


def test_a_draft_with_another_config_or_other_weights_has_another_revision(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"abc")
    first = checkpoint_revision(tmp_path)
    (tmp_path / "config.json").write_text('{"a": 1}')
    second = checkpoint_revision(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"abd")
    assert len({first, second, checkpoint_revision(tmp_path)}) == 3
    snapshot = tmp_path / "snapshots" / "0123456789abcdef"
    snapshot.mkdir(parents=True)
    assert checkpoint_revision(snapshot) == "0123456789ab"


def test_a_figure_rings_the_first_night_of_a_change_and_gives_each_configuration_one_colour(nights: Nights) -> None:
    nights.quiet(5)
    nights.night(story=Story(acceptance={"3-1-4": 0.6}))
    nights.night(story=Story(acceptance={"3-1-4": 0.6}))
    figures = {drawn.name: drawn.figure for drawn in draw_nights(nights.history.nights())}
    ring = figures["accept_length"].data[-1]
    assert ring.name == "change point" and set(ring.x) == {"2026-11-06T03:00:00"}
    colors = {trace.line.color for trace in figures["speedup"].data if trace.name.startswith("3-1-4 ")}
    assert colors == {trace.line.color for trace in figures["accept_length"].data if trace.name.startswith("3-1-4 ")}
    assert len(colors) == 1
    assert {trace.line.color for trace in figures["baseline_step_ms"].data} == {BASELINE}


# --- the commands that people use in the morning


def invoke(*args: str) -> Any:
    return CliRunner().invoke(command, list(args), standalone_mode=False)


def test_install_shows_what_it_wrote_and_replaces_nothing_unasked(tmp_path: Path) -> None:
    experiment = Path(__file__).parents[3] / "experiments" / "quickstart.yaml"
    args = ["install", str(experiment), "--history", str(tmp_path / "h"), "--cron", "--to", str(tmp_path / "to")]
    result = invoke(*args)
    assert result.return_value == 0 and "Nothing is enabled" in result.output
    assert (tmp_path / "to" / "crontab").read_text().splitlines()[-1] in result.output
    assert invoke(*args).return_value == 0
    (tmp_path / "to" / "crontab").write_text("mine")
    assert "exists and differs" in str(invoke(*args).exception)


def test_status_history_accept_and_mute_say_what_they_did(nights: Nights) -> None:
    root = str(nights.history.root)
    assert "no night has ended here yet" in str(invoke("status", "--history", root).exception)
    with nights.history.locked():
        assert "the first night is running" in invoke("status", "--history", root).output
    nights.quiet(5)
    nights.night(story=Story(acceptance={"3-1-4": 0.6}))
    assert "regressed since 20261106-030000" in invoke("status", "--history", root).output
    lines = invoke("history", "--history", root, "--series", "accept length").output.splitlines()
    assert sum("accept length of 3-1-4 at concurrency 8:" in line for line in lines) == 6
    muted = invoke("mute", "--history", root, "--series", "TTFT", "--until", "2026-12-24", "--note", "network work")
    assert muted.return_value == 0
    assert invoke("mute", "--history", root, "--series", "TTFT", "--off").output == "1 mutes taken back\n"
    accepted = invoke("accept", "--history", root, "--note", "smaller draft on purpose")
    assert "accepted: accept length of 3-1-4 at concurrency 1" in accepted.output
    assert nights.night(story=Story(acceptance={"3-1-4": 0.6})).verdict.state in ("fine", "unknown")
    assert "nothing is regressed" in str(invoke("accept", "--history", root, "--note", "again").exception)
