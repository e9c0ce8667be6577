"""`sweeper check`: plan, paths, engine, GPUs and drafts of an experiment, before anything is started."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweeper.present.numbers import counted

if TYPE_CHECKING:
    from sweeper.core.finding import Finding
    from sweeper.core.trial import Plan
    from sweeper.planning.config import Document


@click.command("check")
@click.argument("experiment", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(experiment: Path, as_json: bool) -> int:
    """Check EXPERIMENT, the paths it names, its prompts, this machine and the drafts.

    Exit code 2 when it cannot run here.
    """
    from sweeper.effects.facts import load_experiment
    from sweeper.effects.requirements import too_few_gpus, unmet
    from sweeper.errors import PreflightError
    from sweeper.execution.examination import arm_findings
    from sweeper.planning.plan import make_plan

    loaded = load_experiment(experiment)
    plan = make_plan(loaded.experiment, loaded.facts)
    problems = list(unmet(loaded.document, loaded.facts))
    unread, warnings = ([], []) if problems else _prompts(loaded.document)
    problems += unread
    needed = max(group.gpus for group in plan.launch_groups)
    if loaded.experiment.engine.device == "cuda" and (problem := too_few_gpus(needed, loaded.facts)):
        problems.append(problem)
    findings = list(arm_findings(plan)) if loaded.experiment.run.doctor != "off" else []
    if loaded.experiment.run.doctor == "error":
        problems += [
            f"{label}: {found.evidence}; {found.remedy}" for label, found in findings if found.severity == "error"
        ]
    if as_json:
        _print_json(plan, problems, [*plan.warnings, *warnings], findings)
        return 2 if problems else 0
    if problems:
        raise PreflightError("\n".join(problems))
    _print_lines(plan, [*plan.warnings, *warnings], findings)
    return 0


def _prompts(document: "Document") -> tuple[list[str], list[str]]:
    """Problems and warnings: they are made as `run` makes them, so that no night ends at its first line."""
    from sweeper.errors import ConfigError
    from sweeper.execution.session import prompt_warnings, prompts_of

    try:
        made = prompts_of(document)
    except ConfigError as error:
        return [str(error)], []
    return [], list(prompt_warnings(made, document.experiment.workload))


def _print_lines(plan: "Plan", warnings: list[str], findings: list[tuple[str, "Finding"]]) -> None:
    told = set()
    for label, finding in findings:
        if finding.severity == "warning" and (finding.code, finding.evidence) not in told:
            told.add((finding.code, finding.evidence))
            click.echo(f"! {label}: {finding.evidence}; {finding.remedy}")
    for warning in warnings:
        click.echo(f"! {warning}")
    arms, trials = counted(len(plan.arms), "arm"), counted(len(plan.trials), "trial")
    click.echo(f"✓ {plan.experiment}: {arms}, {trials} can run here")


def _print_json(plan: "Plan", problems: list[str], warnings: list[str], findings: list[tuple[str, "Finding"]]) -> None:
    import json
    from dataclasses import asdict

    document = {
        "experiment": plan.experiment,
        "problems": problems,
        "warnings": warnings,
        "findings": [{"arm": label, **asdict(finding)} for label, finding in findings],
    }
    click.echo(json.dumps(document, ensure_ascii=False, indent=1))
