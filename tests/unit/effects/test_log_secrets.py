"""The engine's own log holds its arguments; what of them is secret does not stay in it."""

import os
import sys
from pathlib import Path

import pytest

from sweeper.core.launch import LaunchPlan
from sweeper.core.redaction import secrets_of
from sweeper.effects.ports import reserve_port
from sweeper.effects.server import SglangLauncher, hide_in_log
from sweeper.effects.startup import Patience
from sweeper.errors import ServerError

ENGINE = """
import os, sys
print("server_args=ServerArgs(", sys.argv, os.environ["HF_TOKEN"], os.environ["HTTPS_PROXY"], ")", flush=True)
sys.exit(1)
"""


async def test_no_secret_of_its_launch_stays_in_a_servers_log(state: Path, tmp_path: Path) -> None:
    with reserve_port(holder="test") as port:
        plan = LaunchPlan(
            launch_id=f"id-{port}",
            argv=(sys.executable, "-c", ENGINE, "--api-key", "hunter22", "--admin-api-key=hunter33", "--tp", "1"),
            env={"HF_TOKEN": "hunter44", "HTTPS_PROXY": "http://me:hunter55@proxy:1"},
            gpu_ids=(),
            host="127.0.0.1",
            port=port,
            base_url=f"http://127.0.0.1:{port}",
            served_model_name="m",
            ready_timeout_s=20,
            log_path=tmp_path / "server.log",
        )
        with pytest.raises(ServerError):
            async with SglangLauncher(patience=Patience(poll_s=0.05, doomed_s=0.1)).launch(
                plan, run_id="r", owner_pid=os.getpid(), on_phase=lambda phase, detail: None
            ):
                pytest.fail("it must not become ready")
    log = plan.log_path.read_text()
    assert "hunter" not in log
    assert "--api-key', '********', '--admin-api-key=********', '--tp', '1'] ******** http://me:********@proxy:1" in log


def test_short_values_and_ordinary_words_are_no_secrets_to_look_for() -> None:
    argv = ("python", "--api-key", "abc", "--max-tokens", "1000000", "-e", "MY_TOKEN=hunter22", "--password")
    assert secrets_of(argv, {"PATH": "/usr/bin", "X_KEY": "1", "EOS_TOKEN": "</s></s>"}) == ("hunter22",)


def test_a_log_that_is_gone_or_empty_is_left_so(tmp_path: Path) -> None:
    hide_in_log(tmp_path / "none", ("hunter22",))
    (tmp_path / "empty").touch()
    hide_in_log(tmp_path / "empty", ("hunter22",))
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
