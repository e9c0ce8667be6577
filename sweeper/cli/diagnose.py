"""`sweeper diagnose`: ask the training data, the live engine, and a finished run why acceptance is low."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from sweeper.cli.numbers import Finite
from sweeper.core.experiment import MOST_PROMPTS, MOST_TOKENS
from sweeper.errors import ConfigError, PreflightError
from sweeper.present.glyphs import paragraph

if TYPE_CHECKING:
    from sweeper.doctor.agreement import Agreement, Blame
    from sweeper.doctor.live import Engine
    from sweeper.doctor.probe import ProbeReport
    from sweeper.doctor.samples import Sample
    from sweeper.doctor.wiring import WiringReport


@click.group("diagnose")
def command() -> None:
    """Why is my accept length low? Offline accuracy, live wiring, or a finished run."""


def _engine_options(function: Any) -> Any:
    """Where the capturing server runs."""
    for option in (
        click.option(
            "--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True, help="Of that server."
        ),
        click.option("--gpus", default="0", show_default=True, help="Physical ids, e.g. 0,1; unused on the CPU."),
        click.option("--arg", "args", multiple=True, metavar="KEY=VALUE", help="Server argument, e.g. tp_size=8."),
        click.option("--engine-version", help="SGLang release; default: the one installed here."),
        click.option("--json", "as_json", is_flag=True, help="One JSON document."),
    ):
        function = option(function)
    return function


@command.command("accuracy", short_help="Is the draft itself good, apart from the engine?")
@click.argument("target")
@click.option("--draft", required=True, help="Folder or cached hub id of the draft.")
@click.option("--samples", type=click.Path(path_type=Path), help="Dumps with hidden states; default: ask the engine.")
@click.option("--prompts", default="builtin:code", show_default=True, help="What the engine is asked, without dumps.")
@click.option("--num-prompts", type=click.IntRange(1, MOST_PROMPTS), default=16, show_default=True)
@click.option("--max-tokens", type=click.IntRange(1, MOST_TOKENS), default=128, show_default=True)
@click.option("--steps", type=click.IntRange(1, 64), default=5, show_default=True, help="Draft steps to look ahead.")
@click.option("--live", type=Finite(1), help="Accept length seen live, to say which side is at fault.")
@click.option("--num-steps", type=int, help="Draft steps of that live figure.")
@_engine_options
def accuracy(  # noqa: PLR0913  one parameter an option
    target: str,
    draft: str,
    samples: Path | None,
    prompts: str,
    num_prompts: int,
    max_tokens: int,
    steps: int,
    live: float | None,
    num_steps: int | None,
    device: Literal["cuda", "cpu"],
    gpus: str,
    args: tuple[str, ...],
    engine_version: str | None,
    as_json: bool,
) -> int:
    """Is the draft of TARGET (a folder or a cached hub id) itself good?

    Its head is run on the target's own states, step by step. Exit code 1: with --live, a side is at fault.
    """
    from sweeper.cli.doctor import resolved_version
    from sweeper.effects.requirements import require_torch

    require_torch("sweeper diagnose accuracy")
    from sweeper.doctor.accuracy import measure
    from sweeper.doctor.agreement import blame
    from sweeper.effects.hub import local_checkpoint

    if (live is None) != (num_steps is None) or (num_steps is not None and not 1 <= num_steps <= steps):
        raise ConfigError("--live and --num-steps belong together, and --num-steps must be 1 to --steps")
    version = resolved_version(engine_version)
    draft_path, target_path = local_checkpoint(draft), local_checkpoint(target)
    if samples is None:
        engine = _engine(target_path, device, gpus, args)
        used = _asked(engine, draft_path, version=version, prompts=prompts, count=num_prompts, tokens=max_tokens)
    else:
        used = _dumps(samples, target_path)
    agreement = measure(draft_path, target_path, used, steps=steps, version=version)
    judged = blame(agreement, live=live, steps=num_steps) if live is not None and num_steps is not None else None
    click.echo(_accuracy_json(agreement, judged) if as_json else _accuracy_text(agreement, judged))
    return 1 if judged is not None and judged.at_fault != "neither" else 0


@command.command("wiring", short_help="Which layers was it trained on, which does it get?")
@click.argument("target")
@click.option("--draft", required=True, help="Folder or cached hub id of the draft.")
@click.option("--samples", required=True, type=click.Path(path_type=Path), help="The training dumps.")
@click.option(
    "--portion", type=click.IntRange(1), default=16, show_default=True, help="Layers captured per server start."
)
@click.option(
    "--probe/--no-probe", default=True, show_default=True, help="Also look at what the loaded draft receives."
)
@click.option("--algorithm", default="EAGLE3", show_default=True, help="For the probe.")
@_engine_options
def wiring(  # noqa: PLR0913  one parameter an option
    target: str,
    draft: str,
    samples: Path,
    portion: int,
    probe: bool,
    algorithm: str,
    device: Literal["cuda", "cpu"],
    gpus: str,
    args: tuple[str, ...],
    engine_version: str | None,
    as_json: bool,
) -> int:
    """Which layers of TARGET were the training dumps made of, and does this engine deliver the same?

    Exit code 1: it does not.
    """
    from sweeper.cli.doctor import resolved_version
    from sweeper.effects.requirements import require_torch

    require_torch("sweeper diagnose wiring")
    from sweeper.doctor.wiring import examine_wiring
    from sweeper.effects.hub import local_checkpoint

    target_path, draft_path = local_checkpoint(target), local_checkpoint(draft)
    engine, dumps = _engine(target_path, device, gpus, args), _dumps(samples, target_path)
    report = examine_wiring(engine, draft_path, dumps, version=resolved_version(engine_version), portion=portion)
    probed = _probed(engine, draft_path, dumps, algorithm) if probe else None
    if as_json:
        received = None if probed is None else {**asdict(probed), "sentence": probed.sentence}
        click.echo(json.dumps({**asdict(report), "probe": received}, indent=2))
    else:
        click.echo(wiring_text(report))
        click.echo(_probe_text(probed) if probed else "")
    right = report.wiring.kind == "right" and report.paths_agree
    return 0 if right and (probed is None or all(item.fits for item in probed.received)) else 1


def _probed(engine: "Engine", draft: Path, dumps: "tuple[Sample, ...]", algorithm: str) -> "ProbeReport":
    import asyncio

    from sweeper.doctor.live import Text
    from sweeper.doctor.probe import probe

    prompt = Text(name="probe", input_ids=tuple(dumps[0].input_ids[:64].tolist()), max_new_tokens=24)
    return asyncio.run(probe(engine, draft, [prompt], algorithm=algorithm))


def _probe_text(report: "ProbeReport") -> str:
    lines = ["", "the drafter receives"]
    for item in report.received:
        norms = ", ".join(f"{norm:.2f}" for norm in item.norms)
        lines.append(f"  {item.mode:<18} width {item.width} (trained {item.expected}), norms {norms}")
    return "\n".join([*lines, paragraph(report.sentence)])


@command.command("run", short_help="Why was the accept length of a finished run low?")
@click.argument("run", type=click.Path(path_type=Path), default=Path("results"))
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def finished(run: Path, as_json: bool) -> int:
    """Name the most likely cause of a low accept length in RUN, arm by arm, and what was excluded.

    RUN is a run folder, or a folder of results (the latest run in it). Exit code 1: an arm is low or failed.
    """
    from sweeper.doctor.causes import explain
    from sweeper.execution.examination import examined_arm
    from sweeper.present.locate import run_folder
    from sweeper.store.reader import read_run

    data = read_run(run_folder(run))
    arms = explain(data, lambda arm: examined_arm(arm, data.plan.engine_version))
    if as_json:
        click.echo(json.dumps([{**asdict(arm), "sentence": arm.sentence} for arm in arms], indent=2))
    else:
        for arm in arms:
            said = [arm.sentence, *(f"also {cause.code}: {cause.evidence}" for cause in arm.causes[1:])]
            if arm.low and arm.excluded:
                said.append(f"excluded: {', '.join(arm.excluded)}")
            click.echo("\n".join([arm.label, *(paragraph(text, "  ") for text in said)]))
    return 1 if any(arm.low or arm.ending for arm in arms) else 0


def _engine(target: Path, device: Literal["cuda", "cpu"], gpus: str, args: tuple[str, ...]) -> "Engine":
    from sweeper.cli.doctor import pairs, value_of
    from sweeper.doctor.live import Engine

    try:
        ids = tuple(int(part) for part in gpus.split(",")) if device == "cuda" else ()
    except ValueError:
        raise ConfigError(f"--gpus {gpus!r}: write numbers with commas, like 0,1") from None
    return Engine(
        target=target,
        device=device,
        gpu_ids=ids,
        args={key: value_of(text) for key, text in pairs(args).items()},
        on_phase=lambda text: click.echo(text, err=True),
    )


def _asked(
    engine: "Engine", draft: Path, *, version: str, prompts: str, count: int, tokens: int
) -> tuple["Sample", ...]:
    """States of the target's own greedy answers."""
    from tokenizers import Tokenizer

    from sweeper.core.experiment import Workload
    from sweeper.doctor.live import Text, capture
    from sweeper.doctor.manifest import read_config
    from sweeper.effects.prompts import load_prompts
    from sweeper.engine.draft_config import draft_config, target_config
    from sweeper.engine.layers import captured_layers, ids_for

    file = engine.target / "tokenizer.json"
    if not file.is_file():
        raise PreflightError(f"{engine.target}: no tokenizer.json; give dumps with --samples")
    config = target_config(read_config(engine.target))
    if config.architecture is None or config.num_hidden_layers is None or config.hidden_size is None:
        raise PreflightError(f"{engine.target}: config.json names no class, depth or width")
    facts: dict[str, Any] = {
        "architecture": config.architecture, "num_layers": config.num_hidden_layers, "version": version
    }  # fmt: skip
    seen = captured_layers(ids=draft_config(read_config(draft)).layer_ids, **facts)
    ids = ids_for(layers=seen.layers, **facts) if seen is not None and not seen.unreached else None
    if ids is None:
        raise PreflightError(f"{draft}: its layers cannot be captured here; see `sweeper doctor {draft}`")
    tokenizer = Tokenizer.from_file(str(file))
    chosen = load_prompts(Workload(prompts=prompts, num_prompts=count), tokenizer_dir=engine.target).prompts
    encoded = [(prompt.prompt_id, tuple(tokenizer.encode(prompt.text).ids)) for prompt in chosen]
    texts = [Text(name=name, input_ids=token_ids, max_new_tokens=tokens) for name, token_ids in encoded]
    return capture(engine, texts, layer_ids=ids, hidden=config.hidden_size)


