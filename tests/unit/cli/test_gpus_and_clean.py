import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.cli import run_cli
from sweeper.effects import ledger
from sweeper.effects.ledger import STATE_DIR_VARIABLE, Entry
from sweeper.effects.process import ProcessId, boot_id, identify, spawn


@pytest.fixture
def orphan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    """A server of ours whose controller and launcher are gone, in a ledger of the test's own."""
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(tmp_path / "state"))
    process = spawn(["sleep", "1000"], env={"SWEEPER_LAUNCH_ID": "o1", "PATH": os.defpath}, log_path=tmp_path / "l")
    gone = ProcessId(pid=process.pid, start_ticks=1, boot_id=boot_id())
    ledger.write_entry(
        Entry(
            launch_id="o1",
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
    assert document["ended"] == [{"launch_id": "o1", "pids": [orphan.pid], "remaining": []}]
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
