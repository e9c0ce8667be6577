"""A winner inside the noise is a tie with an estimate; one configuration under two names is no difference."""

import io
import json
import math
import random
import re
from dataclasses import replace

import pytest
from scipy import stats

from sweeper.analysis.compare import compare
from sweeper.analysis.statistics import Cell, contrast, decide
from sweeper.analysis.verdict import headline
from sweeper.core.run import RunData
from sweeper.present.document import document
from sweeper.present.markdown import render_markdown
from sweeper.present.report import render_html
from sweeper.present.tabular import report_data
from sweeper.present.terminal import print_run
from sweeper.testing.runs import Model, model_run

QUIET = Model(repeat_noise=0.004, start_noise=0.002)


def under_two_names(
    triple: str = "3-1-4", *others: str, concurrency: tuple[int, ...] = (1, 8), gain: float = 1.0, model: Model = QUIET
) -> RunData:
    """`triple` as A and as B, which ran on a machine faster by `gain`, beside further arms."""
    first = model_run((triple, *others), concurrency=concurrency, model=model)
    second = model_run(
        (triple,),
        concurrency=concurrency,
        model=replace(model, seed=model.seed + 4, base_step_ms=model.base_step_ms / gain),
    )
    copied = next(arm for arm in second.plan.arms if arm.label == triple)
    arms = [replace(arm, label="A") if arm.label == triple else arm for arm in first.plan.arms]
    trials = [trial for trial in second.plan.trials if trial.arm_id == copied.arm_id]
    entries = [entry for entry in second.measurements if entry.arm_id == copied.arm_id]
    plan = replace(
        first.plan,
        arms=(*arms, replace(copied, arm_id="b", label="B")),
        trials=(*first.plan.trials, *(replace(one, arm_id="b", trial_id=f"b{one.trial_id}") for one in trials)),
    )
    copies = (replace(entry, arm_id="b", trial_id=f"b{entry.trial_id}") for entry in entries)
    return replace(first, plan=plan, measurements=(*first.measurements, *copies))


def shown(run: RunData) -> str:
    out = io.StringIO()
    print_run(run, file=out)
    return " ".join(out.getvalue().split())


def rates(*starts: tuple[float, ...]) -> dict[tuple[int, int], float]:
    return {(s, r): rate for s, start in enumerate(starts) for r, rate in enumerate(start)}


def test_a_pair_is_judged_by_students_t_with_the_runs_pooled_noise() -> None:
    first, second = rates((120.0, 121.0), (123.0, 122.0)), rates((118.0, 119.0), (121.0, 119.5))
    base = rates((80.0, 80.4), (81.0, 80.2))
    noise = decide(
        {Cell("a", "1"): first, Cell("b", "1"): second, Cell("0", "1"): base}, {"a": "0", "b": "0", "0": "0"}
    ).noise
    assert noise is not None and noise.degrees == 3
    (found,) = contrast([(first, second)], noise)

    means = [[sum(math.log(side[s, r]) for r in (0, 1)) / 2 for s in (0, 1)] for side in (first, second, base)]
    variance = sum((value - sum(side) / 2) ** 2 for side in means for value in side) / 3
    centre = (sum(means[0]) - sum(means[1])) / 2
    half = stats.t.ppf(0.975, 3) * math.sqrt(variance)
    assert (found.ratio, found.low, found.high) == pytest.approx(
        tuple(math.exp(value) for value in (centre, centre - half, centre + half))
    )
    assert found.verdict == "no difference"


def test_the_level_is_shared_by_all_pairs_that_there_were_to_choose_from() -> None:
    lead, near, far = rates((130.0,), (131.0,)), rates((129.5,), (131.2,)), rates((90.0,), (91.0,))
    noise = decide(
        {Cell("a", "1"): lead, Cell("b", "1"): near, Cell("c", "1"): far}, {"a": "c", "b": "c", "c": "c"}
    ).noise
    found = contrast([(lead, near), (lead, far)], noise, comparisons=6)
    assert [estimate.verdict for estimate in found] == ["no difference", "better"]
    assert [estimate.level for estimate in found] == pytest.approx([0.05 / 5, 0.05 / 6])


def test_a_tie_has_its_estimate_in_the_verdict_the_tables_the_card_and_the_data() -> None:
    run = model_run(("3-1-4", "5-1-6"), concurrency=(1,), model=Model(repeat_noise=0.03, start_noise=0.02))
    (winner,) = compare(run).winners
    (tie,) = winner.ties
    assert (tie.first.label, tie.second.label) == ("3-1-4", "5-1-6") and tie.estimate.verdict == "no difference"
    assert tie.estimate.low is not None and tie.estimate.high is not None
    numbers = f"{tie.estimate.ratio:.2f}× ({tie.estimate.low:.2f}–{tie.estimate.high:.2f})"
    line = f"3-1-4 and 5-1-6: no difference, {numbers}"
    assert f"(a tie with {winner.tied_with[0]}: no difference, {numbers})" in headline(compare(run))
    (card,) = document(run).winners
    assert card.ties == (line,)
    assert line in shown(run) and line in render_markdown(run)
    assert "no difference, <span" in render_html(run)
    (told,) = json.loads(json.dumps(report_data(run)))["winners"][0]["ties"]
    assert (told["first"], told["second"], told["verdict"]) == ("3-1-4", "5-1-6", "no difference")
    assert (told["ratio"], told["low"], told["high"]) == (tie.estimate.ratio, tie.estimate.low, tie.estimate.high)
    assert told["equal_within"] == pytest.approx(max(told["high"], 1 / told["low"]) - 1)


