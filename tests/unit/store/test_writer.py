import errno
import fcntl
import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sweeper.core.events import Measured, Notice, ServerReady, StartEnded, TrialEnded
from sweeper.core.launch import StartupTimes
from sweeper.core.result import Completed, StartRecord
from sweeper.core.sample import RequestError, Sample, SpecCounters
from sweeper.errors import StoreError
from sweeper.store import layout
from sweeper.store.disk import Disk
from sweeper.store.lock import is_locked
from sweeper.store.reader import find_runs, half_written, read_run, read_samples, unreadable
from sweeper.store.writer import RunWriter
from sweeper.testing.launcher import FAKE_ENGINE
from sweeper.testing.plans import small_measurement, small_plan

PLAN = small_plan()


def a_sample(index: int = 0) -> Sample:
    return Sample(
        index=index,
        prompt_id=f"p{index}",
        category="code",
        due_ns=1,
        send_ns=1,
        chunk_ns=(2, 5),
        chunk_tokens=(1, 3),
        end_ns=5,
        input_tokens=7,
        cached_tokens=None,
        output_tokens=4,
        finish_reason="stop",
        text="fn main() {}",
        output_ids=(1, 2, 3, 4),
        spec=SpecCounters(verify_steps=2, correct_drafts=2, proposed_drafts=6, histogram=(1, 0, 1)),
    )


def a_record(start: int = 0) -> StartRecord:
    return StartRecord(
        group_id="group-baseline",
        start=start,
        launch_id="abc",
        command="python -m sglang.launch_server",
        env={},
        gpu_ids=(),
        node="here",
        port=30000,
        times=StartupTimes(ready_s=20.0),
        engine=FAKE_ENGINE,
        effective=None,
    )


def a_run(folder: Path, disk: Disk | None = None) -> RunWriter:
    return RunWriter.create(folder, PLAN, experiment={"name": "small"}, environment={"host": "here"}, disk=disk)


def measured(start: int = 0, repeat: int = 0) -> Measured:
    one = small_measurement(PLAN.trials[0], start=start, repeat=repeat)
    return Measured(measurement=one, samples=(a_sample(0), a_sample(1)))


def test_what_was_written_is_read_back_equal(tmp_path: Path) -> None:
    writer = a_run(tmp_path)
    failed_request = replace(
        a_sample(2), error=RequestError(kind="status", message="503", status=503), spec=None, chunk_tokens=None
    )
    event = replace(measured(), samples=(a_sample(0), failed_request))
    writer.record(ServerReady(record=a_record(), server_info={"version": "0.5.23"}))
    writer.record(event)
    writer.record(StartEnded(group_id="group-baseline", start=0, record=a_record()))
    ended = TrialEnded(result=Completed(trial_id=PLAN.trials[0].trial_id, measurements=1))
    writer.record(ended)
    run = read_run(writer.path)
    assert run.plan == PLAN
    assert run.measurements == (event.measurement,)
    assert read_samples(run.path, run.measurements[0]) == event.samples
    assert run.results == (ended.result,)
    assert run.starts == (a_record(),)
    assert [line["kind"] for line in run.events] == ["server_ready", "measured", "start_ended", "trial_ended"]
    assert (run.experiment, run.environment) == ({"name": "small"}, {"host": "here"})
    assert run.problems == ()
    assert not run.finished


def test_a_run_is_finished_when_every_trial_has_a_result(tmp_path: Path) -> None:
    writer = a_run(tmp_path)
    for trial in PLAN.trials:
        assert not read_run(writer.path).finished
        writer.record(TrialEnded(result=Completed(trial_id=trial.trial_id, measurements=4)))
    assert read_run(writer.path).finished


def test_a_finished_measurement_is_never_overwritten(tmp_path: Path) -> None:
    writer = a_run(tmp_path)
    writer.record(measured())
    with pytest.raises(StoreError, match="never overwritten"):
        writer.record(measured())


