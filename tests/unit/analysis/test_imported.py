"""Results of other tools, as they write them."""

import io
import json
from typing import Any

import pytest

from sweeper.analysis.compare import compare
from sweeper.analysis.exports import bench_serving_lines
from sweeper.analysis.import_table import import_frame
from sweeper.analysis.imported import Imported, log_rows, parse_results
from sweeper.errors import ConfigError
from sweeper.present.import_view import print_imported
from sweeper.testing.runs import Model, model_run

LATENCIES = {
    f"{point}_{name}_ms": value
    for name, value in (("ttft", 80.0), ("tpot", 8.0), ("itl", 8.5), ("e2e_latency", 2000.0), ("e2el", 2000.0))
    for point in ("mean", "median", "p99")
}


def bench_serving(tag: str | None, rate: float, info: dict[str, Any], concurrency: int = 8) -> dict[str, Any]:
    return {
        "tag": tag,
        "backend": "sglang",
        "request_rate": float("inf"),
        "max_concurrency": concurrency,
        "server_info": info,
        "duration": 20.0,
        "completed": 64,
        "total_output_tokens": int(rate * 20),
        "output_throughput": rate,
        "total_throughput": rate * 2,
        "request_throughput": 3.2,
        "accept_length": 2.7 if info.get("speculative_algorithm") else None,
        **LATENCIES,
    }


