"""Figures: what they must show whatever the run."""

from dataclasses import replace

import pytest

from sweeper.analysis.compare import compare
from sweeper.analysis.figures import FIGURES, draw, draw_all
from sweeper.analysis.figures.common import Material
from sweeper.analysis.figures.course import phase_spans
from sweeper.analysis.figures.style import BASELINE, looks
from sweeper.core.run import RunData
from sweeper.testing.runs import model_run

FULL = model_run(
    ("1-1-2", "3-1-4", "5-1-6", "3-4-8", "5-4-16"), aux_layer_ids=((2, 30, 58), (3, 31, 59)), concurrency=(1, 8)
)


def test_a_full_run_has_every_figure() -> None:
    assert {drawn.name for drawn in draw_all(FULL, compare(FULL))} == set(FIGURES)


@pytest.mark.parametrize("name", [name for name in FIGURES if name not in ("heatmap", "timeline")])
def test_every_axis_has_a_unit_or_names(name: str) -> None:
    drawn = draw(FULL, compare(FULL), name)
    assert drawn is not None
    titles = [axis.title.text for axis in drawn.figure.select_xaxes() if axis.title.text]
    assert titles and any(mark in title for title in titles for mark in ("(", "÷", "position", "minutes", "num_steps"))


@pytest.mark.parametrize("name", ["speedup", "crossover", "pareto", "step_cost", "categories", "layers"])
def test_the_baseline_is_in_sight(name: str) -> None:
    drawn = draw(FULL, compare(FULL), name)
    assert drawn is not None
    assert BASELINE in drawn.figure.to_json()


def test_a_configuration_has_one_colour_everywhere() -> None:
    arms = FULL.plan.arms
    wanted = {arm.label: look.color for arm in arms if (look := looks(arms)[arm.arm_id]) and not arm.is_baseline}
    for name in ("crossover", "pareto", "step_cost", "positions"):
        drawn = draw(FULL, compare(FULL), name)
        assert drawn is not None
        seen = {trace.name: trace.marker.color for trace in drawn.figure.data if trace.name in wanted}
        assert seen and all(wanted[label] == color for label, color in seen.items())


def test_looks_stay_apart_without_colour() -> None:
    found = [(look.symbol, look.dash) for look in looks(FULL.plan.arms).values()]
    assert len(set(found)) == len(found)


def test_hover_shows_what_really_ran_and_the_interval() -> None:
    drawn = draw(FULL, compare(FULL), "crossover")
    assert drawn is not None
    words = next(trace for trace in drawn.figure.data if trace.hovertext).hovertext[0]
    assert "ran as EAGLE3" in words and "× (" in words


def hostile(run: RunData) -> RunData:
    label = "<img src=x onerror=alert(1)></script>"
    arms = tuple(replace(arm, label=label) if arm.label == "3-1-4" else arm for arm in run.plan.arms)
    return replace(run, plan=replace(run.plan, arms=arms))


def test_labels_cannot_bring_markup_into_a_figure() -> None:
    run = hostile(model_run())
    for drawn in draw_all(run, compare(run)):
        assert "<img" not in drawn.figure.to_json()


def test_a_run_without_measurements_draws_nothing_of_speed() -> None:
    run = replace(model_run(), measurements=())
    assert {drawn.name for drawn in draw_all(run, compare(run))} <= {"timeline"}


def test_a_phase_that_was_cut_ends_with_its_sitting() -> None:
    arm = FULL.plan.arms[0].arm_id

    def phase(at: str, name: str) -> dict[str, object]:
        return {"at": at, "kind": "phase_changed", "group_id": "g", "arm_id": arm, "start": 0, "phase": name}

    journal = (
        {"at": "2026-01-01T00:00:00+00:00", "kind": "run_started"},
        phase("2026-01-01T00:01:00+00:00", "launching"),
        phase("2026-01-01T00:02:00+00:00", "measuring"),
        {"at": "2026-01-01T00:05:00+00:00", "kind": "run_ended"},
        {"at": "2026-01-01T09:00:00+00:00", "kind": "run_started"},
        phase("2026-01-01T09:01:00+00:00", "launching"),
        phase("2026-01-01T09:03:00+00:00", "done"),
    )
    spans = phase_spans(Material.of(replace(FULL, events=journal), compare(FULL)))
    assert [(span.phase, span.begin_min, span.minutes) for span in spans] == [
        ("launching", 0, 1),
        ("measuring", 1, 3),
        ("launching", 540, 2),
    ]


def test_an_unknown_figure_names_the_known_ones() -> None:
    with pytest.raises(KeyError, match="pareto"):
        draw(FULL, compare(FULL), "pie")
