from hypothesis import given
from hypothesis import strategies as st

from sweeper.engine.failures import Context, diagnose
from sweeper.engine.log import FIRED_UP, Progress, clean_line, phase_of, split_lines

STORY = (
    ("Init torch distributed begin.", "loading"),
    ("Load weight begin. avail mem=70.0 GB", "loading"),
    ("Capture target verify CUDA graph begin. backend=full, bs=[1, 2]", "capturing"),
    ("Load weight begin. avail mem=60.0 GB", "capturing"),
    ("INFO:     Application startup complete.", "warming"),
    (FIRED_UP, "ready"),
)


def test_phases_go_forward_only() -> None:
    progress = Progress()
    for line, phase in STORY:
        progress = progress.after([f"[2026-01-01 00:00:00 TP0] {line}"])
        assert progress.phase == phase


def test_the_resolved_arguments_say_nothing_about_progress() -> None:
    assert phase_of(f"server_args=ServerArgs(note='{FIRED_UP} Load weight begin')") is None


def test_progress_bars_are_lines_of_their_own() -> None:
    text = "loading shards:   0% Completed | 0/4\rloading shards:  50% Completed | 2/4\r\nCapturing batches (bs=16 x)\n"
    lines = split_lines(text)
    assert len(lines) == 3
    assert Progress().after(lines[:2]).detail == "50% Completed | 2/4"
    assert Progress().after(lines) == Progress(phase="capturing", detail="bs=16")


def test_a_lost_server_is_seen_before_it_ends() -> None:
    assert not Progress().after(["Decode batch, #running-req: 2"]).doomed
    for line in (
        "Scheduler hit an exception: Traceback (most recent call last):",
        "Subprocess scheduler_1 (pid=5) crashed with exit code -6. Triggering SIGQUIT",
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 1)",
    ):
        assert Progress().after([line]).doomed


def test_terminal_escapes_and_controls_do_not_survive() -> None:
    assert clean_line("\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07 \x00\u202ertl") == "red link rtl"
    assert len(clean_line("x" * 5000)) == 400


@given(st.lists(st.text(max_size=300), max_size=40), st.sampled_from([None, 0, 1, 2, -9]), st.booleans())
def test_no_log_breaks_the_diagnosis(lines: list[str], exit_code: int | None, ready: bool) -> None:
    failure = diagnose(lines, Context(exit_code=exit_code, ready=ready))
    assert failure.message and len(failure.log_lines) <= 20
    assert all(len(line) <= 400 and "\x1b" not in line for line in failure.log_lines)
