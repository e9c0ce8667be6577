from dataclasses import replace

from sweeper.analysis.compare import compare
from sweeper.analysis.figures import draw_all
from sweeper.analysis.points import excluded
from sweeper.analysis.quality import simulation_mark
from sweeper.analysis.simulated import BADGE, countable
from sweeper.analysis.verdict import headline
from sweeper.core.lossless import Judged, Losslessness
from sweeper.core.result import Mark
from sweeper.core.run import RunData
from sweeper.present.document import document
from sweeper.testing.runs import model_run


def marked(run: RunData, *more: Mark) -> RunData:
    """As an engine that pretends to accept three tokens a step leaves it."""
    mark = simulation_mark({"SGLANG_SIMULATE_ACC_LEN": "3"})
    assert mark is not None
    return replace(run, measurements=tuple(replace(entry, marks=(mark, *more)) for entry in run.measurements))


def test_a_simulated_run_shows_its_figures_with_a_badge_and_names_no_winner() -> None:
    real = model_run(["3-1-4", "5-1-6"], concurrency=(1, 8))
    comparison = compare(marked(real))
    assert comparison.winners == () and compare(real).winners != ()
    for entry in comparison.outcomes:
        assert entry.numbers is not None and entry.reason.startswith(BADGE)
        assert (entry.standing, entry.estimate) == ("not compared", None)
    spec = [entry for entry in comparison.outcomes if not entry.arm.is_baseline]
    assert all(entry.decomposition for entry in spec), "the break-even length is made of step times alone"
    assert headline(comparison).startswith("Simulated acceptance:")


def test_every_figure_and_row_of_a_simulated_run_carries_the_badge() -> None:
    run = marked(model_run(["3-1-4", "5-1-6"], concurrency=(1, 8)))
    titles = [drawn.title for drawn in draw_all(run, compare(run))]
    assert titles and all(title.endswith(f"({BADGE})") for title in titles)
    shown = document(run)
    assert shown.winners == () and shown.adaptive == ""
    assert {row.standing for table in shown.tables for row in table.rows} == {BADGE}


def test_another_fault_still_takes_a_simulated_measurement_out() -> None:
    run = marked(
        model_run(["3-1-4"], concurrency=(1,)), Mark(code="request-errors", message="half failed", ranked=False)
    )
    assert all(entry.numbers is None for entry in compare(run).outcomes)


def test_a_run_with_one_simulated_arm_ranks_the_others() -> None:
    real = model_run(["3-1-4", "5-1-6"], concurrency=(1,))
    pretended = next(arm for arm in real.plan.arms if arm.label == "5-1-6").arm_id
    measurements = tuple(
        marked(replace(real, measurements=(entry,))).measurements[0] if entry.arm_id == pretended else entry
        for entry in real.measurements
    )
    comparison = compare(replace(real, measurements=measurements))
    assert [entry.arm.label for entry in comparison.outcomes if entry.estimate] == ["3-1-4"]


def test_what_follows_from_pretending_is_not_held_against_the_answers() -> None:
    loops = Mark(code="repeated-output", message="32 of 32 answers end in a loop: easy drafts", ranked=False)
    for entry in compare(marked(model_run(["3-1-4"], concurrency=(1,)), loops)).outcomes:
        assert entry.numbers is not None and not any("loop" in remark for remark in entry.remarks)


def test_the_reasons_of_a_simulated_run_speak_of_step_times_only() -> None:
    shown = document(marked(model_run(["3-1-4", "5-1-6"], concurrency=(1,))))
    assert shown.chains == ()
    for _, text in shown.explanations:
        assert BADGE in text and "wrong drafts" not in text and "it would pay from" in text
    assert shown.explanations


def test_a_run_simulated_on_purpose_has_usable_measurements() -> None:
    loops = Mark(code="repeated-output", message="all answers loop", ranked=False)
    pretended = marked(model_run(["3-1-4"], concurrency=(1,)), loops)
    assert all(excluded(entry) for entry in pretended.measurements)
    assert not any(excluded(entry) for entry in countable(pretended).measurements)
    real = model_run(["3-1-4"], concurrency=(1,))
    assert countable(real) is real


def test_answers_of_a_pretended_acceptance_count_as_no_loss() -> None:
    run = marked(model_run(["3-1-4"], concurrency=(1,)))
    other = Judged(prompt_id="p", likeness="different", position=1, gap=3.0)
    found = tuple(
        Losslessness(
            trial_id=trial.trial_id, start=0, repeat=0, dtype=None, bound=0.25, by="tokens", equal=0, unequal=(other,)
        )
        for trial in run.plan.trials
    )
    assert compare(replace(run, losslessness=found)).outcomes == compare(run).outcomes
