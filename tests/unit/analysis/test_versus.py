"""Two runs: the same twice, and the same in name only."""

from dataclasses import replace

import pytest

from sweeper.analysis.versus import run_differences, versus
from sweeper.core.run import RunData
from sweeper.testing.runs import Model, model_run


def patched(run: RunData, **changes: object) -> RunData:
    """The run with another fingerprint on all its measurements."""
    return replace(
        run,
        measurements=tuple(
            replace(entry, fingerprint=replace(entry.fingerprint, **changes))  # type: ignore[arg-type]
            for entry in run.measurements
        ),
    )


def test_the_same_run_twice_is_no_difference() -> None:
    result = versus(model_run(model=Model(seed=1)), model_run(model=Model(seed=2)))
    assert result.differences == ()
    assert {change.estimate.verdict for change in result.changes} == {"no difference"}


def test_a_slower_engine_is_found() -> None:
    result = versus(model_run(), model_run(model=Model(base_step_ms=12.2)))
    assert {change.estimate.verdict for change in result.changes} == {"worse"}


def test_a_patched_engine_of_the_same_version_is_another_engine() -> None:
    run = model_run()
    other = patched(run, engine=replace(run.measurements[0].fingerprint.engine, files_sha256="ffff" * 16))
    assert [difference.what for difference in run_differences(run, other)] == ["engine files (SHA-256)"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"driver": "999.1"}, "driver"),
        ({"gpu": ("NVIDIA B200",)}, "GPU"),
        ({"prompts_sha256": "00" * 32}, "prompts (SHA-256, template included)"),
    ],
)
def test_every_condition_is_named(change: dict[str, object], what: str) -> None:
    run = model_run()
    assert [difference.what for difference in run_differences(run, patched(run, **change))] == [what]


def test_another_temperature_is_another_sampling() -> None:
    run = model_run()
    warm = replace(run, experiment={**run.experiment, "workload": {**run.experiment["workload"], "temperature": 1}})
    (difference,) = run_differences(run, warm)
    assert str(difference) == "sampling, temperature: 0 against 1"


def test_configurations_of_one_side_only_are_listed() -> None:
    result = versus(model_run(("3-1-4",), concurrency=(1,)), model_run(("5-1-6",), concurrency=(1,)))
    assert (result.only_first, result.only_second) == (("3-1-4 at 1",), ("5-1-6 at 1",))


def test_a_key_left_out_and_its_default_written_out_are_the_same_sampling() -> None:
    run = model_run()
    written = replace(
        run, experiment={**run.experiment, "workload": {**run.experiment["workload"], "temperature": 0.0}}
    )
    workload = {key: value for key, value in run.experiment["workload"].items() if key != "temperature"}
    assert run_differences(written, replace(run, experiment={**run.experiment, "workload": workload})) == ()


def test_what_is_not_set_is_said_in_words() -> None:
    run = model_run()
    narrow = replace(run, experiment={**run.experiment, "workload": {**run.experiment["workload"], "top_p": 0.5}})
    (difference,) = run_differences(narrow, run)
    assert str(difference) == "sampling, top_p: 0.5 against not set"
