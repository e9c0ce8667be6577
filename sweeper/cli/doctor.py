"""`sweeper doctor`: say what is wrong with a draft checkpoint, from its files alone."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import click

from sweeper.doctor.examine import Diagnosis, examine
from sweeper.doctor.repair import repair
from sweeper.effects.hub import local_checkpoint
from sweeper.engine.version import TABLES_READ_UP_TO
from sweeper.errors import ConfigError
from sweeper.present.glyphs import paragraph


@click.command("doctor")
@click.argument("draft")
@click.option("--target", help="Folder, config.json or cached hub id of the target.")
@click.option("--algorithm", default="EAGLE3", show_default=True, help="As given to --speculative-algorithm.")
@click.option("--engine-version", help="SGLang release to judge by; default: the one installed here.")
@click.option("--aux-layer-ids", metavar="2,30,58", help="Layer ids to try instead of those in the draft's config.")
@click.option("--arg", "args", multiple=True, metavar="KEY=VALUE", help="Server argument, e.g. quantization=fp8.")
@click.option("--env", "env", multiple=True, metavar="KEY=VALUE", help="Environment of the server.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--fix", type=click.Path(path_type=Path), metavar="OUT", help="Write a repaired copy to this new folder.")
def command(  # noqa: PLR0913  one parameter an option
    draft: str,
    target: str | None,
    algorithm: str,
    engine_version: str | None,
    aux_layer_ids: str | None,
    args: tuple[str, ...],
    env: tuple[str, ...],
    as_json: bool,
    fix: Path | None,
) -> int:
    """Say what will go wrong with DRAFT in this engine version, where, and what to do. Reads only headers."""
    version = resolved_version(engine_version)
    draft_path, target_path = local_checkpoint(draft), local_checkpoint(target) if target else None
    question: dict[str, Any] = {
        "version": version,
        "algorithm": algorithm,
        "args": {key: value_of(text) for key, text in pairs(args).items()},
        "env": pairs(env),
    }
    ids = _ids(aux_layer_ids)
    diagnosis = examine(draft_path, target_path, aux_layer_ids=ids, **question)
    changes: tuple[str, ...] = ()
    if fix is not None:
        changes = repair(draft_path, fix, version=version, aux_layer_ids=ids)
        diagnosis = examine(fix, target_path, **question)
    head = {"draft": str(fix or draft_path), "target": target, "engine_version": version, "algorithm": algorithm}
    click.echo(_document(diagnosis, head, changes) if as_json else _text(diagnosis, head, changes))
    return 1 if diagnosis.errors else 0


def resolved_version(asked: str | None) -> str:
    """The release asked about, else the installed one, else the newest that the tables know."""
    if asked is not None:
        return asked
    try:
        return installed_version("sglang")
    except PackageNotFoundError:
        return TABLES_READ_UP_TO


def _ids(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.strip("[] ").split(","))
    except ValueError:
        raise ConfigError(f"--aux-layer-ids {text!r}: write numbers with commas, like 2,30,58") from None


def pairs(items: tuple[str, ...]) -> dict[str, str]:
    for item in items:
        if "=" not in item:
            raise ConfigError(f"{item!r}: write KEY=VALUE")
    return {key.lstrip("-").replace("-", "_"): value for key, _, value in (item.partition("=") for item in items)}


def value_of(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


def _document(diagnosis: Diagnosis, head: Mapping[str, Any], changes: tuple[str, ...]) -> str:
    body = {
        **head,
        "findings": [asdict(item) for item in diagnosis.findings],
        "captured_layers": diagnosis.captured_layers,
        "excluded": diagnosis.excluded,
        "unchecked": diagnosis.unchecked,
        "changes": changes,
    }
    return json.dumps(body, indent=2)


def _text(diagnosis: Diagnosis, head: Mapping[str, Any], changes: tuple[str, ...]) -> str:
    target = head["target"] or "an unnamed target"
    lines = [paragraph(f"{head['draft']} for {target}, {head['algorithm']}, SGLang {head['engine_version']}"), ""]
    for change in changes:
        lines += ["changed", _indented(change)]
    for item in diagnosis.findings:
        lines += [f"{item.severity:<8} {item.code}", _indented(item.evidence), _indented(f"→ {item.remedy}"), ""]
    if diagnosis.captured_layers is not None:
        lines.append(f"captured layers  {', '.join(map(str, diagnosis.captured_layers))} (what enters each of them)")
    if all(item.severity == "note" for item in diagnosis.findings):
        lines.append("Nothing in these files explains a low accept length.")
    if lines[-1]:
        lines.append("")
    lines += ["excluded"] + [_indented(text) for text in diagnosis.excluded]
    if diagnosis.unchecked:
        lines += ["not checked"] + [_indented(text) for text in diagnosis.unchecked]
    return "\n".join(lines)


def _indented(text: str) -> str:
    return paragraph(text, " " * 9)
