"""Parts of the dashboard: filters, journals, logs, what is kept."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest

from sweeper.engine.log import Pace, pace_of
from sweeper.present.dashboard import logs
from sweeper.present.dashboard.filters import Filter
from sweeper.present.dashboard.journal import Journal, RunNow
from sweeper.present.dashboard.kept import Kept
from sweeper.present.dashboard.render import duration, sparkline
from sweeper.store import layout
from sweeper.testing.runs import model_run

PLAN = model_run(("3-1-4",), concurrency=(1, 8), starts=1, repeats=2).plan
BEGAN = datetime(2026, 11, 28, 21, tzinfo=UTC)


def measured(trial: int = 0, **changes: object) -> dict[str, object]:
    found = PLAN.trials[trial]
    event = {"at": BEGAN.isoformat(), "kind": "measured", "trial_id": found.trial_id, "arm_id": found.arm_id}
    return {**event, "start": 0, "repeat": 0, "output_tok_per_s": 90.0, "accept_length": None, **changes}


@pytest.mark.parametrize("text", ["-1", "0", "x", "1e9", "٣", "99999999999"])
def test_a_filter_takes_nonsense_as_not_asked(text: str) -> None:
    assert Filter.parse({"page": text, "sort": text, "other": text}) == Filter()


def test_a_filter_survives_its_own_address() -> None:
    from urllib.parse import parse_qsl

    chosen = Filter(topk="4", find="a&b=c d", sort="tok", page=3)
    assert Filter.parse(dict(parse_qsl(chosen.query()[1:]))) == chosen
    assert Filter().query() == ""


def test_a_journal_is_read_line_by_line_as_it_grows(tmp_path: Path) -> None:
    file, journal = tmp_path / layout.EVENTS, Journal(tmp_path)
    assert list(journal.new_events()) == []
    file.write_text('{"kind": "a"}\n{"kind": ')
    assert [event["kind"] for event in journal.new_events()] == ["a"]
    with file.open("a") as rest:
        rest.write('"b"}\nnot json\n[1]\n{"kind": "c"}\n')
    assert [event["kind"] for event in journal.new_events()] == ["b", "c"]
    assert list(journal.new_events()) == []


def test_a_measurement_made_again_counts_once() -> None:
    now = RunNow(plan=PLAN)
    for event in (measured(), measured(output_tok_per_s=80.0), measured(repeat=1)):
        now.take(event)
    assert (now.measured, now.total) == (2, 12)
    assert now.windows[PLAN.trials[0].trial_id][0, 0].tok_per_s == 80.0


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"kind": "measured"},
        measured(arm_id="unknown"),
        measured(start="x"),
        {"at": "never", "kind": "run_ended", "interrupted": False},
        {"at": BEGAN.isoformat(), "kind": "trial_ended", "result": None},
    ],
)
def test_events_of_another_shape_change_nothing(event: dict[str, object]) -> None:
    now = RunNow(plan=PLAN)
    now.take(event)
    assert (now.measured, now.over, now.ended) == (0, False, {})


def test_time_to_go_follows_the_pace_since_the_run_was_resumed() -> None:
    now = RunNow(plan=PLAN)
    started = {"kind": "run_started", "resumed": 0, "estimate_s": 500.0}
    now.take({**started, "at": (BEGAN - timedelta(hours=9)).isoformat()})
    assert now.eta_s(BEGAN) == 500.0
    now.take(measured())
    now.take({**started, "at": BEGAN.isoformat(), "resumed": 1})
    now.take(measured(repeat=1))
    now.take(measured(trial=1))
    assert now.eta_s(BEGAN + timedelta(seconds=60)) == pytest.approx(9 * 30)


def test_a_log_is_read_in_windows_of_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_bytes(b"".join(b"line %05d of the log\n" % number for number in range(10_000)))
    begin, seen = 0, []
    while begin < file.stat().st_size:
        window = logs.window(file, begin)
        assert window.begin == begin
        seen += [line.text for line in window.lines]
        begin = window.end
    assert seen == [f"line {number:05d} of the log" for number in range(10_000)]
    assert logs.window(file, None).lines[-1].text == "line 09999 of the log"
    middle = logs.window(file, 12_345).lines[0]
    assert middle.text.startswith("line ") and logs.window(file, middle.offset).lines[0] == middle
    assert [line.text for line in logs.search(file, "LINE 00042").lines] == ["line 00042 of the log"]


def test_a_log_is_found_at_a_moment_and_cleaned(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    stamp = BEGAN.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    file.write_text(f"noise\n[1999-01-01 00:00:00] old\n[{stamp}] \x1b[31mthere\x07\n")
    offset = logs.offset_at(file, BEGAN)
    assert offset is not None and logs.window(file, offset).lines[0].text == f"[{stamp}] there"
    assert logs.offset_at(file, BEGAN + timedelta(days=1)) is None
    assert logs.tail(tmp_path / "none.log") == ()


def test_slow_answers_are_made_once_and_remade_when_their_files_change() -> None:
    kept, made, going_on = Kept[int]("test", room=10), [], Event()

    def slow() -> int:
        assert going_on.wait(10)
        made.append(1)
        return len(made)

    assert kept.get("a", ((1, 1),), slow, patience_s=0.0) is None
    going_on.set()
    assert kept.get("a", ((1, 1),), slow) == 1
    assert kept.get("a", ((1, 1),), slow) == 1
    going_on.clear()
    assert kept.get("a", ((2, 2),), slow, patience_s=0.0) == 1
    going_on.set()
    assert kept.get("a", ((2, 2),), slow) == 2
    kept.close()


def test_what_is_kept_has_bounds_and_failures_are_told() -> None:
    kept = Kept[int]("test", room=10)
    made: list[str] = []

    def make(name: str) -> int:
        made.append(name)
        return len(made)

    for name in ("a", "b", "c", "a"):
        kept.get(name, (), lambda name=name: make(name), weight=6)  # type: ignore[misc]
    assert made == ["a", "b", "c", "a"]
    with pytest.raises(ZeroDivisionError):
        kept.get("bad", (), lambda: 1 // 0)
    kept.close()


def test_times_and_courses_in_words() -> None:
    assert [duration(value) for value in (None, 5, 300, 7500)] == ["unknown", "5 s", "5 min", "2 h 05 min"]
    assert sparkline([1, 2, 3]) == "▁▅█" and sparkline([]) == "" and sparkline([2, 2]) == "▄▄"


def test_the_engines_own_pace_is_read_from_its_log() -> None:
    line = "Decode batch, #running-req: 3, #token: 212, {}gen throughput (token/s): 64.12, #queue-req: 0"
    speculative = pace_of(line.format("accept len: 3.24, accept rate: 0.75, cuda graph: False, "))
    assert speculative == Pace(tok_per_s=64.12, running=3, accept_length=3.24)
    assert pace_of(line.format("cuda graph: True, ")) == Pace(tok_per_s=64.12, running=3, accept_length=None)
    assert pace_of("[2026-11-29 20:56:02] Prefill batch, #new-seq: 1") is None
