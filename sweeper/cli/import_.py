"""`sweeper import FILES…`: results of other tools in Sweeper's table, compared with the baseline among them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweeper.cli.numbers import Finite
from sweeper.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from pandas import DataFrame

    from sweeper.analysis.imported import Imported


@click.command("import")
@click.argument("files", nargs=-1, required=True)
@click.option("--baseline", help="Label of the baseline; default: the only one without speculation.")
@click.option(
    "--floor",
    type=Finite(min=1.0),
    help="Ratio from which single measurements count as different, e.g. 1.01; they have no interval of their own.",
)
@click.option("--format", "kind", type=click.Choice(["table", "csv", "json", "parquet"]), default="table")
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@click.option("--out", type=click.Path(path_type=Path), help="Write csv, json or parquet to this file.")
def command(
    files: tuple[str, ...], baseline: str | None, floor: float | None, kind: str, as_json: bool, out: Path | None
) -> int:
    """Import FILES of bench_serving, `vllm bench serve`, GuideLLM or AIPerf, or logs of SGLang; LABEL=FILE names one.

    Several files of one label and load are taken as repeats, which gives their speedup an interval.
    """
    from sweeper.analysis.import_table import import_frame

    table = import_frame([row for file in files for row in _read(file)], baseline, floor=floor)
    kind = "json" if as_json else kind
    if kind == "table":
        from sweeper.present.import_view import print_imported

        print_imported(table)
    elif kind == "parquet":
        _write_parquet(table, out)
    else:
        _deliver(table.to_csv(index=False) if kind == "csv" else _json(table), out)
    return 0


def _read(argument: str) -> tuple["Imported", ...]:
    from sweeper.analysis.imported import parse_results

    label, path = None, Path(argument)
    if "=" in argument and not path.exists():
        label, _, name = argument.partition("=")
        path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; name the files that the tools wrote") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not text; give the JSON that the tool wrote") from error
    return parse_results(text, source=str(path), label=label or None)


def _json(table: "DataFrame") -> str:
    rows: str = table.to_json(orient="records", force_ascii=False)
    return json.dumps(json.loads(rows), indent=2, ensure_ascii=False) + "\n"


def _deliver(text: str, out: Path | None) -> None:
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {error.strerror}; correct --out") from error


def _write_parquet(table: "DataFrame", out: Path | None) -> None:
    if out is None:
        raise ConfigError("parquet is binary: name a file with --out")
    try:
        table.to_parquet(out, index=False)
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {error.strerror}; correct --out") from error