def _dumps(samples: Path, target: Path) -> tuple["Sample", ...]:
    from sweeper.doctor.manifest import read_config
    from sweeper.doctor.samples import read_samples
    from sweeper.engine.draft_config import target_config

    if not samples.exists():
        raise PreflightError(f"{samples}: no such file or folder")
    hidden = target_config(read_config(target)).hidden_size
    if hidden is None:
        raise PreflightError(f"{target}: config.json names no hidden_size")
    return read_samples(samples, hidden=hidden)


def _accuracy_json(agreement: "Agreement", judged: "Blame | None") -> str:
    verdict: Mapping[str, Any] | None = asdict(judged) if judged else None
    return json.dumps({**asdict(agreement), "conditional": agreement.conditional, "verdict": verdict}, indent=2)


def _accuracy_text(agreement: "Agreement", judged: "Blame | None") -> str:
    lines = [f"{agreement.rows} starting points", "", "steps  teacher-forced  on its chain  accept length"]
    for step, (forced, joint, length) in enumerate(
        zip(agreement.teacher_forced, agreement.joint, agreement.accept_length, strict=True), start=1
    ):
        lines.append(f"{step:>5}  {forced:>14.1%}  {joint:>12.1%}  {length:>13.2f}")
    how = (
        "walking the target's own text"
        if agreement.walked
        else "1 + sum of the chain; the text is not known as its own"
    )
    lines += ["", f"accept length by {how}"]
    return "\n".join([*lines, *(["", paragraph(judged.sentence)] if judged else [])])


