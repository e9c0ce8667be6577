import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.cli import clean, gpus, run_cli
from sweeper.effects import ledger
from sweeper.effects.gpu import Gpu, Inventory, describe_holder
from sweeper.effects.ledger import STATE_DIR_VARIABLE, Entry
from sweeper.effects.process import ProcessId, boot_id, identify, spawn
from sweeper.testing.gpus import FakeGpus, fake_gpu

LAUNCH_ID = f"o1-{os.getpid()}"
"""Processes are found by it: the tests running beside this one have others."""


@pytest.fixture
def orphan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    """A server of ours whose controller and launcher are gone, in a ledger of the test's own."""
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(tmp_path / "state"))
    process = spawn(
        ["sleep", "1000"], env={"SWEEPER_LAUNCH_ID": LAUNCH_ID, "PATH": os.defpath}, log_path=tmp_path / "l"
    )
    gone = ProcessId(pid=process.pid, start_ticks=1, boot_id=boot_id())
    ledger.write_entry(
        Entry(
            launch_id=LAUNCH_ID,
            run_id="night-3",
            state="launched",
            owner=gone,
            launcher=gone,
            gpu_uuids=(),
            gpu_ids=(),
            port=30100,
            log_path=str(tmp_path / "l"),
            server=identify(process.pid),
        )
    )
    yield process
    process.kill()
    process.wait()


def test_dry_run_names_what_would_end_and_ends_nothing(
    orphan: "subprocess.Popen[bytes]", capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["clean", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "server of run night-3 on CPU, port 30100: left over" in out
    assert "would end 1 process(es) of run night-3" in out
    assert orphan.poll() is None and len(ledger.read_entries()) == 1


def test_clean_ends_the_leftover_and_says_so_as_json(
    orphan: "subprocess.Popen[bytes]", capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["clean", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ended"] == [{"launch_id": LAUNCH_ID, "pids": [orphan.pid], "remaining": []}]
    assert orphan.wait(10) == -15
    assert ledger.read_entries() == ()


def test_gpus_works_without_nvml_and_shows_our_servers(
    orphan: "subprocess.Popen[bytes]", capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["gpus", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["problem"] is None or "NVML" in document["problem"]
    assert document["servers"][0]["pids"] == [orphan.pid]
    assert document["servers"][0]["left_over"] is True


@pytest.mark.parametrize("argv", [["clean", "--force"], ["clean", "--gpu", "0"]])
def test_force_and_gpu_go_together(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(argv) == 2
    assert "--force needs --gpu N" in capsys.readouterr().err


class Stranger:
    """A process that is not ours, shown as holding GPU 1."""

    def __init__(self, tmp_path: Path) -> None:
        command = [
            sys.executable,
            "-c",
            "print('\x1b[2J'); import time; time.sleep(1000)",
            "--api-key",
            "sk-hidden-0123456789abcdef",
        ]
        self.process = spawn(command, env={"PATH": os.defpath}, log_path=tmp_path / "stranger.log")
        self.gpus = FakeGpus([Inventory(gpus=(fake_gpu(0), self.held()), driver="580.1")])

    def held(self) -> Gpu:
        return fake_gpu(1, used_mib=9000, holders=(describe_holder(self.process.pid, 8 << 30),))


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stranger]:
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(tmp_path / "state"))
    found = Stranger(tmp_path)
    monkeypatch.setattr(clean, "NvmlGpus", lambda: found.gpus)
    monkeypatch.setattr(gpus, "NvmlGpus", lambda: found.gpus)
    yield found
    found.process.kill()
    found.process.wait()


def test_a_foreign_holder_is_listed_and_left_alone(stranger: Stranger, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["clean"]) == 0
    out = capsys.readouterr().out
    assert f"foreign, left alone: GPU 1: pid {stranger.process.pid}" in out
    assert stranger.process.poll() is None


def test_holders_are_shown_without_their_secrets_and_escapes(
    stranger: Stranger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["gpus"]) == 0
    out = capsys.readouterr().out
    assert f"pid {stranger.process.pid}" in out and "foreign" in out and "8.8 GiB of 140.4 GiB" in out
    assert "sk-hidden" not in out and "\x1b" not in out


def test_gpus_are_shown_without_a_ledger_and_nobody_is_called_foreign(
    stranger: Stranger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder can be made here")
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(tmp_path / "file" / "state"))
    assert run_cli(["gpus"]) == 0
    out = capsys.readouterr().out
    assert "what is ours cannot be told" in out and "cannot be kept here: Not a directory" in out
    assert f"pid {stranger.process.pid}" in out and "ours or foreign: not known" in out
    assert run_cli(["gpus", "--json"]) == 0
    assert "cannot be kept here" in json.loads(capsys.readouterr().out)["ledger_problem"]


def test_force_says_whom_it_would_end_and_then_ends_exactly_that(
    stranger: Stranger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["clean", "--force", "--gpu", "1", "--dry-run"]) == 0
    assert f"would end (forced) pid {stranger.process.pid}" in capsys.readouterr().out
    assert stranger.process.poll() is None
    stranger.gpus.script = [*stranger.gpus.script, Inventory(gpus=(fake_gpu(0), fake_gpu(1)), driver="580.1")]
    stranger.gpus.reads = 0
    assert run_cli(["clean", "--force", "--gpu", "1"]) == 0
    assert f"ended (forced) pid {stranger.process.pid}" in capsys.readouterr().out
    assert stranger.process.wait(10) == -15


def test_force_on_an_unknown_gpu_is_one_line_and_ends_nothing(
    stranger: Stranger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["clean", "--force", "--gpu", "7"]) == 2
    assert "GPU 7 is not on this node (GPUs here: 0, 1)" in capsys.readouterr().err
    assert stranger.process.poll() is None
