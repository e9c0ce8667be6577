"""Latencies without ramp and tail, and by turn, in tables beside the main one."""

from dataclasses import replace

import pytest

from sweeper.analysis.compare import compare
from sweeper.analysis.tables import frame
from sweeper.core.result import Distribution, Metrics, SteadyLatency
from sweeper.core.run import RunData
from sweeper.present.markdown import render_markdown
from sweeper.present.notebook import Run
from sweeper.present.report import render_html
from sweeper.present.side_tables import side_tables
from sweeper.testing.runs import model_run


def scaled(values: Distribution | None, by: float) -> Distribution | None:
    if values is None:
        return None
    p99 = None if values.p99 is None else values.p99 * by
    return replace(values, mean=values.mean * by, p50=values.p50 * by, p99=p99)


def with_turns(metrics: Metrics) -> Metrics:
    first = replace(metrics, by_category={}, requests=40)
    second = replace(first, requests=38, ttft_ms=scaled(metrics.ttft_ms, 0.5), input_len=scaled(metrics.input_len, 3))
    steady = SteadyLatency(
        window_s=1.0,
        requests=30,
        ttft_ms=scaled(metrics.ttft_ms, 0.9),
        tpot_ms=metrics.tpot_ms,
        itl_ms=metrics.itl_ms,
        e2e_ms=metrics.e2e_ms,
    )
    return replace(metrics, by_turn=(first, second), steady=steady)


@pytest.fixture
def run() -> RunData:
    made = model_run(concurrency=(1, 8), repeats=2)
    measured = tuple(replace(one, metrics=with_turns(one.metrics)) for one in made.measurements)
    return replace(made, measurements=measured)


def test_a_run_without_them_has_no_such_tables() -> None:
    assert side_tables(compare(model_run(concurrency=(1,), repeats=2))) == ()


def test_steady_latencies_stand_beside_those_of_the_whole_run(run: RunData) -> None:
    steady, _ = side_tables(compare(run))
    assert {row[1] for row in steady.rows} == {"concurrency 1", "concurrency 8"}
    table = frame(run)
    assert (table.steady_ttft_ms_p50 / table.ttft_ms_p50).round(6).eq(0.9).all()
    assert table.steady_tpot_ms_mean.eq(table.tpot_ms_mean).all()


def test_steady_latency_is_missing_as_soon_as_one_measurement_has_none(run: RunData) -> None:
    first = replace(run.measurements[0], metrics=replace(run.measurements[0].metrics, steady=None))
    table = frame(replace(run, measurements=(first, *run.measurements[1:])))
    assert table.steady_ttft_ms_p50.isna().sum() == 1


def test_every_turn_has_a_row_of_its_own_in_the_report_and_in_the_table(run: RunData) -> None:
    turns = Run(run).turns
    assert len(turns) == 2 * len(frame(run))
    second = turns[turns.turn == 2].reset_index()
    first = turns[turns.turn == 1].reset_index()
    assert (second.ttft_ms_p50 / first.ttft_ms_p50).round(6).eq(0.5).all()
    assert (second.requests / first.requests == 38 / 40).all()
    assert (second.input_tokens_mean > first.input_tokens_mean).all()
    assert "By turn of the conversations" in render_markdown(run)


def test_the_report_shows_both_tables(run: RunData) -> None:
    html = render_html(run)
    assert 'id="turns"' in html and 'id="steady"' in html