def test_many_names_in_a_tie_share_one_bound() -> None:
    run = model_run(("3-1-4", "4-1-5", "5-1-6"), concurrency=(1,), model=Model(repeat_noise=0.03, start_noise=0.02))
    (winner,) = compare(run).winners
    assert len(winner.ties) == 2
    bands = [tie.estimate.within for tie in winner.ties]
    assert f"no difference, at most {max(band for band in bands if band):.1%} apart)" in headline(compare(run))


def test_a_tie_inside_wide_noise_is_not_called_no_difference() -> None:
    noisy = Model(repeat_noise=0.1, start_noise=0.1)
    run = model_run(("3-1-4", "4-1-5", "5-1-6"), concurrency=(1,), starts=4, model=noisy)
    (winner,) = compare(run).winners
    assert len(winner.ties) == 2 and winner.estimate
    band = max(tie.estimate.within or 0 for tie in winner.ties)
    assert band > 0.25
    assert f"(too noisy to tell it from {' and '.join(winner.tied_with)}: at most {band:.1%} apart)" in headline(
        compare(run)
    )
    assert "no difference" not in headline(compare(run))


def test_a_baseline_that_wins_is_told_apart_from_nobody_by_the_arms_own_speedups() -> None:
    run = model_run(("1-1-2",), model=Model(acceptance=0, draft_cost=0, verify_cost=0))
    comparison = compare(run)
    for winner, card in zip(comparison.winners, document(run).winners, strict=True):
        arm = next(entry for entry in comparison.outcomes if entry.load == winner.load and entry.estimate)
        assert winner.tied_with == ("1-1-2",) and winner.ties[0].estimate == arm.estimate
        assert card.ties[0].startswith("1-1-2 and baseline: no difference, ")
    assert all(table.ties == () for table in document(run).tables), "the row of the table says it already"


def test_an_a_a_run_says_no_difference_between_the_names_and_nothing_of_a_tie() -> None:
    run = under_two_names()
    text = headline(compare(run))
    assert text.startswith("No difference between A and B, which are one configuration: ")
    assert "a tie" not in text and " the baseline's speed at concurrency 1; " in text
    told = report_data(run)["same_configuration"]
    assert [(entry["load"], entry["arms"]) for entry in told] == [("1", ["A", "B"]), ("8", ["A", "B"])]
    assert {pair["verdict"] for entry in told for pair in entry["pairs"]} == {"no difference"}
    assert shown(run).count("A and B: no difference, 1.0") == 2


def test_an_a_a_run_that_loses_to_the_baseline_still_holds_the_names_against_each_other() -> None:
    run = under_two_names(concurrency=(8,), model=replace(QUIET, acceptance=0.1))
    text = headline(compare(run))
    assert text.startswith("No difference between A and B, which are one configuration: ")
    assert "Leave speculation off" in text


def test_too_much_noise_to_call_two_names_equal_is_said_beside_the_verdict() -> None:
    text = headline(compare(under_two_names(model=Model(repeat_noise=0.1, start_noise=0.2))))
    assert text.startswith("No difference between A and B")
    assert "(too noisy to call them equal). " in text
    assert "too noisy" not in headline(compare(under_two_names()))


def test_names_that_differ_though_they_are_one_configuration_betray_unseen_noise() -> None:
    text = headline(compare(under_two_names(gain=1.1)))
    assert text.startswith("A and B are one configuration and yet differ, by noise that this run did not see: ")
    assert re.search(r"A and B: B is faster, 0\.9\d× \(0\.\d\d–0\.9\d\) at concurrency 1", text)


def test_among_other_configurations_the_names_of_one_are_a_note() -> None:
    run = under_two_names("3-1-4", "5-1-6")
    assert headline(compare(run)).startswith("5-1-6 is ")
    (note,) = (note for note in document(run).notes if "one configuration" in note)
    assert note.startswith("No difference between A and B")


@pytest.mark.parametrize("key", ["page_size", "attention_backend"])
def test_servers_that_resolved_something_else_are_not_one_configuration(key: str) -> None:
    run = under_two_names()
    changed = tuple(
        replace(entry, effective=replace(entry.effective, raw={**entry.effective.raw, key: "other"}))
        if entry.arm_id == "b"
        else entry
        for entry in run.measurements
    )
    assert compare(replace(run, measurements=changed)).twins == ()


def test_other_speculative_arguments_are_not_one_configuration() -> None:
    run = under_two_names()
    arms = []
    for arm in run.plan.arms:
        spec = arm.server.spec
        if arm.label == "B" and spec:
            spec = replace(spec, args={"accept_threshold_single": 0.6})
            arm = replace(arm, server=replace(arm.server, spec=spec))
        arms.append(arm)
    assert compare(replace(run, plan=replace(run.plan, arms=tuple(arms)))).twins == ()


def test_equal_leaders_are_rarely_told_apart() -> None:
    """Four equal arms: the fastest is chosen after the race, so that all their pairs share the 5 %."""
    rng, runs, wrong = random.Random(11), 400, 0
    names = [str(arm) for arm in range(5)]
    for _ in range(runs):
        made: dict[Cell, dict[tuple[int, int], float]] = {}
        for name in names:
            for start in range(2):
                shift = rng.gauss(0, 0.005)
                for load in "abc":
                    cell = made.setdefault(Cell(name, load), {})
                    cell.update({(start, r): math.exp(shift + rng.gauss(0, 0.02)) for r in range(4)})
        noise = decide(made, dict.fromkeys(names, "0")).noise
        rivals = {name: made[Cell(name, "a")] for name in names[1:]}
        lead = max(rivals.values(), key=lambda blocks: sum(map(math.log, blocks.values())))
        found = contrast([(lead, other) for other in rivals.values() if other is not lead], noise, comparisons=6)
        wrong += any(estimate.verdict != "no difference" for estimate in found)
    assert wrong / runs <= 0.07
