"""`sweeper report RUN`: the report of a run as HTML and in the terminal, or as md, csv, json."""

from pathlib import Path

import click

from sweeper.core.plain import plain
from sweeper.errors import StoreError


@click.command("report")
@click.argument("run", type=click.Path(path_type=Path), default=Path("results"))
@click.option(
    "--format",
    "kind",
    type=click.Choice(["html", "md", "csv", "json"]),
    default="html",
    help="html writes report.html into the run folder and prints the tables; the others go to stdout.",
)
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@click.option("--out", type=click.Path(path_type=Path), help="Write to this file instead.")
def command(run: Path, kind: str, as_json: bool, out: Path | None) -> int:
    """Report RUN: a run folder, or a folder of results (the latest run in it)."""
    from sweeper.present.locate import run_folder
    from sweeper.store.reader import read_run

    folder = run_folder(run)
    if as_json or kind != "html":
        _deliver(_rendered(folder, "json" if as_json else kind), out)
        return 0
    from sweeper.present.report import write_report
    from sweeper.present.terminal import print_run

    path = write_report(folder, out)
    print_run(read_run(folder))
    click.echo(plain(f"\nReport: {path}"))
    return 0


def _rendered(folder: Path, kind: str) -> str:
    from sweeper.store.reader import read_run

    run = read_run(folder)
    if kind == "md":
        from sweeper.present.markdown import render_markdown

        return render_markdown(run)
    from sweeper.present.tabular import render_csv, render_json

    return render_csv(run) if kind == "csv" else render_json(run)


def _deliver(text: str, out: Path | None) -> None:
    if out is None:
        click.echo(text, nl=not text.endswith("\n"))
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {error.strerror}; correct --out") from error
