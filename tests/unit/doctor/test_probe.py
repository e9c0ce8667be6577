"""What the probe noted, put into one sentence."""

from sweeper.doctor.probe import PROBE, ProbeReport, summarise

NOTE = {"mode": "EXTEND", "rows": 9, "width": 384, "fc_width": 384, "hidden": 128, "norms": [1.0, 2.0, 3.0]}


def note(**changes: object) -> dict[str, object]:
    return {**NOTE, "first_values": [0.5], **changes}


def test_states_of_the_trained_width_are_fine_and_own_steps_are_one_state_wide() -> None:
    found = summarise([note(), note(mode="DECODE", width=128), note(mode="DRAFT_EXTEND_V2")])
    assert [(item.mode, item.fits) for item in found] == [("EXTEND", True), ("DECODE", True), ("DRAFT_EXTEND_V2", True)]
    assert "the width it was trained on" in ProbeReport(received=tuple(found)).sentence


def test_one_state_where_three_were_trained_is_named_with_both_widths() -> None:
    report = ProbeReport(received=tuple(summarise([note(width=128)])))
    assert "receives 128 values per token (extend) where it was trained on 384" in report.sentence


def test_the_longest_call_speaks_for_its_mode_and_not_a_health_request_after_it() -> None:
    calls = [note(rows=6), note(rows=64, norms=[1.0, 30.0, 40.0]), note(rows=2, norms=[9.0, 9.0, 9.0])]
    (found,) = summarise(calls)
    assert (found.calls, found.norms) == (3, (1.0, 30.0, 40.0))


def test_of_equally_long_calls_the_last_speaks() -> None:
    (found,) = summarise([note(rows=1, norms=[1.0]), note(rows=1, norms=[2.0])])
    assert found.norms == (2.0,)


def test_a_drafter_that_was_never_called_is_said_to_be_so() -> None:
    assert "never called" in ProbeReport(received=()).sentence


def test_the_engine_finds_the_probe_by_its_entry_point() -> None:
    entry = (PROBE / "sweeper_probe-1.0.dist-info" / "entry_points.txt").read_text()
    assert entry.split() == ["[sglang.srt.plugins]", "sweeper_probe", "=", "sweeper_probe:register"]
    assert "def register()" in (PROBE / "sweeper_probe.py").read_text()
