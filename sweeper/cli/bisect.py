"""`sweeper bisect`: which engine version or draft revision was the first bad one."""

import json
from pathlib import Path
from typing import Any

import click

from sweeper.core.plain import plain

METRICS = ("accept_length", "verify_step_ms", "baseline_step_ms", "output_tok_per_s", "ttft_ms", "speedup")


@click.command()
@click.argument("experiment", type=click.Path(path_type=Path))
@click.option("--axis", type=click.Choice(["engine_version", "draft_revision"]), required=True)
@click.option("--good", required=True, help="A version that was fine: a value of the axis, or a part that names it.")
@click.option("--bad", required=True, help="A version that was not.")
@click.option("--only", metavar="'steps=3,concurrency=1'", help="The one trial that moved.")
@click.option("--metric", "quantity", type=click.Choice(METRICS), default="accept_length", show_default=True)
@click.option("--repeats", type=click.IntRange(2, 1_000), default=6, show_default=True, help="Of each version.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results/bisect"), show_default=True)
@click.option("--fresh", is_flag=True, help="Measure all of it again instead of going on with what --out holds.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def command(experiment: Path, out: Path, fresh: bool, as_json: bool, **options: Any) -> int:
    """Run one trial over the versions between --good and --bad and name the first bad one.

    A hunt that was cut goes on when the same question is asked again within 20 hours; one that ended answers again.

    The versions are the values of a sweep axis of EXPERIMENT, oldest first: engine.python (interpreters) or
    engine.command_prefix (images) for engine_version, speculative.draft_model_path for draft_revision.
    """
    from datetime import UTC, datetime

    from sweeper.nightly.bench import Interrupted, SessionBench
    from sweeper.nightly.bisect import Question, candidates, find_first_bad, identity
    from sweeper.nightly.hunts import open_hunt
    from sweeper.store.codec import to_plain

    question = Question(**options)
    bench = SessionBench(experiment)
    found = candidates(bench.plan, bench.sweep_axes, question)
    click.echo(f"{question.quantity} over {len(found.versions)} versions", err=True)
    asked = identity(bench.plan, found, question, bench.circumstances())
    folder = open_hunt(out, asked, fresh=fresh, now=lambda: datetime.now(UTC))
    try:
        hunt = find_first_bad(bench.plan, found, question, bench.again, folder, _say)
    except Interrupted:
        _say("interrupted; the same command goes on with this hunt")
        return 130
    finally:
        folder.close()
    if as_json:
        click.echo(json.dumps(to_plain(hunt), indent=2))
        return 0
    for one in hunt.tried:
        value = "–" if one.value is None else f"{one.value:.4g}"
        click.echo(f"{one.standing:<13} {value:>9}  {one.version}")
    click.echo(f"first bad: {hunt.first_bad} (last good: {hunt.last_good})")
    if hunt.unknown:
        click.echo(f"or one of these, which do not run: {', '.join(hunt.unknown)}")
    return 0


def _say(text: str) -> None:
    click.echo(plain(text), err=True)
