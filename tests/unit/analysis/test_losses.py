"""A configuration whose greedy answers are truly not the baseline's is no winner, or one with a warning."""

import io
from dataclasses import replace

import pytest

from sweeper.analysis.compare import Comparison, compare
from sweeper.analysis.exports import adaptive_config
from sweeper.analysis.verdict import headline
from sweeper.core.lossless import Judged, Losslessness
from sweeper.core.run import RunData
from sweeper.present.document import document
from sweeper.present.markdown import render_markdown
from sweeper.present.report import render_html
from sweeper.present.tabular import report_data
from sweeper.present.terminal import print_run
from sweeper.testing.runs import Model, model_run

QUIET = Model(repeat_noise=0.002, start_noise=0.001)
COMPARED = 40


def run(
    different: dict[str, int], *, rank: bool = False, concurrency: tuple[int, ...] = (1,), triples: tuple[str, ...] = ()
) -> RunData:
    """Arms and how many of their greedy answers at the first load differ; 5-1-6 is the fastest at concurrency 1."""
    made = model_run(triples or ("3-1-4", "5-1-6"), concurrency=concurrency, model=QUIET)
    found = []
    for trial in made.plan.trials:
        count = different.get(made.plan.arm(trial.arm_id).label, 0) if trial.load.concurrency == concurrency[0] else 0
        loss = tuple(Judged(prompt_id=f"p{n}", likeness="different", position=3, gap=4.0) for n in range(count))
        found.append(
            Losslessness(
                trial_id=trial.trial_id, start=0, repeat=0, dtype="bfloat16", bound=0.25, by="tokens",
                equal=COMPARED - count, unequal=loss,
            )
        )  # fmt: skip
    experiment = {**made.experiment, "run": {"lossy": "rank" if rank else "bar"}}
    return replace(made, losslessness=tuple(found), experiment=experiment)


def labels(comparison: Comparison) -> list[str]:
    return [winner.arm.label for winner in comparison.winners]


def shown(made: RunData) -> str:
    out = io.StringIO()
    print_run(made, file=out)
    return " ".join(out.getvalue().split())


def test_the_winner_is_the_fastest_that_gives_the_baselines_answers() -> None:
    assert labels(compare(run({}))) == ["5-1-6"]
    comparison = compare(run({"5-1-6": 3}))
    assert labels(comparison) == ["3-1-4"]
    assert [entry.arm.label for entry in comparison.winners[0].passed_over] == ["5-1-6"]


def test_the_verdict_names_the_faster_one_with_its_loss_in_the_same_sentence() -> None:
    text = headline(compare(run({"5-1-6": 3})))
    assert text.startswith("3-1-4 is 2.1")
    assert "; faster but not lossless, hence not ranked: 5-1-6, 2.2" in text
    assert text.endswith("at concurrency 1 (3 of 40 greedy answers differ from the baseline's).")
    assert text.count(".") == text.replace(". ", "").count("."), "one sentence"


def test_where_all_are_lossy_none_wins_and_the_verdict_says_how_to_rank_them() -> None:
    comparison = compare(run({"5-1-6": 3, "3-1-4": 1}))
    assert labels(comparison) == ["baseline"] and comparison.winners[0].ties == ()
    text = headline(comparison)
    assert text.startswith("No configuration gives the baseline's answers, so none may win (run: {lossy: rank} ")
    assert "; faster but not lossless, hence not ranked: 5-1-6, 2.2" in text
    assert "5-1-6" in text and "(1 of 40 greedy answers" in text


def test_a_lossless_configuration_that_loses_is_told_apart_from_lossy_ones_that_win() -> None:
    made = run({"5-1-6": 2}, concurrency=(8,), triples=("5-1-6", "5-4-64"))
    text = headline(compare(made))
    assert labels(compare(made)) == ["baseline"]
    assert text.startswith("Leave speculation off: no lossless configuration beats the baseline")


def test_a_loss_at_one_load_point_bars_the_configuration_at_all() -> None:
    assert labels(compare(run({"5-1-6": 1}, concurrency=(1, 2)))) == ["3-1-4", "3-1-4"]


def test_the_experiment_may_have_it_ranked_with_the_warning_in_the_sentence() -> None:
    made = run({"5-1-6": 3}, rank=True)
    comparison = compare(made)
    assert labels(comparison) == ["5-1-6"]
    assert ", but is not lossless (3 of 40 greedy answers differ from the baseline's)" in headline(comparison)
    assert document(made).winners[0].warning.startswith("Not lossless: 3 of 40")
    assert report_data(made)["winners"][0]["lossless"] is False


def test_a_baseline_that_differs_from_itself_as_often_bars_nobody_but_is_said() -> None:
    comparison = compare(run({"5-1-6": 3, "baseline": 3}))
    assert labels(comparison) == ["5-1-6"]
    assert "not lossless (3 of 40 greedy answers differ from the baseline's, as its own do)" in headline(comparison)
    assert labels(compare(run({"5-1-6": 9, "baseline": 3}))) == ["3-1-4"]


@pytest.mark.parametrize("render", [render_markdown, render_html, shown])
def test_every_report_says_why_the_faster_one_is_not_ranked(render) -> None:  # type: ignore[no-untyped-def]
    text = " ".join(render(run({"5-1-6": 3})).split())
    assert "not lossless" in text and "hence not ranked" in text
    assert "hence not ranked" not in render(run({}))


def test_a_lossy_chain_is_no_step_of_the_adaptive_configuration() -> None:
    assert adaptive_config(compare(run({}))) == {"1": {"candidate_steps": [5]}}
    assert adaptive_config(compare(run({"5-1-6": 3}))) == {"1": {"candidate_steps": [3]}}


def test_the_table_keeps_the_speedup_of_what_is_not_ranked() -> None:
    row = next(row for row in document(run({"5-1-6": 3})).tables[0].rows if row.label == "5-1-6")
    assert row.standing == "better" and row.speedup.startswith("2.2")
    assert row.remark.endswith("not lossless (3 of 40 greedy answers differ from the baseline's), hence not ranked")
