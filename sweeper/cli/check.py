"""`sweeper check`: plan, paths, engine, GPUs and drafts of an experiment, before anything is started."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sweeper.core.finding import Finding
    from sweeper.core.trial import Plan
    from sweeper.planning.facts import Facts


@click.command("check")
@click.argument("experiment", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(experiment: Path, as_json: bool) -> int:
    """Check EXPERIMENT, the paths it names, this machine and the drafts. Exit code 2 when it cannot run here."""
    from sweeper.effects.facts import load_experiment
    from sweeper.effects.requirements import too_few_gpus, unmet
    from sweeper.errors import PreflightError
    from sweeper.planning.plan import make_plan

    loaded = load_experiment(experiment)
    plan = make_plan(loaded.experiment, loaded.facts)
    problems = list(unmet(loaded.experiment, loaded.facts))
    needed = max(group.gpus for group in plan.launch_groups)
    if loaded.experiment.engine.device == "cuda" and (problem := too_few_gpus(needed, loaded.facts)):
        problems.append(problem)
    findings = list(_doctor(plan, loaded.facts)) if loaded.experiment.run.doctor != "off" else []
    if loaded.experiment.run.doctor == "error":
        problems += [
            f"{label}: {found.evidence}; {found.remedy}" for label, found in findings if found.severity == "error"
        ]
    if as_json:
        _print_json(plan, problems, findings)
        return 2 if problems else 0
    if problems:
        raise PreflightError("\n".join(problems))
    _print_lines(plan, findings)
    return 0


def _doctor(plan: "Plan", facts: "Facts") -> Iterator[tuple[str, "Finding"]]:
    """(arm label, finding) of every arm whose draft is here; an expected finding is no problem."""
    from sweeper.doctor.examine import examine
    from sweeper.effects.hub import local_checkpoint
    from sweeper.errors import PreflightError

    for arm in plan.arms:
        spec = arm.server.spec
        if spec is None or spec.draft_model_path is None:
            continue
        try:
            draft, target = local_checkpoint(spec.draft_model_path), local_checkpoint(arm.server.model_path)
        except PreflightError:
            continue
        diagnosis = examine(
            draft,
            target,
            version=facts.engine_version,
            algorithm=spec.algorithm,
            aux_layer_ids=spec.aux_layer_ids,
            args=arm.server.args,
        )
        yield from ((arm.label, finding) for finding in diagnosis.findings if finding.code != arm.expect)


def _print_lines(plan: "Plan", findings: list[tuple[str, "Finding"]]) -> None:
    told = set()
    for label, finding in findings:
        if finding.severity == "warning" and (finding.code, finding.evidence) not in told:
            told.add((finding.code, finding.evidence))
            click.echo(f"! {label}: {finding.evidence}; {finding.remedy}")
    for warning in plan.warnings:
        click.echo(f"! {warning}")
    click.echo(f"✓ {plan.experiment}: {len(plan.arms)} arms, {len(plan.trials)} trials can run here")


def _print_json(plan: "Plan", problems: list[str], findings: list[tuple[str, "Finding"]]) -> None:
    import json
    from dataclasses import asdict

    document = {
        "experiment": plan.experiment,
        "problems": problems,
        "warnings": plan.warnings,
        "findings": [{"arm": label, **asdict(finding)} for label, finding in findings],
    }
    click.echo(json.dumps(document, ensure_ascii=False, indent=1))
