"""`sweeper compare A B`: what changed between two runs; refuses when the answer would be a lie."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweeper.errors import ComparabilityError

if TYPE_CHECKING:
    from sweeper.analysis.versus import Versus


@click.command("compare")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Compare although the runs differ; the differences are printed as a badge.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(first: Path, second: Path, force: bool, as_json: bool) -> int:
    """Compare run SECOND with run FIRST, configuration by configuration.

    Each is a run folder, or a folder of results (the latest run in it).
    """
    from sweeper.analysis.versus import versus
    from sweeper.present.locate import run_folder
    from sweeper.store.reader import read_run

    runs = [read_run(run_folder(path)) for path in (first, second)]
    result = versus(*runs)
    if result.differences and not force:
        named = "; ".join(map(str, result.differences))
        raise ComparabilityError(f"these runs are not comparable: {named} (--force compares them all the same)")
    if as_json:
        click.echo(json.dumps(_data(result), indent=2, ensure_ascii=False))
    else:
        from sweeper.present.versus import print_versus

        print_versus(result, runs[0], runs[1])
    return 0


def _data(result: "Versus") -> dict[str, object]:
    return {
        "comparable": not result.differences,
        "differences": [{"what": d.what, "first": d.first, "second": d.second} for d in result.differences],
        "changes": [
            {
                "arm": change.label,
                "load": change.load,
                "first_tok_per_s": change.first_tok_per_s,
                "second_tok_per_s": change.second_tok_per_s,
                "ratio": change.estimate.ratio,
                "low": change.estimate.low,
                "high": change.estimate.high,
                "verdict": change.estimate.verdict,
            }
            for change in result.changes
        ],
        "only_first": list(result.only_first),
        "only_second": list(result.only_second),
    }
