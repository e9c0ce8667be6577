import shutil
from dataclasses import replace
from pathlib import Path

from sweeper.core.events import Measured, TrialEnded
from sweeper.core.launch import EngineFingerprint
from sweeper.core.result import Completed, Failed, Failure, Skipped
from sweeper.core.run import RunData
from sweeper.execution.resume import drift, resume
from sweeper.store.reader import read_run, unreadable
from sweeper.store.writer import RunWriter
from sweeper.testing.plans import small_fingerprint, small_measurement, small_plan

PLAN = small_plan(starts=1, repeats=2, concurrency=(1,))
BASE, SPEC = PLAN.trials
NOW = small_fingerprint()
PATCHED = replace(NOW, engine=EngineFingerprint(version="0.0.fake", files_sha256="0" * 64))


def a_run(tmp_path: Path, *events: Measured | TrialEnded) -> RunData:
    writer = RunWriter.create(tmp_path, PLAN, experiment={}, environment={})
    for event in events:
        writer.record(event)
    writer.close()
    return read_run(writer.path)


def measured(repeat: int = 0) -> Measured:
    return Measured(measurement=small_measurement(BASE, repeat=repeat), samples=())


def failed() -> TrialEnded:
    failure = Failure(failure_class="oom_load", message="too big", remedy="smaller")
    return TrialEnded(result=Failed(trial_id=SPEC.trial_id, failure=failure))


def test_measurements_of_the_same_thing_are_kept(tmp_path: Path) -> None:
    run = a_run(tmp_path, measured(0), measured(1))
    before = resume(run, NOW)
    assert before.kept == run.measurements
    assert (before.aside, before.notes) == ((), ())


def test_a_patched_engine_of_the_same_version_runs_again_and_is_named(tmp_path: Path) -> None:
    ended = TrialEnded(result=Completed(trial_id=BASE.trial_id, measurements=2))
    run = a_run(tmp_path, measured(0), measured(1), ended)
    before = resume(run, PATCHED)
    assert before.kept == () and before.results == ()
    names = {path.name for path in before.aside}
    assert names == {"start-0-repeat-0", "start-0-repeat-1", "result.json"}
    assert before.notes == (
        "2 measurements are of something else and run again: "
        "the engine's files changed from ffffffffffff to 000000000000",
    )


def test_a_measurement_of_a_trial_outside_the_plan_is_named_left_alone_and_not_counted(tmp_path: Path) -> None:
    stranger = small_measurement(replace(BASE, trial_id="of-yesterday"), start=3)
    run = a_run(tmp_path, measured(0), Measured(measurement=stranger, samples=()))
    before = resume(run, PATCHED, accept_drift=True)
    assert [one.trial_id for one in before.kept] == [BASE.trial_id]
    assert before.notes[0] == (
        "trials/of-yesterday/start-3-repeat-0: its trial is not in the plan; left alone and not counted"
    )
    assert before.aside == () and (run.path / "trials" / "of-yesterday" / "start-3-repeat-0").is_dir()
    assert resume(run, PATCHED).aside == (run.path / "trials" / BASE.trial_id / "start-0-repeat-0",)


def test_accepted_drift_is_kept(tmp_path: Path) -> None:
    run = a_run(tmp_path, measured(0))
    before = resume(run, PATCHED, accept_drift=True)
    assert (before.kept, before.aside) == (run.measurements, ())
    assert before.notes[0].startswith("1 measurement is of something else and kept")
    assert before.notes == tuple(
        note.replace("run again", "kept (--accept-drift)") for note in resume(run, PATCHED).notes
    )
    assert "kept (--accept-drift): the engine's files changed" in before.notes[0]


def test_what_is_unknown_on_one_side_is_no_drift() -> None:
    unknown = replace(NOW, engine=EngineFingerprint(version=None, files_sha256=None), driver="570.1", gpu=("H200",))
    assert drift(NOW, unknown) == ()
    assert drift(replace(NOW, gpu=("H200", "H200")), replace(NOW, gpu=("H200",))) == ()
    assert drift(replace(NOW, gpu=("H100",)), replace(NOW, gpu=("H200",))) == ("the GPU changed from H100 to H200",)


def test_a_completed_trial_whose_measurements_were_lost_runs_again(tmp_path: Path) -> None:
    run = a_run(tmp_path, measured(0), TrialEnded(result=Completed(trial_id=BASE.trial_id, measurements=2)))
    before = resume(run, NOW)
    assert before.results == ()
    assert [path.name for path in before.aside] == ["result.json"]
    assert before.kept == run.measurements


def test_failed_trials_stay_failed_until_asked(tmp_path: Path) -> None:
    run = a_run(tmp_path, failed())
    assert resume(run, NOW).results == run.results
    assert resume(run, NOW, retry_failed=True).results == ()


def test_what_the_budget_or_the_doctor_skipped_is_judged_anew(tmp_path: Path) -> None:
    reasons = {"budget: 5 minutes were used up": False, "doctor: d2t": False, "stopped after a failure": True}
    for number, (reason, stands) in enumerate(reasons.items()):
        skipped = Skipped(trial_id=SPEC.trial_id, reason=reason)
        run = a_run(tmp_path / str(number), TrialEnded(result=skipped))
        assert resume(run, NOW).results == ((skipped,) if stands else ())


def test_half_written_remains_are_moved_aside_and_named(tmp_path: Path) -> None:
    run = a_run(tmp_path, measured(0))
    broken = run.path / "trials" / BASE.trial_id / "start-0-repeat-1"
    before = resume(run, NOW, broken=(broken,))
    assert before.aside == (broken,)
    assert "not whole" in before.notes[0]


def test_a_measurement_whose_samples_are_broken_is_not_kept(tmp_path: Path) -> None:
    run = a_run(tmp_path, measured(0), measured(1))
    before = resume(run, NOW, broken=(run.path / "trials" / BASE.trial_id / "start-0-repeat-1",))
    assert [one.repeat for one in before.kept] == [0]


def test_a_measurement_in_the_folder_of_another_is_moved_aside_and_that_one_runs_again(tmp_path: Path) -> None:
    run = a_run(tmp_path, measured(0))
    mine = run.path / "trials" / BASE.trial_id / "start-0-repeat-0"
    copies = (mine.with_name("start-0-repeat-1"), run.path / "trials" / SPEC.trial_id / "start-0-repeat-0")
    for copy in copies:
        shutil.copytree(mine, copy)
    found = read_run(run.path)
    assert [one.repeat for one in found.measurements] == [0], "a copy is not a second measurement"
    assert len(found.problems) == 2 and all(f"belongs in trials/{BASE.trial_id}/" in told for told in found.problems)
    before = resume(found, NOW, broken=unreadable(run.path))
    assert before.kept == run.measurements and set(before.aside) == set(copies)
    writer = RunWriter(run.path)
    writer.set_aside(before.aside)
    writer.record(measured(1))
    writer.close()
    assert [one.repeat for one in read_run(run.path).measurements] == [0, 1]


def test_the_end_of_another_trial_ends_nothing(tmp_path: Path) -> None:
    run = a_run(tmp_path, failed())
    shutil.copy(*(run.path / "trials" / trial.trial_id / "result.json" for trial in (SPEC, BASE)))
    found = read_run(run.path)
    assert found.results == run.results and not found.finished
    assert resume(found, NOW, broken=unreadable(run.path)).aside == unreadable(run.path) != ()