def test_two_writers_of_one_run_are_refused_and_the_first_is_named(tmp_path: Path) -> None:
    writer = a_run(tmp_path)
    with pytest.raises(StoreError, match=r"process \d+ is writing this run"):
        RunWriter(writer.path)
    writer.close()
    RunWriter(writer.path).close()


def test_a_run_whose_folder_is_taken_away_ends_instead_of_writing_what_nobody_can_read(tmp_path: Path) -> None:
    writer = a_run(tmp_path)
    writer.path.rename(tmp_path / "moved")
    with pytest.raises(StoreError, match="was removed or moved while it was written; run again"):
        writer.record(Measured(measurement=small_measurement(PLAN.trials[0]), samples=(a_sample(),)))
    assert not writer.path.exists()
    assert read_run(tmp_path / "moved").measurements == ()
    writer.close()


def test_what_is_set_aside_is_kept_and_no_longer_read(tmp_path: Path) -> None:
    writer = a_run(tmp_path)
    writer.record(measured())
    folder = layout.measurement_dir(writer.path, PLAN.trials[0].trial_id, 0, 0)
    (moved,) = writer.set_aside([folder])
    assert "→ aside/" in moved
    assert read_run(writer.path).measurements == ()
    assert len(list(writer.path.glob("aside/*/trials/*/start-0-repeat-0/measurement.json"))) == 1
    assert half_written(writer.path) == ()


def test_the_same_folder_can_be_set_aside_again_and_again(tmp_path: Path) -> None:
    writer = a_run(tmp_path)
    folder = layout.start_dir(writer.path, "group-baseline", 0)
    for _ in range(3):
        writer.record(StartEnded(group_id="group-baseline", start=0, record=a_record()))
        writer.set_aside([folder])
    assert len(list(writer.path.glob("aside/*/groups/group-baseline/start-0/launch.json"))) == 3


