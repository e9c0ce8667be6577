"""`sweeper export RUN --format F`: a run in the shapes that other tools read, and the winner ready to deploy."""

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeper.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from sweeper.analysis.compare import Comparison
    from sweeper.analysis.winners import Winner
    from sweeper.core.run import RunData

FORMATS = {
    "csv": "one line a trial",
    "parquet": "the same (needs --out)",
    "bench_serving": "one JSON line a measurement, keys of SGLang's bench_serving",
    "github-bigger": "github-action-benchmark, customBiggerIsBetter: tok/s, speedup, accept length",
    "github-smaller": "github-action-benchmark, customSmallerIsBetter: TTFT, TPOT",
    "otava": "CSV for Apache Otava, one line for each run below RUN",
    "adaptive": "--speculative-adaptive-config of SGLang, from the measured frontier",
    "systemd": "unit file of the winner",
    "compose": "compose file of the winner",
}


@click.command("export", epilog="Formats: " + "; ".join(f"{name}: {words}" for name, words in FORMATS.items()))
@click.argument("run", type=click.Path(path_type=Path), default=Path("results"))
@click.option("--format", "kind", type=click.Choice(list(FORMATS)), required=True)
@click.option("--concurrency", type=int, help="Winner of this load point (systemd, compose); default: the lowest.")
@click.option("--out", type=click.Path(path_type=Path), help="Write to this file instead of stdout.")
def command(run: Path, kind: str, concurrency: int | None, out: Path | None) -> int:
    """Export RUN: a run folder, or a folder of results (the latest run in it; otava: all of them)."""
    if kind == "parquet":
        return _parquet(run, out)
    text = _otava(run) if kind == "otava" else _one_run(run, kind, concurrency)
    if out is None:
        click.echo(text, nl=False)
        return 0
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {error.strerror}; correct --out") from error
    return 0


def _one_run(path: Path, kind: str, concurrency: int | None) -> str:
    from sweeper.analysis import exports
    from sweeper.analysis.compare import compare
    from sweeper.present.deploy import compose_file, systemd_unit
    from sweeper.present.locate import run_folder
    from sweeper.present.tabular import render_csv
    from sweeper.store.reader import read_run

    run = read_run(run_folder(path))
    if kind == "csv":
        return render_csv(run)
    if kind == "bench_serving":
        return exports.bench_serving_lines(run)
    comparison = compare(run)
    if kind == "github-bigger":
        return exports.github_action_benchmark(comparison, "bigger")
    if kind == "github-smaller":
        return exports.github_action_benchmark(comparison, "smaller")
    if kind == "adaptive":
        return _adaptive(run, comparison)
    winner = _winner(comparison, concurrency)
    return systemd_unit(run, winner) if kind == "systemd" else compose_file(run, winner)


def _adaptive(run: "RunData", comparison: "Comparison") -> str:
    from sweeper.analysis.exports import adaptive_config

    try:
        config = adaptive_config(comparison)
    except ValueError as error:
        raise ConfigError(f"{run.path}: {error}") from error
    return json.dumps(config, indent=2) + "\n"


def _winner(comparison: "Comparison", concurrency: int | None) -> "Winner":
    winners = [winner for winner in comparison.winners if concurrency in (None, winner.point.concurrency)]
    if not winners:
        known = ", ".join(dict.fromkeys(str(winner.point.concurrency) for winner in comparison.winners))
        if not known:
            raise ConfigError("no winner: nothing in this run may be ranked; `sweeper report` says why")
        raise ConfigError(f"no winner at concurrency {concurrency}; there is one at: {known}")
    return min(winners, key=lambda winner: (winner.point.concurrency, -winner.output_tok_per_s))


def _otava(path: Path) -> str:
    from sweeper.analysis.compare import compare
    from sweeper.analysis.exports import otava_rows
    from sweeper.present.locate import runs_below
    from sweeper.store.reader import read_run

    runs = [read_run(folder) for folder in runs_below(path)]
    rows: list[dict[str, Any]] = otava_rows([(run, compare(run)) for run in runs])
    columns = dict.fromkeys(key for row in rows for key in row)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(columns) or ["time", "commit"], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _parquet(path: Path, out: Path | None) -> int:
    from sweeper.analysis.tables import frame
    from sweeper.present.locate import run_folder
    from sweeper.store.reader import read_run

    if out is None:
        raise ConfigError("parquet is binary: name a file with --out")
    table = frame(read_run(run_folder(path)))
    try:
        table.to_parquet(out, index=False)
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {error.strerror}; correct --out") from error
    return 0
