"""What a temperature does, and what a greedy run costs beside its measurements."""

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from sweeper.core.experiment import Experiment
from sweeper.core.trial import Plan
from sweeper.present.markdown import render_markdown
from sweeper.present.plan_view import View, render_plan
from sweeper.present.report import render_html
from sweeper.testing.runs import model_run

SPEC = "speculative: {draft_model_path: /m/draft, configs: [3-1-4]}\n"


def notes(plan: Plan) -> list[str]:
    return [note for arm in plan.arms for note in arm.notes if "greedily" in note]


def test_on_a_cpu_a_temperature_that_speculation_ignores_is_said(plan: Callable[..., Plan]) -> None:
    found = plan("engine: {device: cpu}\n" + SPEC + "workload: {temperature: 0.7}")
    assert notes(found) == [
        "on the CPU engine SGLang verifies greedily whatever the temperature: its answers are greedy, the baseline's "
        "are sampled at 0.7, so it is measured but not ranked; use temperature: 0"
    ]
    assert not any("greedily" in note for note in found.arms[0].notes)


def test_the_plan_and_the_report_show_it(plan: Callable[..., Plan], experiment: Callable[[str], Experiment]) -> None:
    text = "engine: {device: cpu}\n" + SPEC + "workload: {temperature: 0.7}"
    found, out = plan(text), io.StringIO()
    Console(file=out, width=80).print(render_plan(View(experiment=experiment(text), plan=found, room=None)))
    assert "verifies greedily whatever the temperature" in " ".join(out.getvalue().split())
    run = model_run(("3-1-4",), concurrency=(1,), starts=1, repeats=1)
    arms = tuple(replace(arm, notes=() if arm.is_baseline else tuple(notes(found))) for arm in run.plan.arms)
    run = replace(run, plan=replace(run.plan, arms=arms))
    for report in (render_html(run), render_markdown(run)):
        assert "3-1-4: on the CPU engine SGLang verifies greedily whatever the temperature" in report


@pytest.mark.parametrize(
    ("sampling", "told"),
    [
        ("temperature: 1.0, top_k: 1", "temperature 1 with top_k 1 is greedy: no measurement will be ranked; use "),
        ("temperature: 0.8, top_p: 0.0001", "temperature 0.8 with top_p 0.0001 is greedy: no measurement will be "),
        ("temperature: 1.0, top_k: -1", None),
        ("temperature: 0, top_k: 1", None),
    ],
)
def test_a_temperature_that_is_greedy_in_effect_is_said_before_anything_starts(
    plan: Callable[..., Plan], sampling: str, told: str | None
) -> None:
    for device in ("cuda", "cpu"):
        found = plan(f"engine: {{device: {device}}}\n{SPEC}workload: {{{sampling}}}")
        said = [warning for warning in found.warnings if "greedy" in warning]
        assert [warning.startswith(told or "") for warning in said] == ([True] if told else [])
        if told:
            assert notes(found) == [], "the baseline's answers are greedy too"


def test_on_a_gpu_or_at_temperature_0_nothing_is_said(plan: Callable[..., Plan]) -> None:
    assert notes(plan("engine: {device: cuda}\n" + SPEC + "workload: {temperature: 0.7}")) == []
    assert notes(plan("engine: {device: cpu}\n" + SPEC)) == []


def test_the_estimate_holds_the_pass_that_records_log_probabilities(plan: Callable[..., Plan]) -> None:
    load = "workload: {num_prompts: 100, max_tokens: 1000, concurrency: [1], temperature: %s}"
    greedy, sampled = (plan(SPEC + load % temperature).estimate_s for temperature in ("0", "0.7"))
    assert greedy is not None and sampled is not None
    assert 60 < greedy - sampled < 120  # 24 prompts × 256 tokens at 70 tok/s


def test_without_an_arm_to_compare_there_is_no_pass(plan: Callable[..., Plan]) -> None:
    alone = plan("workload: {concurrency: [1], temperature: 0}").estimate_s
    assert alone == plan("workload: {concurrency: [1], temperature: 0.7}").estimate_s
