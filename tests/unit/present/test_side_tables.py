"""Latencies without ramp and tail, and by turn, in tables beside the main one."""

from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.analysis.compare import compare
from sweeper.analysis.tables import frame
from sweeper.core.result import Distribution, Metrics, SteadyLatency
from sweeper.core.run import RunData
from sweeper.core.sample import Sample, SpecCounters
from sweeper.present.markdown import render_markdown
from sweeper.present.notebook import Run, load_run
from sweeper.present.report import render_html
from sweeper.present.side_tables import side_tables
from sweeper.testing.runs import model_run
from sweeper.testing.stored import store_run


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


def test_a_notebook_has_one_row_a_request_with_its_turn(run: RunData, tmp_path: Path) -> None:
    asked = tuple(
        Sample(
            index=turn - 1,
            prompt_id="talk-1",
            category="talk",
            due_ns=0,
            send_ns=0,
            chunk_ns=(5_000_000, 25_000_000),
            chunk_tokens=(1, 4),
            end_ns=25_000_000,
            input_tokens=10 * turn,
            cached_tokens=None,
            output_tokens=5,
            finish_reason="stop",
            text="said",
            output_ids=None,
            spec=SpecCounters(verify_steps=2, correct_drafts=3, proposed_drafts=6, histogram=None),
            turn=turn,
        )
        for turn in (1, 2)
    )
    store_run(run, tmp_path, samples=asked)
    stored = load_run(tmp_path)
    table = stored.requests
    assert len(table) == 2 * len(run.measurements)
    assert set(zip(table.turn, table.input_tokens, strict=True)) == {(1, 10), (2, 20)}
    assert table.ttft_ms.eq(5).all() and table.tpot_ms.eq(5).all() and table.accept_length.eq(2.5).all()
    assert set(table.arm) == {arm.label for arm in run.plan.arms}