def test_a_folder_that_knows_no_locks_is_not_said_to_be_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(file: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    writer = a_run(tmp_path)
    writer.close()
    monkeypatch.setattr(fcntl, "flock", refuses)
    with pytest.raises(StoreError, match="cannot be locked: Function not implemented; choose another --out"):
        RunWriter(writer.path)
    assert not is_locked(writer.path)


def test_a_lock_that_cannot_name_its_holder_is_one_line(tmp_path: Path) -> None:
    writer = a_run(tmp_path)
    writer.close()
    (writer.path / layout.LOCK).unlink()
    (writer.path / layout.LOCK).symlink_to("/dev/full")
    with pytest.raises(StoreError, match="cannot be written"):
        RunWriter(writer.path)


def test_a_measurement_without_its_marker_and_a_cut_journal_line_are_named(tmp_path: Path) -> None:
    writer = a_run(tmp_path)
    writer.record(measured(repeat=0))
    writer.record(measured(repeat=1))
    folder = layout.measurement_dir(writer.path, PLAN.trials[0].trial_id, 0, 1)
    (folder / layout.MEASUREMENT).unlink()
    journal = writer.path / layout.EVENTS
    journal.write_bytes(journal.read_bytes() + b'{"at": "2026')
    run = read_run(writer.path)
    assert len(run.measurements) == 1
    assert half_written(writer.path) == (folder,)
    assert [problem.split(": ")[1] for problem in run.problems] == ["half-written", "half-written line"]
    writer.record(Notice(message="afterwards"))
    assert read_run(writer.path).events[-1]["message"] == "afterwards"


def test_fields_of_a_newer_version_are_ignored_and_unreadable_measurements_named(tmp_path: Path) -> None:
    writer = a_run(tmp_path)
    writer.record(measured(repeat=0))
    writer.record(measured(repeat=1))
    folder = layout.measurement_dir(writer.path, PLAN.trials[0].trial_id, 0, 0)
    newer = json.loads((folder / layout.MEASUREMENT).read_bytes()) | {"added_later": 1, "schema_version": 9}
    (folder / layout.MEASUREMENT).write_text(json.dumps(newer))
    other = layout.measurement_dir(writer.path, PLAN.trials[0].trial_id, 0, 1)
    (other / layout.MEASUREMENT).write_text('{"trial_id": 3}')
    run = read_run(writer.path)
    assert [(one.repeat, one.schema_version) for one in run.measurements] == [(0, 9)]
    assert len(run.problems) == 1 and "start-0-repeat-1" in run.problems[0]
    assert unreadable(writer.path) == (other,)


@pytest.mark.parametrize("how", ["gone", "cut"])
def test_a_measurement_whose_samples_are_not_whole_is_named(how: str, tmp_path: Path) -> None:
    writer = a_run(tmp_path)
    writer.record(measured(repeat=0))
    writer.record(measured(repeat=1))
    folder = layout.measurement_dir(writer.path, PLAN.trials[0].trial_id, 0, 1)
    samples = folder / layout.SAMPLES
    whole = samples.read_bytes()
    samples.unlink()
    if how == "cut":
        samples.write_bytes(whole[: len(whole) // 2])
    assert unreadable(writer.path) == (folder,)


def test_a_measurement_from_before_a_field_existed_still_opens(tmp_path: Path) -> None:
    writer = a_run(tmp_path)
    writer.record(measured())
    file = layout.measurement_dir(writer.path, PLAN.trials[0].trial_id, 0, 0) / layout.MEASUREMENT
    older = json.loads(file.read_bytes())
    for added in ("marks", "schema_version"):
        del older[added]
    file.write_text(json.dumps(older))
    assert read_run(writer.path).measurements == (measured().measurement,)


def test_runs_are_found_at_every_level_oldest_first(tmp_path: Path) -> None:
    times = iter(datetime(2026, 1, day, tzinfo=UTC) for day in (2, 2, 1, 1))
    made = [
        RunWriter.create(tmp_path, PLAN, experiment={}, environment={}, now=lambda: next(times)).path for _ in range(2)
    ]
    expected = (made[1], made[0])
    assert find_runs(tmp_path) == expected
    assert find_runs(tmp_path / "small") == expected
    assert find_runs(made[0]) == (made[0],)


def test_a_folder_that_is_no_run_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"not a run folder: it has no plan\.json"):
        read_run(tmp_path)


def test_half_a_surrogate_pair_from_the_server_is_storable(tmp_path: Path) -> None:
    writer = a_run(tmp_path)
    writer.record(replace(measured(), samples=(replace(a_sample(), text="a\ud800b"),)))
    run = read_run(writer.path)
    assert read_samples(run.path, run.measurements[0])[0].text == "a?b"


def test_no_secret_of_the_plan_or_the_environment_reaches_the_disk(tmp_path: Path) -> None:
    secret = "hf_abcdefghijklmnop0123456789"
    server = replace(PLAN.arms[0].server, env={"HF_TOKEN": secret}, args={"api_key": secret})
    plan = replace(PLAN, arms=(replace(PLAN.arms[0], server=server), *PLAN.arms[1:]))
    writer = RunWriter.create(
        tmp_path, plan, experiment={"server": {"env": {"HF_TOKEN": secret}}}, environment={"env": {"MY_SECRET": secret}}
    )
    files = [path for path in writer.path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
    assert read_run(writer.path).plan.arms[0].server.env == {"HF_TOKEN": "***"}


def test_a_full_disk_is_one_clear_line_that_says_what_is_kept(tmp_path: Path) -> None:
    class Full(Disk):
        full = False

        def write(self, file: int, data: bytes) -> int:
            if self.full:
                raise OSError(28, "No space left on device")
            return super().write(file, data)

    disk = Full()
    writer = a_run(tmp_path, disk)
    writer.record(measured(repeat=0))
    disk.full = True
    with pytest.raises(StoreError, match="No space left on device; make room") as caught:
        writer.record(measured(repeat=1))
    assert "\n" not in str(caught.value)
    assert len(read_run(writer.path).measurements) == 1


def test_a_results_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be written: Not a directory"):
        a_run(tmp_path / "file")
