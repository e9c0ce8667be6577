import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.core.launch import LaunchPlan, ServerFailure
from sweeper.effects import ledger, startup
from sweeper.effects.ledger import Entry
from sweeper.effects.process import LAUNCH_ID_VARIABLE, identify
from sweeper.effects.startup import LogTail, Watchdog, argument, beside_another


def test_the_tail_begins_where_this_server_began_and_knows_progress_bars(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"yesterday\n")
    tail = LogTail(path)
    with path.open("ab") as log:
        log.write(b"one\nloading  0%\rloading 50%\rload")
        log.flush()
        assert tail.new_lines() == ["one", "loading  0%", "loading 50%"]
        log.write(b"ing 100%\n\xff\xfe broken\n")
        log.flush()
        assert tail.new_lines() == ["loading 100%", "\ufffd\ufffd broken"]
        log.write(b"unfinished")
    assert tail.new_lines() == []
    assert tail.all_lines()[-1] == "unfinished"
    assert "yesterday" not in tail.all_lines()


def test_of_a_flood_of_lines_only_both_ends_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "LOG_HEAD_BYTES", 20)
    monkeypatch.setattr(startup, "LOG_TAIL_BYTES", 20)
    path = tmp_path / "server.log"
    path.write_bytes(b"")
    tail = LogTail(path)
    with path.open("ab") as log:
        log.write(b"first\n" + b"flood of lines\n" * 1000 + b"the last one\n")
        log.flush()
        seen = tail.new_lines()
        assert (seen[0], seen[-1]) == ("first", "the last one") and len(seen) < 10
        assert tail.all_lines() == seen
        log.write(b"x" * 1000)
        log.flush()
        assert tail.new_lines() == ["x" * 20]
        log.write(b"y\n")
    assert tail.new_lines() == ["x" * 20 + "y"]


def test_a_log_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    tail = LogTail(tmp_path / "none")
    assert (tail.new_lines(), tail.all_lines()) == ([], [])


def test_the_watchdog_counts_from_the_last_sign_of_life() -> None:
    sid = os.getsid(0) + 10**6  # a session without members: no CPU time at all
    dog = Watchdog(stall_s=10.0, since=100.0)
    assert dog.stalled_for(50, sid, 101.0) == 0.0
    assert dog.stalled_for(50, sid, 104.0) == 3.0
    assert dog.stalled_for(51, sid, 109.0) == 0.0, "a log byte is progress"
    assert dog.stalled_for(51, sid, 120.0) == 11.0


def a_plan(*argv: str, gpu_ids: tuple[int, ...] = ()) -> LaunchPlan:
    return LaunchPlan(
        launch_id="x",
        argv=argv,
        env={},
        gpu_ids=gpu_ids,
        host="",
        port=1,
        base_url="",
        served_model_name="",
        ready_timeout_s=1,
        log_path=Path(),
    )


@pytest.mark.parametrize(
    ("failed", "gpus", "told"),
    [
        ("oom_load", (4, 5), "gpu_busy"),
        ("oom_capture", (5,), "gpu_busy"),
        ("oom_load", (6, 7), "oom_load"),
        ("crash_start", (4, 5), "crash_start"),
    ],
)
def test_out_of_memory_beside_another_server_of_ours_is_a_busy_gpu(
    state: Path, failed: str, gpus: tuple[int, ...], told: str
) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, LAUNCH_ID_VARIABLE: f"other-{os.getpid()}"},
    )
    try:
        me, server = identify(os.getpid()), identify(other.pid)
        assert me is not None and server is not None
        ledger.write_entry(
            Entry(
                launch_id=f"other-{os.getpid()}",
                run_id="night-3",
                state="launched",
                owner=me,
                launcher=me,
                gpu_uuids=(),
                gpu_ids=(5,),
                port=1,
                log_path="",
                server=server,
            )
        )
        found = beside_another(
            ServerFailure(failure_class=failed, message="out of memory", remedy="less", log_lines=()),
            a_plan(gpu_ids=gpus),
        )
        assert found.failure_class == told
        assert (f"GPU 5 also held by pid {other.pid}" in found.message) == (told == "gpu_busy")
    finally:
        other.kill()
        other.wait()


def test_flags_are_found_in_both_spellings() -> None:
    plan = a_plan("python", "--model-path", "/m", "--api-key=k", "--flag")
    assert argument(plan, "--model-path", "--model") == "/m"
    assert argument(plan, "--api-key") == "k"
    assert argument(plan, "--flag") is None
    assert argument(plan, "--other") is None