SPEC = {
    "version": "0.5.23",
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
PLAIN = {"version": "0.5.23", "speculative_algorithm": None}


def one(document: object, source: str = "folder/file.json") -> Imported:
    (row,) = parse_results(json.dumps(document), source=source)
    return row


def test_bench_serving_is_named_by_what_ran_and_its_length_is_flagged() -> None:
    row = one(bench_serving(None, 300.0, SPEC))
    assert (row.tool, row.label, row.triple, row.speculative) == ("bench_serving", "3-1-4", "3-1-4", True)
    assert row.output_tok_per_s == 300 and row.ttft.p50_ms == 80 and row.rate_rps is None
    assert any("mean since its start" in remark for remark in row.remarks)
    assert one(bench_serving(None, 100.0, PLAIN)).label == "baseline"


def test_appended_lines_are_rows_of_one_file() -> None:
    text = "\n".join(json.dumps(bench_serving("a", 100.0 + i, PLAIN, concurrency=i)) for i in (1, 8))
    assert [row.concurrency for row in parse_results(text, source="x.jsonl")] == [1, 8]


def test_a_line_separator_within_an_answer_ends_no_line() -> None:
    rows = [{**bench_serving("a", 100.0, PLAIN, concurrency=i), "generated_texts": ["a\u2028b"]} for i in (1, 8)]
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    assert len(parse_results(text, source="x.jsonl")) == 2


def test_vllm_length_comes_from_counters_with_the_bonus_token() -> None:
    row = one(
        {
            "duration": 10.0,
            "completed": 40,
            "failed": 2,
            "total_output_tokens": 4000,
            "output_throughput": 400.0,
            "request_throughput": 4.0,
            "total_token_throughput": 900.0,
            "max_concurrency": 4,
            "request_rate": "inf",
            "spec_decode_num_drafts": 4000,
            "spec_decode_draft_tokens": 12000,
            "spec_decode_accepted_tokens": 6000,
            "spec_decode_acceptance_length": 1.5,
            "spec_decode_acceptance_rate": 50.0,
            **LATENCIES,
        }
    )
    assert (row.tool, row.accept_length, row.accept_rate, row.errors) == ("vllm", 2.5, 0.5, 2)
    assert row.itl.mean_ms is None, "a gap between chunks is no ITL"
    assert row.e2e.mean_ms == 2000


def test_guidellm_time_per_output_token_is_not_taken_for_tpot() -> None:
    def metric(mean: float) -> dict[str, Any]:
        return {"successful": {"mean": mean, "median": mean, "percentiles": {"p50": mean, "p95": mean * 2}}}

    row = one(
        {
            "benchmarks": [
                {
                    "config": {"strategy": {"type_": "concurrent", "streams": 16}},
                    "metrics": {
                        "output_tokens_per_second": metric(900.0),
                        "requests_per_second": metric(5.0),
                        "time_to_first_token_ms": metric(70.0),
                        "inter_token_latency_ms": metric(12.0),
                        "time_per_output_token_ms": metric(15.0),
                        "request_latency": metric(1.5),
                        "request_totals": {"successful": 50, "errored": 1},
                    },
                }
            ]
        },
        source="runs/spec/benchmarks.json",
    )
    assert (row.tool, row.label, row.concurrency) == ("guidellm", "spec", 16)
    assert (row.tpot.mean_ms, row.e2e.p50_ms, row.errors) == (12.0, 1500.0, 1)


def test_aiperf_length_is_the_pooled_one() -> None:
    row = one(
        {
            "input_config": {"loadgen": {"concurrency": 64, "request_rate": None}},
            "request_count": {"unit": "requests", "avg": 640.0},
            "output_token_throughput": {"unit": "tokens/sec", "avg": 4100.0},
            "request_latency": {"unit": "ms", "avg": 900.0, "p50": 850.0, "p99": 1500.0},
            "time_to_first_token": {"unit": "ms", "avg": 100.0, "p50": 90.0},
            "inter_token_latency": {"unit": "ms", "avg": 10.0, "p50": 9.5},
            "spec_decode_acceptance_length": {"unit": "ratio", "avg": 3.4},
            "spec_decode_token_weighted_acceptance_length": {"unit": "ratio", "avg": 2.9},
            "spec_decode_overall_draft_acceptance_rate": {"unit": "%", "avg": 63.0},
        }
    )
    assert (row.tool, row.concurrency, row.accept_length, row.accept_rate) == ("aiperf", 64, 2.9, 0.63)
    assert row.e2e.p99_ms == 1500


def test_baseline_and_repeats_give_a_speedup_with_an_interval() -> None:
    rows = [
        *(row for rate in (100.0, 101.0, 99.0) for row in [one(bench_serving(None, rate, PLAIN))]),
        *(row for rate in (150.0, 151.0, 149.0) for row in [one(bench_serving(None, rate, SPEC))]),
    ]
    table = import_frame(rows).set_index("arm")
    assert table.loc["3-1-4", "speedup"] == pytest.approx(1.5, rel=0.001)
    assert table.loc["3-1-4", "speedup_low"] > 1.4
    assert (table.loc["3-1-4", "verdict"], table.loc["baseline", "verdict"]) == ("better", "baseline")


def test_the_best_by_speed_is_neither_the_best_by_rate_nor_by_length() -> None:
    """Single measurements: speedups without an interval, so nothing is claimed."""
    rows = [one(bench_serving("baseline", 90.0, PLAIN))]
    rows += [one(bench_serving(name, rate, SPEC)) for name, rate in (("s1", 122.0), ("s5", 153.0), ("s7", 144.0))]
    table = import_frame(rows)
    best = table.sort_values("speedup", ascending=False).iloc[0]
    assert best.arm == "s5" and best.speedup == pytest.approx(1.7)
    assert set(table[~table.is_baseline].verdict) == {"undecided"}


def test_a_stated_floor_judges_single_measurements() -> None:
    """Faster alone, slower in a crowd: near the crossing nothing is claimed."""
    speeds = {1: (90.0, 150.0), 16: (1100.0, 1300.0), 32: (1880.0, 1865.0), 64: (2870.0, 2300.0)}
    rows = [
        one(bench_serving(None, rate, info, concurrency=load))
        for load, rates in speeds.items()
        for rate, info in zip(rates, (PLAIN, SPEC), strict=True)
    ]
    table = import_frame(rows, floor=1.01).set_index(["arm", "concurrency"])
    verdicts = [table.loc[("3-1-4", load), "verdict"] for load in speeds]
    assert verdicts == ["better", "better", "no difference", "worse"]


def test_one_per_cent_is_meant_as_people_say_it() -> None:
    rows = [one(bench_serving(None, rate, info)) for rate, info in ((2000.0, PLAIN), (1979.8, SPEC))]
    verdicts = [import_frame(rows, floor=floor).verdict.iloc[1] for floor in (1.01, 1.009)]
    assert verdicts == ["no difference", "worse"]


LOG = (
    "[2026-11-03 11:00:01 TP0] Decode batch{end} #running-req: {size}, #full token: 812, {length}cuda graph: True, "
    "gen throughput (token/s): {speed:.2f}, #queue-req: 0"
)


def test_a_log_of_the_engine_is_a_row_for_every_batch_size() -> None:
    lines = [
        "server_args=ServerArgs(model_path='m', speculative_num_draft_tokens=5)",
        LOG.format(end=",", size=1, length="accept len: 3.00, accept rate: 0.50, ", speed=100.0),
        LOG.format(end=",", size=6, length="accept len: 2.00, accept rate: 0.25, ", speed=300.0),
        LOG.format(end=",", size=6, length="accept len: 3.00, accept rate: 0.50, ", speed=420.0),
    ]
    single, six = parse_results("\n".join(lines), source="logs/server.log")
    assert (six.label, six.concurrency, six.output_tok_per_s, six.accept_length) == ("server", 6, 360.0, 2.5)
    assert six.accept_rate == pytest.approx((0.25 + 0.5) / 2)
    assert 1000 / (single.tpot.mean_ms or 0) == pytest.approx(100)
    assert any("whole batch" in remark for remark in six.remarks)


def test_an_older_log_gives_the_rate_of_today() -> None:
    """It divided by all draft tokens: 0.60 where 0.50 of the four drafts were accepted."""
    line = LOG.format(end=".", size=1, length="accept len: 3.00, accept rate: 0.60, ", speed=100.0)
    (row,) = log_rows(line, source="old.log", num_draft_tokens=5)
    assert row.accept_rate == pytest.approx(0.5)


def test_a_crossing_is_told_and_no_mean_over_the_loads() -> None:
    speeds = {1: (90.0, 150.0), 16: (1100.0, 1300.0), 64: (2870.0, 2300.0)}
    rows = [
        one(bench_serving(None, rate, info, concurrency=load))
        for load, rates in speeds.items()
        for rate, info in zip(rates, (PLAIN, SPEC), strict=True)
    ]
    shown = io.StringIO()
    print_imported(import_frame(rows), file=shown)
    assert "3-1-4 crosses 1 between concurrency 16 and 64, near " in shown.getvalue()


def test_the_table_shows_what_was_decided_and_by_what_it_could_be() -> None:
    speeds = {1: 149.0, 32: 99.0, 64: 80.0}
    rows = [one(bench_serving(None, 100.0, PLAIN, concurrency=load)) for load in speeds]
    rows += [one(bench_serving(None, speed, SPEC, concurrency=load)) for load, speed in speeds.items()]
    for floor, marks in ((1.01, "▲=▼"), (None, "???")):
        shown = io.StringIO()
        print_imported(import_frame(rows, floor=floor), file=shown)
        lines = shown.getvalue().splitlines()
        assert "".join(line[0] for line in lines if " 3-1-4 " in line and "×" in line) == marks
        assert any(line.startswith("? no interval: ") for line in lines) == (floor is None)


def test_without_a_baseline_there_is_no_speedup() -> None:
    table = import_frame([one(bench_serving("a", 1.0, SPEC)), one(bench_serving("b", 2.0, SPEC))])
    assert table.speedup.isna().all()
    with pytest.raises(ConfigError, match="there are a"):
        import_frame([one(bench_serving("a", 1.0, SPEC))], baseline="nobody")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"output_throughput": 1}\n{"output_thr', r"x\.json:2: not JSON"),
        ('{"what": 1}', "not a result of"),
        ("[1, 2]", "something other than objects"),
        ("[]", "holds no result"),
        ("[" * 100_000, r"x\.json:1: not JSON"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_results(text, source="x.json")


def test_an_exported_run_comes_back_with_the_same_speedups() -> None:
    run = model_run(("3-1-4",), concurrency=(1, 8), starts=1, model=Model(repeat_noise=0.002))
    rows = parse_results(bench_serving_lines(run), source="run.jsonl")
    table = import_frame(rows).set_index(["arm", "concurrency"])
    for outcome in compare(run).outcomes:
        if outcome.estimate and outcome.load == "8":
            # At 8 the run ranks its steady or whole window by its own rule; 64 requests are 8 a worker: whole.
            assert table.loc[("3-1-4", 8), "speedup"] == pytest.approx(outcome.estimate.ratio, rel=0.01)
    assert table.loc[("3-1-4", 1), "accept_length"] == pytest.approx(2.67, abs=0.01)


def test_a_speed_below_nothing_is_no_speed() -> None:
    rows = [one(bench_serving("a", -1.0, SPEC)), one(bench_serving("b", 2.0, SPEC))]
    assert [row.output_tok_per_s for row in rows] == [None, 2.0]


def without_latencies(tag: str, rate: float, length: float | None, drafts: int, load: int = 1) -> Imported:
    info = PLAIN if length is None else {**SPEC, "speculative_num_draft_tokens": drafts}
    document = {**bench_serving(tag, rate, info, concurrency=load), "accept_length": length}
    return one({key: value for key, value in document.items() if key not in LATENCIES})


def test_the_longest_acceptance_may_lose_and_its_break_even_length_says_why() -> None:
    """At one request, from speeds and lengths alone: a step takes length / speed."""
    rows = [
        without_latencies("baseline", 80.0, None, 0),
        without_latencies("short", 84.0, 1.4, 2),
        without_latencies("middle", 88.0, 1.9, 4),
        without_latencies("long", 75.0, 2.2, 6),
    ]
    table = import_frame(rows).set_index("arm")
    assert dict(table.step_time_ms.dropna()) == pytest.approx(
        {"short": 1400 / 84, "middle": 1900 / 88, "long": 2200 / 75}
    )
    assert list(table.baseline_step_time_ms.dropna()) == pytest.approx([12.5] * 3)
    assert dict(table.break_even_length.dropna()) == pytest.approx(
        {"short": 1.4 * 80 / 84, "middle": 1.9 * 80 / 88, "long": 2.2 * 80 / 75}
    )
    pays = table.accept_length > table.break_even_length
    assert [name for name in ("short", "middle", "long") if pays[name]] == ["short", "middle"]
    assert table.decode_speedup["long"] == pytest.approx(75 / 80) and table.accept_length.idxmax() == "long"
    shown = io.StringIO()
    print_imported(import_frame(rows), file=shown)
    assert "even at" in shown.getvalue() and f"{2.2 * 80 / 75:.2f}" in shown.getvalue()


def test_in_a_crowd_speeds_and_lengths_do_not_tell_what_a_step_takes() -> None:
    rows = [without_latencies("baseline", 300.0, None, 0, load=8), without_latencies("a", 400.0, 2.0, 4, load=8)]
    assert import_frame(rows).break_even_length.isna().all()


def test_where_tools_give_the_time_per_token_the_step_is_without_prefill() -> None:
    slow, fast = bench_serving("baseline", 80.0, PLAIN, concurrency=1), bench_serving("a", 120.0, SPEC, concurrency=1)
    row = import_frame([one(slow), one({**fast, "mean_tpot_ms": 5.0})]).set_index("arm").loc["a"]
    assert (row.step_time_ms, row.break_even_length) == pytest.approx((2.7 * 5.0, 2.7 * 5.0 / 8.0))


def test_the_rate_follows_from_length_and_draft_tokens_where_the_tool_gives_none() -> None:
    rates = [import_frame([without_latencies("a", 90.0, 2.5, drafts)]).accept_rate.iloc[0] for drafts in (4, 6)]
    assert rates == pytest.approx([1.5 / 3, 1.5 / 5])
