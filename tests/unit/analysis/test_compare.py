"""From a whole run to winners and sentences."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.analysis.chains import chain_families, chain_lines
from sweeper.analysis.compare import compare
from sweeper.analysis.tables import COLUMNS, frame
from sweeper.analysis.verdict import headline
from sweeper.core.result import Failure, Mark
from sweeper.core.run import RunData
from sweeper.present.report import render_html
from sweeper.present.terminal import print_run
from sweeper.testing.runs import Model, Story, model_run

QUIET = Model(repeat_noise=0.002, start_noise=0.001)


def with_marks(run: RunData, label: str, load: int, mark: Mark) -> RunData:
    """The run with `mark` on every measurement of one trial."""
    arm = next(arm for arm in run.plan.arms if arm.label == label)
    trial = next(t for t in run.plan.trials if t.arm_id == arm.arm_id and t.load.concurrency == load)
    marked = tuple(
        replace(entry, marks=(mark,)) if entry.trial_id == trial.trial_id else entry for entry in run.measurements
    )
    return replace(run, measurements=marked)


def winner_labels(run: RunData) -> dict[str, str]:
    return {winner.load: winner.arm.label for winner in compare(run).winners}


def test_the_best_configuration_differs_by_load() -> None:
    assert winner_labels(model_run(model=QUIET)) == {"1": "5-1-6", "8": "3-1-4", "32": "3-1-4"}


def test_two_names_for_the_same_thing_are_no_difference() -> None:
    run = model_run(("1-1-2",), model=Model(acceptance=0, draft_cost=0, verify_cost=0))
    comparison = compare(run)
    assert {entry.standing for entry in comparison.outcomes} == {"baseline", "no difference"}
    assert {winner.arm.label for winner in comparison.winners} == {"baseline"}
    assert headline(comparison).startswith("No difference")


def test_a_losing_run_says_leave_it_off() -> None:
    run = model_run(model=Model(acceptance=0.2), concurrency=(8, 32))
    assert headline(compare(run)).startswith("Leave speculation off")


def test_headline_leads_with_the_best_and_says_where_to_stop() -> None:
    text = headline(compare(model_run(("5-4-16",), model=QUIET, concurrency=(1, 8, 32))))
    assert text.startswith("5-4-16 is 2.0")
    assert "turn speculation off there" in text
    assert "between 8 and 32" in text


def test_unranked_measurements_are_left_out_with_their_reason() -> None:
    run = with_marks(model_run(model=QUIET), "5-1-6", 1, Mark(code="loops", message="outputs repeat", ranked=False))
    comparison = compare(run)
    out = next(entry for entry in comparison.outcomes if entry.arm.label == "5-1-6" and entry.load == "1")
    assert out.numbers is None and out.estimate is None
    assert out.excluded == ("start 1, repeats 1, 2, 3, 4; start 2, repeats 1, 2, 3, 4: outputs repeat",)
    assert winner_labels(run)["1"] == "3-1-4"


def test_a_warm_prefix_cache_cannot_win() -> None:
    """The second point of a ladder ran on a warm cache: the winner comes from the valid ones."""
    mark = Mark(code="prompt_cache", message="99.0 % of the prompt tokens came from the cache", ranked=False)
    run = with_marks(model_run(("3-1-4", "5-1-6"), model=QUIET, concurrency=(1,)), "5-1-6", 1, mark)
    assert winner_labels(run) == {"1": "3-1-4"}


def test_a_generator_at_its_limit_is_not_ranked() -> None:
    run = model_run(model=QUIET)
    busy = replace(run.measurements[0].health, bottleneck="its core was busy")
    run = replace(run, measurements=tuple(replace(entry, health=busy) for entry in run.measurements))
    assert compare(run).winners == ()
    assert headline(compare(run)) == (
        "No verdict: no load point has a ranked baseline to compare with (baseline: start 1, repeats 1, 2, 3, 4; start "
        "2, repeats 1, 2, 3, 4: the load generator set the pace: its core was busy)."
    )


def test_a_baseline_that_failed_is_why_there_is_no_verdict() -> None:
    failure = Failure(failure_class="bad_argument", message="bad launch argument --old", remedy="remove it")
    run = model_run(("3-1-4",), concurrency=(1,), story=Story(failures={"baseline": failure}))
    assert headline(compare(run)).endswith("compare with (baseline: bad_argument: bad launch argument --old).")


def test_failures_keep_their_row_and_their_class() -> None:
    failure = Failure(failure_class="oom_capture", message="no memory left", remedy="lower it")
    comparison = compare(model_run(story=Story(failures={"5-4-16": failure})))
    failed = [entry for entry in comparison.outcomes if entry.arm.label == "5-4-16"]
    assert {entry.state for entry in failed} == {"failed"}
    assert failed[0].reason == "oom_capture: no memory left"


def test_ties_go_to_the_lower_tpot_then_to_fewer_draft_tokens() -> None:
    run = model_run(("3-1-4", "5-1-6"), concurrency=(1,), model=Model(repeat_noise=0.03, start_noise=0.02))
    (winner,) = compare(run).winners
    assert winner.tied_with and winner.arm.label in ("3-1-4", "5-1-6")
    assert {winner.arm.label, *winner.tied_with} == {"3-1-4", "5-1-6"}


def with_effective(run: RunData, *, raw: dict[str, object] | None = None, **arm: object) -> RunData:
    """The run with other resolved values in its speculative servers: attributes, and raw server arguments."""
    changed = tuple(
        replace(entry, effective=replace(entry.effective, raw={**entry.effective.raw, **(raw or {})}, **arm))
        if entry.effective.algorithm
        else entry
        for entry in run.measurements
    )
    return replace(run, measurements=changed)


def test_above_the_smaller_running_cap_nothing_was_compared_and_nobody_wins() -> None:
    run = with_effective(model_run(model=QUIET, concurrency=(8, 96, 128)), max_running_requests=40)
    comparison = compare(run)
    standings = {entry.load: entry.standing for entry in comparison.outcomes if entry.arm.label == "3-1-4"}
    assert standings == {"8": "better", "96": "not compared", "128": "not compared"}
    refused = next(entry for entry in comparison.outcomes if entry.load == "128" and not entry.arm.is_baseline)
    assert "queue-limited, not comparable" in refused.reason
    assert winner_labels(run) == {"8": "3-1-4"}
    assert headline(comparison).endswith("; nothing comparable was measured at concurrency 96 and 128.")
    assert "speculation off" not in headline(comparison)


def test_a_load_point_whose_only_arm_is_excluded_has_no_winner() -> None:
    mark = Mark(code="loops", message="outputs repeat", ranked=False)
    run = with_marks(model_run(("3-1-4",), model=QUIET, concurrency=(1, 8)), "3-1-4", 8, mark)
    assert winner_labels(run) == {"1": "3-1-4"}
    assert "nothing comparable was measured at concurrency 8" in headline(compare(run))


def test_a_run_in_which_nothing_was_comparable_has_no_winner_and_no_command() -> None:
    run = with_effective(model_run(model=QUIET), raw={"attention_backend": "triton"})
    comparison = compare(run)
    assert comparison.winners == ()
    assert headline(comparison).startswith("Nothing could be compared with the baseline")
    assert "To run at" not in printed(run)


def test_a_baseline_with_another_cache_type_is_shown_only_with_that_remark() -> None:
    comparison = compare(with_effective(model_run(model=QUIET), raw={"kv_cache_dtype": "fp8_e4m3"}))
    arms = [entry for entry in comparison.outcomes if not entry.arm.is_baseline]
    assert all("rerun the baseline with kv_cache_dtype=fp8_e4m3" in entry.reason for entry in arms)
    assert {(entry.standing, entry.estimate, entry.decomposition) for entry in arms} == {("not compared", None, None)}
    assert all(entry.numbers for entry in arms)


def test_the_warning_about_one_rank_stands_beside_another_inequality() -> None:
    run = with_effective(
        model_run(("3-1-4",), model=QUIET, concurrency=(32,)), max_running_requests=48, dp_size=8, raw={"page_size": 3}
    )
    (arm,) = (entry for entry in compare(run).outcomes if not entry.arm.is_baseline)
    assert "page_size" in arm.reason
    assert any("one rank runs at most 6 requests" in remark for remark in arm.remarks)


def test_soft_marks_are_told_once_an_arm_and_load_point_in_terminal_and_report() -> None:
    run = model_run(("3-1-4",), model=QUIET, concurrency=(1, 8))
    run = with_marks(run, "3-1-4", 8, Mark(code="cache-not-flushed", message="the cache <was> not emptied"))
    first = run.measurements[0]
    slow = Mark(code="throttled", message="the GPU was throttled: heat")
    run = replace(run, measurements=(replace(first, marks=(slow,)), *run.measurements[1:]))
    told = {(entry.arm.label, entry.load): entry.remarks for entry in compare(run).outcomes if entry.remarks}
    assert told == {
        ("3-1-4", "8"): ("the cache <was> not emptied",),
        ("baseline", "1"): ("the GPU was throttled: heat (1 of 8 measurements)",),
    }
    assert "3-1-4: the cache <was> not emptied" in printed(run)
    assert "the cache &lt;was&gt; not emptied" in render_html(run)
    assert winner_labels(run)["8"] == "3-1-4"


def with_algorithm(run: RunData, label: str, algorithm: str) -> RunData:
    arms = []
    for arm in run.plan.arms:
        spec = arm.server.spec
        if arm.label == label and spec:
            arm = replace(arm, server=replace(arm.server, spec=replace(spec, algorithm=algorithm)))
        arms.append(arm)
    return replace(run, plan=replace(run.plan, arms=tuple(arms)))


def test_chains_are_held_against_shorter_ones_of_their_own_algorithm_only() -> None:
    run = model_run(("3-1-4", "5-1-6"), model=QUIET, concurrency=(1,), story=Story(acceptance={"5-1-6": 0.3}))
    falls = "falls although the chain is longer"
    assert any(falls in remark for entry in compare(run).outcomes for remark in entry.remarks)
    other = with_algorithm(run, "5-1-6", "STANDALONE")
    assert not any(falls in remark for entry in compare(other).outcomes for remark in entry.remarks)


def test_the_curve_of_chain_lengths_is_one_for_each_algorithm() -> None:
    run = model_run(("3-1-4", "5-1-6"), model=QUIET, concurrency=(1,))
    assert [list(family.lengths) for family in chain_families(compare(run))] == [[3, 5]]
    other = with_algorithm(run, "3-1-4", "EAGLE")
    assert [list(family.lengths) for family in chain_families(compare(other))] == [[3], [5]]


def test_the_error_of_a_chains_estimate_has_a_true_minus() -> None:
    run = model_run(("3-1-4", "5-1-6"), model=QUIET, concurrency=(1,), story=Story(acceptance={"3-1-4": 0.95}))
    (line,) = chain_lines(compare(run))
    assert re.search(r"error −\d\.\d\d\)", line)


def printed(run: RunData) -> str:
    out = io.StringIO()
    print_run(run, file=out)
    return out.getvalue()


def test_speculation_that_does_not_engage_is_named() -> None:
    run = model_run(("3-1-4",), story=Story(acceptance={"3-1-4": 0.02}))
    arm = next(entry for entry in compare(run).outcomes if not entry.arm.is_baseline)
    assert any("not engaging" in remark for remark in arm.remarks)
    mark = Mark(code="not-engaging", message="speculation is not engaging: accept length 1.02 over 900 steps")
    marked = with_marks(run, "3-1-4", 8, mark)
    told = compare(marked).outcome(arm.arm.arm_id, "8")
    assert told is not None and [remark for remark in told.remarks if "not engaging" in remark] == [mark.message]


def test_few_requests_a_worker_rank_the_steady_window() -> None:
    run = model_run(concurrency=(1, 32))  # 64 requests: 64 a worker, and 2
    chosen = {entry.load: entry.numbers.steady for entry in compare(run).outcomes if entry.numbers}
    assert chosen == {"1": False, "32": True}
    for row in frame(run).to_dict("records"):
        assert row["steady_tok_per_s"] == pytest.approx(row["whole_tok_per_s"] * 1.04), "as the model has it"
        assert row["output_tok_per_s"] == row[f"{row['window']}_tok_per_s"]


def test_categories_have_their_own_intervals_and_a_geometric_mean() -> None:
    arm = next(entry for entry in compare(model_run(model=QUIET)).outcomes if not entry.arm.is_baseline)
    assert set(arm.categories) == {"completion", "edit", "explain"}
    product = 1.0
    for estimate in arm.categories.values():
        assert estimate.low is not None and estimate.low < estimate.ratio
        product *= estimate.ratio
    assert arm.category_mean is not None
    assert arm.category_mean.ratio == pytest.approx(product ** (1 / 3))


def test_a_single_pass_reports_the_drift_of_its_baseline() -> None:
    comparison = compare(model_run(starts=1))
    assert {drift.load for drift in comparison.drifts} == {"1", "8", "32"}
    assert "within one server start" in headline(comparison)


def test_an_unfinished_run_gives_what_is_known() -> None:
    run = model_run(model=QUIET)
    half = replace(run, results=(), measurements=run.measurements[:30], finished=False)
    states = {entry.state for entry in compare(half).outcomes}
    assert states == {"pending"}


def test_a_run_too_noisy_to_tell_does_not_say_no_difference() -> None:
    run = model_run(("3-1-4",), concurrency=(1,), repeats=2, model=Model(repeat_noise=0.6, start_noise=0.4))
    assert headline(compare(run)).startswith("Too noisy to tell")
    assert re.search(r"the baseline may be up to \d+% apart\. Measure with more starts", headline(compare(run)))


def test_an_empty_run_has_no_verdict() -> None:
    run = replace(model_run(), measurements=(), results=(), finished=False)
    assert headline(compare(run)).startswith("No verdict yet")
    assert frame(run)["speedup"].isna().all()


def test_the_table_has_one_row_a_trial_and_leaves_absent_values_absent() -> None:
    run = model_run()
    table = frame(run)
    assert list(table.columns) == list(COLUMNS)
    assert len(table) == len(run.plan.trials)
    base = table[table.is_baseline]
    assert base.accept_length.isna().all() and base.step_time_ms.isna().all()
    assert table.ttft_ms_p99.isna().all()


def two_families() -> RunData:
    """The same sweep over two attention backends: each arm has the baseline of its own backend."""
    first = model_run(("3-1-4",), concurrency=(1,), model=QUIET)
    second = model_run(("3-1-4",), concurrency=(1,), model=replace(QUIET, base_step_ms=9.0, seed=2))

    def renamed(text: str) -> str:
        return f"x{text}"

    arms = tuple(
        replace(arm, arm_id=renamed(arm.arm_id), baseline_id=renamed(arm.baseline_id), label=f"{arm.label} fa3")
        for arm in second.plan.arms
    )
    trials = tuple(
        replace(trial, trial_id=renamed(trial.trial_id), arm_id=renamed(trial.arm_id)) for trial in second.plan.trials
    )
    measurements = tuple(
        replace(entry, trial_id=renamed(entry.trial_id), arm_id=renamed(entry.arm_id)) for entry in second.measurements
    )
    axes = [replace(arm, axes={"server.args.attention_backend": "triton"}) for arm in first.plan.arms]
    axes += [replace(arm, axes={"server.args.attention_backend": "fa3"}) for arm in arms]
    plan = replace(first.plan, arms=tuple(axes), trials=first.plan.trials + trials)
    return replace(first, plan=plan, measurements=first.measurements + measurements, results=())


def test_each_arm_is_held_against_the_baseline_of_its_own_axis() -> None:
    run = two_families()
    comparison = compare(run)
    ratios = [entry.estimate.ratio for entry in comparison.outcomes if entry.estimate]
    assert ratios == pytest.approx([2.11, 2.11], abs=0.05)
    assert [winner.arm.label for winner in comparison.winners] == ["3-1-4", "3-1-4 fa3"]
    assert headline(comparison).startswith("Against baseline: 3-1-4 is 2.1")
    assert "Against baseline fa3: 3-1-4 fa3 is 2.1" in headline(comparison)


def test_axes_are_columns_of_the_table() -> None:
    table = frame(two_families())
    assert set(table["axis.server.args.attention_backend"]) == {"triton", "fa3"}
    assert set(table.baseline_id) == {"base00000000", "xbase00000000"}


def test_an_arm_that_is_expected_to_fail_never_wins() -> None:
    run = model_run(("3-1-4", "5-1-6"), concurrency=(1,), model=QUIET)
    arms = tuple(replace(arm, expect="accept-length") if arm.label == "5-1-6" else arm for arm in run.plan.arms)
    assert winner_labels(replace(run, plan=replace(run.plan, arms=arms))) == {"1": "3-1-4"}


def test_every_column_of_the_table_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "table.md").read_text()
    latencies = tuple(f"{name}_ms_" for name in ("ttft", "tpot", "itl", "e2e"))
    assert [
        column
        for column in COLUMNS
        if not column.removeprefix("steady_").startswith(latencies) and f"`{column}`" not in text
    ] == []
