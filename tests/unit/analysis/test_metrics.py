import math

import pytest
from load_samples import counters, sample

from sweeper.analysis.metrics import distribution, steady_window_ns, summarize


def only(*samples, draft_tokens=None, concurrency=1, **more):
    return summarize(samples, draft_tokens=draft_tokens, concurrency=concurrency, **more)


def test_tokens_of_one_chunk_share_its_gap():
    metrics = only(sample((150, 1), (174, 2), (198, 4), (222, 1), (246, 3)))
    assert metrics.ttft_ms is not None and metrics.ttft_ms.mean == 150
    assert metrics.tpot_ms is not None and metrics.tpot_ms.mean == pytest.approx(96 / 10)
    assert metrics.itl_ms is not None
    assert (metrics.itl_ms.count, metrics.itl_ms.min, metrics.itl_ms.max) == (10, 6, 24)
    assert metrics.itl_ms.p50 == 8  # 6×4, 8×3, 12×2, 24×1
    assert metrics.itl_ms.mean == pytest.approx(9.6)
    assert metrics.chunk_gap_ms is not None and metrics.chunk_gap_ms.p50 == 24
    assert metrics.tok_per_s_per_user == pytest.approx(1000 / 9.6)


def test_the_first_chunks_tokens_are_no_decode_tokens():
    metrics = only(sample((100, 4), (160, 2), (220, 4)))
    assert metrics.tpot_ms is not None and metrics.tpot_ms.mean == 120 / 6
    assert metrics.decode_token_time_ms == 120 / 6


def test_the_total_alone_gives_throughput_but_no_token_times():
    metrics = only(sample((80, 1), (170, 1), (230, 1), counted=False, tokens=23))
    assert metrics.output_tok_per_s == pytest.approx(23 / 0.230)
    assert (metrics.tpot_ms, metrics.itl_ms, metrics.peak_tok_per_s) == (None, None, None)
    assert metrics.ttft_ms is not None and metrics.ttft_ms.mean == 80


def test_unknown_token_counts_give_no_throughput_at_all():
    metrics = only(sample((80, 1), (170, 1), counted=False, tokens=None))
    assert (metrics.output_tokens, metrics.output_tok_per_s) == (None, None)
    assert metrics.request_per_s == pytest.approx(1 / 0.170)


def test_failed_requests_are_counted_by_kind_and_their_tokens_are_not():
    metrics = only(
        sample((100, 1), (200, 9)),
        sample((100, 1), (150, 4), index=1, error="stall"),
        sample(index=2, error="status"),
        sample(index=3, error="status"),
    )
    assert (metrics.requests, metrics.ok, metrics.output_tokens) == (4, 1, 10)
    assert metrics.errors == {"stall": 1, "status": 2}
    assert metrics.e2e_ms is not None and metrics.e2e_ms.count == 1


def test_the_window_runs_from_the_first_send_to_the_last_token():
    metrics = only(sample((100, 1), (500, 9), send=0), sample((900, 1), (2100, 9), send=600, index=1))
    assert metrics.window_s == pytest.approx(2.1)
    assert metrics.output_tok_per_s == pytest.approx(20 / 2.1)


def test_the_peak_is_the_fullest_second_counted_from_the_first_send():
    metrics = only(sample((900, 5), (999, 5), (1000, 4), (1999, 4), (2000, 7)))
    assert metrics.peak_tok_per_s == 10


def test_percentile_99_needs_100_values():
    assert distribution([1.0] * 99).p99 is None
    assert distribution([float(i) for i in range(100)]).p99 == pytest.approx(98.01)


def test_a_distribution_of_nothing_is_nothing_and_of_one_has_no_spread():
    assert distribution([]) is None
    assert distribution([None]) is None
    assert distribution([3.0]).std is None


def test_the_steady_window_is_where_the_concurrency_was_reached():
    samples = [
        sample((100, 1), (1000, 99), send=0),
        sample((250, 1), (600, 49), send=200, index=1),
        sample((700, 1), (1500, 19), send=601, index=2),
    ]
    assert steady_window_ns(samples, 2) == (200_000_000, 1_000_000_000)
    assert steady_window_ns(samples, 3) is None
    metrics = summarize(samples, draft_tokens=None, concurrency=2)
    assert metrics.steady_output_tok_per_s == pytest.approx((99 + 50 + 1) / 0.8)


