"""`sweeper plan`: what an experiment would do, with everything the engine would silently change. Starts nothing."""

import re
from dataclasses import replace
from pathlib import Path

import click


@click.command("plan")
@click.argument("experiment", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--commands", is_flag=True, help="Show the launch command of every arm.")
@click.option("--all", "everything", is_flag=True, help="Show every arm and every left-out point, however many.")
@click.option("--engine-version", metavar="V", help="Plan for this SGLang release.")
@click.option("--gpus", metavar="N|NODESxN", help="Plan for a node of N GPUs, or for several: 8, 4x8.")
def command(
    experiment: Path, as_json: bool, commands: bool, everything: bool, engine_version: str | None, gpus: str | None
) -> int:
    """Show what EXPERIMENT would do: arms, merged and illegal points, launch groups, schedule, time. Starts nothing."""
    from sweeper.effects.facts import load_experiment
    from sweeper.execution.examination import arm_findings, doctor_sentences
    from sweeper.planning.plan import expected_room, make_plan

    loaded = load_experiment(experiment, version=engine_version)
    facts = loaded.facts
    if gpus is not None:
        nodes, each = _shape(gpus)
        facts = replace(facts, node_count=nodes, gpu_count=each)
    plan = make_plan(loaded.experiment, facts)
    room = expected_room(loaded.experiment, facts)
    if loaded.experiment.run.doctor != "off":
        loud = [(label, item) for label, item in arm_findings(plan) if item.severity != "note"]
        plan = replace(plan, warnings=(*plan.warnings, *doctor_sentences(loud)))
    if as_json:
        import json

        from sweeper.present.plan_view import plan_document

        click.echo(json.dumps(plan_document(plan, room), ensure_ascii=False))
        return 0
    from rich.console import Console

    from sweeper.present.plan_view import View, render_plan

    view = View(experiment=loaded.experiment, plan=plan, room=room, commands=commands)
    Console(highlight=False).print(render_plan(view, limit=None if everything else 24))
    return 0


def _shape(text: str) -> tuple[int, int]:
    """`8` or `4x8`: nodes and GPUs of each."""
    from sweeper.errors import ConfigError

    found = re.fullmatch(r"(?:([1-9]\d{0,3})x)?([1-9]\d{0,3})", text)
    if found is None:
        raise ConfigError(f"--gpus {text}: write the number of GPUs, or nodes x GPUs, e.g. 8 or 4x8")
    return int(found[1] or 1), int(found[2])