def wiring_text(report: "WiringReport") -> str:
    """Dump slot beside engine layer, then what settles it."""
    lines = [f"{'slot':<16} {'input of layer':<17} {'cosine':<7} {'distance (next)':<16} norm dump / engine"]
    for item in report.wiring.matches:
        layer = str(item.layer) if item.layer is not None else f"none (nearest {item.nearest})"
        distance = f"{item.distance:.3f} ({item.second_distance:.3f})"
        norms = f"{item.norm:.2f} / {item.engine_norm:.2f}"
        lines += [
            f"{item.slot:<16} {layer:<17} {item.cosine:<7.4f} {distance:<16} {norms}",
            f"  first values of the dump   {_values(item.first_values)}",
            f"               of the engine {_values(item.engine_first_values)}",
        ]
    lines += ["", paragraph(report.wiring.sentence)]
    if report.decode_distance is not None:
        agreed = "agree" if report.paths_agree else "DISAGREE"
        lines.append(f"Prefill and decode {agreed}: {report.decode_distance:.1%} apart.")
    if report.wiring.ids is not None and report.wiring.kind == "other-ids":
        ids = ",".join(map(str, report.wiring.ids))
        lines.append(f"A draft with these ids: sweeper doctor DRAFT --aux-layer-ids {ids} --fix OUT")
    return "\n".join(lines)


def _values(values: Sequence[float]) -> str:
    return "".join(f"{value:>10.4g}" for value in values)
