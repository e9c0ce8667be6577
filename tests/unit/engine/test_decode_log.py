"""Decode lines of two generations of the engine."""

import pytest

from sweeper.engine.decode_log import decode_lines

OLD = [
    "[2026-01-05 10:00:00 TP0] Decode batch. #running-req: 2, #token: 700, token usage: 0.02, accept len: 1.00, "
    "accept rate: 0.20, cuda graph: True, gen throughput (token/s): 60.50, #queue-req: 0,",
    "[2026-01-05 10:00:03 TP0] Decode batch. #running-req: 2, #token: 990, token usage: 0.02, accept len: 3.00, "
    "accept rate: 0.60, cuda graph: True, gen throughput (token/s): 170.00, #queue-req: 0,",
]
NEW = [
    "[2026-10-05 10:00:00 TP0] Decode batch, #running-req: 2, #full token: 700, full token usage: 0.02, "
    "accept len: 1.00, accept rate: 0.00, cuda graph: True, gen throughput (token/s): 60.70, #queue-req: 0",
    "[2026-10-05 10:00:03 TP0] Decode batch, #running-req: 2, #full token: 990, full token usage: 0.02, "
    "accept len: 3.00, accept rate: 0.50, cuda graph: True, gen throughput (token/s): 169.80, #queue-req: 0",
]


def test_old_and_new_lines_give_the_same_length_and_rate() -> None:
    old, new = (decode_lines(lines, num_draft_tokens=5) for lines in (OLD, NEW))
    assert [(entry.accept_length, entry.accept_rate) for entry in old] == [(1.0, 0.0), (3.0, 0.5)]
    assert [(entry.accept_length, entry.accept_rate) for entry in new] == [(1.0, 0.0), (3.0, 0.5)]


@pytest.mark.parametrize("lines", [OLD, NEW])
def test_throughput_of_the_log_is_the_batchs_and_a_users_share_is_its_part(lines: list[str]) -> None:
    entry = decode_lines([line.replace("#running-req: 2", "#running-req: 16") for line in lines], num_draft_tokens=5)[1]
    assert entry.running == 16
    assert entry.tok_per_s_per_user == pytest.approx(entry.tok_per_s / 16)
    assert entry.tok_per_s == pytest.approx(170, abs=0.5)


def test_an_idle_batch_has_no_users_share() -> None:
    (entry,) = decode_lines(["Decode batch, #running-req: 0, gen throughput (token/s): 3.5"], num_draft_tokens=None)
    assert (entry.tok_per_s, entry.tok_per_s_per_user) == (3.5, None)


def test_without_speculation_there_is_no_length_and_no_rate() -> None:
    (entry,) = decode_lines(
        ["Decode batch, #running-req: 1, #token: 5, gen throughput (token/s): 50.0, #queue-req: 0"],
        num_draft_tokens=None,
    )
    assert (entry.accept_length, entry.accept_rate) == (None, None)


def test_other_lines_and_cut_lines_are_passed_over() -> None:
    assert decode_lines(["Prefill batch, #new-seq: 1", "Decode batch, #running-req: 1, #tok"], num_draft_tokens=4) == ()