def test_acceptance_is_pooled_over_requests_and_not_a_mean_of_means():
    metrics = only(
        sample((10, 1), (20, 30), spec=counters(8, 24, 24, 0, 0, 0, 8)),
        sample((10, 1), (900, 599), spec=counters(300, 301, 900, 120, 90, 59, 31), index=1),
        sample((10, 1), (12, 4), spec=counters(1, 3, 3, 0, 0, 0, 1), index=2),
        draft_tokens=4,
    )
    spec = metrics.spec
    assert spec is not None
    assert spec.accept_length == pytest.approx(1 + 328 / 309)
    assert spec.accept_rate == pytest.approx(328 / (309 * 3))
    assert spec.accept_length_request_mean == pytest.approx((4 + 1 + 301 / 300 + 4) / 3)
    assert spec.histogram == (120, 90, 59, 40)
    assert spec.delivered_length == pytest.approx(633 / 309)
    assert spec.step_time_ms == pytest.approx((10 + 890 + 2) / 309)


def test_a_length_above_the_draft_tokens_is_neither_clipped_nor_an_error():
    short = sample((10, 1), (14, 4), spec=counters(1, 3, 3, 0, 0, 0, 1))
    metrics = only(short, draft_tokens=4)
    assert metrics.ok == 1
    assert metrics.spec is not None and metrics.spec.accept_length == 4.0
    assert short.output_tokens == 5  # more than 4: the prefill's token is in it


def test_an_engine_with_unknown_counters_gives_the_weaker_length_and_no_rate():
    spec = only(sample((1, 1), (9, 199), spec=counters(80, None)), draft_tokens=None).spec
    assert spec is not None
    assert (spec.accept_length, spec.accept_length_basis) == (2.5, "completion_tokens")
    assert (spec.accept_rate, spec.correct_drafts, spec.histogram, spec.joint) == (None, None, None, None)


def test_a_request_without_counters_beside_others_is_counted_and_adds_nothing():
    spec = only(sample((1, 1), (9, 9), spec=counters(4, 6)), sample((5, 1), index=1), draft_tokens=4).spec
    assert spec is not None
    assert (spec.requests_without_counters, spec.delivered_length) == (1, 9 / 4)


def test_no_speculation_has_no_speculation_figures():
    assert only(sample((1, 1), (9, 9))).spec is None


def test_categories_have_figures_of_their_own_but_share_the_window():
    metrics = only(sample((10, 1), (30, 4)), sample((20, 1), (60, 4), index=1, category="math"), concurrency=2)
    assert set(metrics.by_category) == {"code", "math"}
    assert metrics.by_category["math"].tpot_ms is not None
    assert metrics.by_category["math"].tpot_ms.mean == 10
    assert metrics.by_category["math"].output_tok_per_s is None


def test_a_right_answer_contains_the_expected_number_as_a_word():
    right = sample((1, 2), text="so\nAnswer: 42.")
    wrong = sample((1, 2), text="Answer: 421", index=1)
    free = sample((1, 2), text="anything", index=2)
    assert only(right, wrong, free, answers={"p0": "Answer: 42", "p1": "Answer: 42"}).accuracy == 0.5
    assert only(free).accuracy is None


def test_all_requests_failed_gives_no_figures_and_no_nan():
    metrics = only(sample(error="refused"))
    assert (metrics.ok, metrics.window_s, metrics.output_tok_per_s, metrics.ttft_ms) == (0, 0.0, None, None)
    assert not any(isinstance(value, float) and math.isnan(value) for value in (metrics.window_s,))


def test_batch_and_user_rates_are_two_figures():
    samples = [sample((100, 1), (5100, 400), send=0, index=i) for i in range(8)]
    metrics = summarize(samples, draft_tokens=None, concurrency=8)
    assert metrics.output_tok_per_s == pytest.approx(8 * 401 / 5.1)
    assert metrics.tok_per_s_per_user == pytest.approx(400 / 5.0)
