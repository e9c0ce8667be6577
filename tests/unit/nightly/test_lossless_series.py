"""A night counts true differences: ties are none, and an engine that turns lossy is seen, however fast it got."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from thought_nights import Nights, ThoughtBench

from sweeper.analysis.nightly.extract import NONE_ALIKE, night_record
from sweeper.analysis.nightly.policy import Policy
from sweeper.analysis.nightly.record import SeriesName, Words
from sweeper.analysis.nightly.verdict import judge_night
from sweeper.core.lossless import Judged, Likeness, Losslessness
from sweeper.core.run import RunData
from sweeper.nightly.agreement import agreement_of
from sweeper.nightly.history import History
from sweeper.testing.runs import model_run

COMPARED = 16


def with_answers(run: RunData, different: int, tie: int = 0) -> RunData:
    """Of sixteen answers a measurement so many differ; the baseline's own never do."""
    baselines = {arm.arm_id for arm in run.plan.arms if arm.is_baseline}
    return replace(
        run,
        losslessness=tuple(
            losslessness(
                one.trial_id, one.start, one.repeat, *((0, 0) if one.arm_id in baselines else (different, tie))
            )
            for one in run.measurements
        ),
    )


def losslessness(trial_id: str, start: int, repeat: int, different: int, tie: int) -> Losslessness:
    kinds: list[Likeness] = ["different"] * different + ["tie"] * tie
    parted = tuple(Judged(prompt_id=f"p{i}", likeness=kind, position=3, gap=1.0) for i, kind in enumerate(kinds))
    return Losslessness(
        trial_id=trial_id, start=start, repeat=repeat, dtype="bfloat16", bound=0.25, by="tokens",
        equal=COMPARED - len(parted), unequal=parted,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("different", "tie", "share"), [(0, 0, 1.0), (0, 9, 1.0), (4, 2, 0.75), (COMPARED, 0, NONE_ALIKE)]
)
def test_only_true_differences_lower_the_series(different: int, tie: int, share: float) -> None:
    run = with_answers(model_run(("3-1-4",), concurrency=(1,), starts=1, repeats=2), different, tie)
    record = night_record("n1", run, circumstances={}, arms={}, agreement=agreement_of(run))
    series = {one.name: one.first for one in record.series}
    assert series[SeriesName(quantity="lossless", arm="3-1-4", load="1")] == (share,)
    assert not any(name.quantity == "agreement" or name.arm == "baseline" for name in series if name.quantity in
                   ("agreement", "lossless"))  # fmt: skip


@dataclass
class AnsweringBench(ThoughtBench):
    """A night of which it is known how many answers differ."""

    different: int = 0

    def sweep(self, results_dir: Path) -> RunData:
        return with_answers(super().sweep(results_dir), self.different, tie=5)

    def again(self, trial_ids: frozenset[str], repeats: int, results_dir: Path) -> RunData:
        return with_answers(super().again(trial_ids, repeats, results_dir), self.different, tie=5)


def test_an_engine_that_turns_lossy_is_a_regression_on_its_first_night(tmp_path: Path) -> None:
    nights = Nights(History(tmp_path))
    for number in range(12):
        nights.on(AnsweringBench(seed=number))
    lossy = AnsweringBench(seed=12, different=4)
    ended = nights.on(lossy)
    assert ended.exit_code == 1
    assert "share of greedy answers that do not truly differ from the baseline's of 3-1-4" in ended.sentence
    assert "1 → 0.75 (−25.0 %)" in ended.sentence
    plan = lossy.sweep(tmp_path / "asked").plan
    (asked,) = lossy.asked
    assert {plan.arm(trial.arm_id).label for trial in plan.trials if trial.trial_id in asked} == {"baseline", "3-1-4"}


def test_a_sound_engine_raises_nothing_whatever_its_ties(tmp_path: Path) -> None:
    nights = Nights(History(tmp_path))
    standings = [nights.on(AnsweringBench(seed=number)).verdict.state for number in range(13)]
    assert set(standings) <= {"fine", "unknown"}


def test_histories_that_watched_equal_answers_go_on_without_a_gap(tmp_path: Path) -> None:
    bare = model_run(("3-1-4",), concurrency=(1,), starts=1, repeats=2)
    shares = {trial.trial_id: (0.9, 0.9) for trial in bare.plan.trials if not bare.plan.arm(trial.arm_id).is_baseline}
    before = night_record("n1", bare, circumstances={}, arms={}, agreement=shares)
    tonight = night_record("n2", with_answers(bare, 0), circumstances={}, arms={}, agreement={})
    assert any(one.name.quantity == "agreement" for one in before.series)
    assert judge_night([before], tonight, Words(), Policy()).absent == ()
