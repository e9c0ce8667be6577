from itertools import pairwise

import pytest

from sweeper.core.trial import LoadPoint
from sweeper.execution.arrivals import due_offsets_s, worker_delay_s


def test_a_closed_loop_has_no_schedule():
    assert due_offsets_s(LoadPoint(concurrency=4), 10, seed=1) is None


def test_constant_arrivals_are_even():
    point = LoadPoint(concurrency=4, arrival="constant", rate_rps=4.0)
    assert due_offsets_s(point, 5, seed=1) == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_poisson_arrivals_have_the_rate_and_the_spread_of_their_kind_and_are_seeded():
    point = LoadPoint(concurrency=4, arrival="poisson", rate_rps=50.0)
    offsets = due_offsets_s(point, 20_001, seed=7)
    assert offsets is not None
    gaps = [after - before for before, after in pairwise(offsets)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(0.02, rel=0.03)
    assert spread / mean == pytest.approx(1.0, rel=0.05)
    assert offsets == due_offsets_s(point, 20_001, seed=7) != due_offsets_s(point, 20_001, seed=8)


def test_bursts_come_all_at_once_at_the_mean_rate():
    point = LoadPoint(concurrency=3, arrival="burst", rate_rps=6.0)
    assert due_offsets_s(point, 7, seed=1) == [0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 1.0]


def test_a_ramp_starts_slowly_and_reaches_the_rate():
    point = LoadPoint(concurrency=3, arrival="constant", rate_rps=10.0, ramp_s=4.0)
    offsets = due_offsets_s(point, 60, seed=1)
    assert offsets is not None
    assert sum(offset < 2.0 for offset in offsets) == pytest.approx(5, abs=1)  # a quarter of the ramp's 20
    assert sum(offset < 4.0 for offset in offsets) == pytest.approx(20, abs=1)
    late = [offset for offset in offsets if offset > 4.0]
    assert late[1] - late[0] == pytest.approx(0.1)


def test_the_workers_of_a_ramped_closed_loop_start_one_after_the_other():
    point = LoadPoint(concurrency=4, ramp_s=8.0)
    assert [worker_delay_s(point, worker) for worker in range(4)] == [0.0, 2.0, 4.0, 6.0]


def test_the_first_wave_of_a_closed_loop_is_no_single_burst():
    assert worker_delay_s(LoadPoint(concurrency=64), 63) == pytest.approx(0.0126)
