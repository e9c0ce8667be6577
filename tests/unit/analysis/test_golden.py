"""Published curves: shipped whole, and held only against what they are of."""

from dataclasses import replace

from sweeper.analysis.compare import compare
from sweeper.analysis.figures import draw
from sweeper.analysis.golden import matching_curves
from sweeper.analysis.shape import falling_chains, flat_chains, point_faults
from sweeper.core.run import RunData
from sweeper.present.assets import golden
from sweeper.testing.runs import effective, model_run

WORKLOAD = {
    "prompts": "SPEED-Bench coding",
    "temperature": 1.0,
    "top_p": 0.95,
    "chat_template_kwargs": {"thinking": True},
}


def run_of(draft: str, **workload: object) -> RunData:
    run = model_run(("1-1-2", "3-1-4", "5-1-6"), concurrency=(1,))
    arms = tuple(
        replace(arm, server=replace(arm.server, spec=replace(arm.server.spec, draft_model_path=draft)))
        if arm.server.spec
        else arm
        for arm in run.plan.arms
    )
    experiment = {**run.experiment, "workload": {**WORKLOAD, **workload}}
    return replace(run, plan=replace(run.plan, arms=arms), experiment=experiment)


def test_every_curve_names_its_source_and_rises() -> None:
    for curve in golden():
        assert curve.source
        assert not falling_chains(dict(curve.lengths)), curve.name
        assert all(length <= steps + 1 for steps, length in curve.lengths.items())


def test_the_published_curve_of_the_same_draft_and_load_applies() -> None:
    found = matching_curves(run_of("/models/kimi-k2.5-eagle3-mla"), golden())
    assert [curve.name for curve in found.curves] == ["Kimi-K2.5 EAGLE-3, thinking on"]
    assert found.curves[0].lengths[3] == 2.88


def test_other_prompts_or_sampling_are_said_not_drawn() -> None:
    found = matching_curves(run_of("/models/kimi-k2.5-eagle3-mla", prompts="builtin:code", temperature=0), golden())
    assert found.curves == ()
    assert "its prompts are speed-bench coding, this run's builtin:code" in found.unlike[0]
    assert "its temperature is 1, this run's 0" in found.unlike[0]


def test_another_draft_has_no_curve() -> None:
    found = matching_curves(run_of("/models/mine"), golden())
    assert (found.curves, found.unlike) == ((), ())


def test_a_matching_curve_is_drawn_with_its_source() -> None:
    run = run_of("/models/kimi-k2.5-eagle3-mla")
    drawn = draw(run, compare(run), "chains", golden=matching_curves(run, golden()).curves)
    assert drawn is not None
    assert any("published" in (trace.name or "") for trace in drawn.figure.data)
    assert "InferenceX" in drawn.caption


def test_impossible_counts_are_called_so() -> None:
    config = effective(model_run(("3-1-4",)).plan.arms[1])
    assert "above the possible 4" in point_faults(accept_length=4.2, accept_rate=None, effective=config)[0]
    assert "above 1" in point_faults(accept_length=3.0, accept_rate=1.1, effective=config)[0]
    assert point_faults(accept_length=3.0, accept_rate=0.6, effective=config) == ()


def test_a_longer_chain_that_accepts_less_is_noticed_beyond_noise() -> None:
    assert falling_chains({1: 1.7, 3: 2.6, 5: 2.1}) == (5,)
    assert falling_chains({1: 1.7, 3: 2.6, 5: 2.58}) == ()


def test_a_longer_chain_that_accepts_no_more_than_one_draft_is_noticed() -> None:
    assert flat_chains({1: 1.7, 3: 1.72, 5: 1.71}) == (3, 5)
    assert flat_chains({1: 1.3, 3: 1.42}) == (), "a weak draft"
    assert flat_chains({3: 2.6, 5: 2.6}) == (), "saturated"
    assert not any(flat_chains(dict(curve.lengths)) for curve in golden())
