"""What other tools get from a run."""

import json

import pytest

from sweeper.analysis.compare import compare
from sweeper.analysis.exports import adaptive_config, github_action_benchmark, otava_rows
from sweeper.testing.runs import Model, model_run

QUIET = Model(repeat_noise=0.002, start_noise=0.001)


def test_directions_of_the_action_benchmark_do_not_mix() -> None:
    comparison = compare(model_run(("3-1-4",), concurrency=(1,)))
    bigger = json.loads(github_action_benchmark(comparison, "bigger"))
    smaller = json.loads(github_action_benchmark(comparison, "smaller"))
    assert {entry["unit"] for entry in bigger} == {"tok/s", "x", "tokens/step"}
    assert {entry["unit"] for entry in smaller} == {"ms"}
    assert len({entry["name"] for entry in bigger}) == len(bigger)
    speedup = next(entry for entry in bigger if entry["unit"] == "x")
    assert "–" in speedup["range"]


def test_one_row_a_run_oldest_first() -> None:
    run = model_run(("3-1-4",), concurrency=(1,))
    (row,) = otava_rows([(run, compare(run))])
    assert list(row)[:2] == ["time", "commit"]
    assert row["commit"].startswith("0.5.23-ab12")
    assert row["3-1-4.1.tok_per_s"] > row["baseline.1.tok_per_s"]
    assert "baseline.1.accept_length" not in row


def test_adaptive_steps_shrink_with_the_load_and_end_at_zero() -> None:
    run = model_run(
        ("1-1-2", "3-1-4", "5-1-6"), concurrency=(1, 8, 128), model=Model(acceptance=0.5, repeat_noise=0.001)
    )
    config = adaptive_config(compare(run))
    assert list(config) == ["1", "8", "128"]
    most = [max(entry["candidate_steps"]) for entry in config.values()]
    assert most == sorted(most, reverse=True)
    assert config["128"] == {"candidate_steps": [0]}


def test_trees_alone_have_no_adaptive_configuration() -> None:
    with pytest.raises(ValueError, match="topk 1"):
        adaptive_config(compare(model_run(("5-4-16",), model=QUIET)))
