"""Two runs side by side in 80 columns."""

from typing import IO

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sweeper.analysis.verdict import ratio_words
from sweeper.analysis.versus import Versus
from sweeper.core.run import RunData
from sweeper.present.document import STANDING_MARK
from sweeper.present.numbers import rate
from sweeper.present.terminal import STYLES, make_console


def _name(run: RunData) -> str:
    return f"{run.plan.experiment} {run.run_id}"


def print_versus(result: Versus, first: RunData, second: RunData, *, file: IO[str] | None = None) -> None:
    """The badge of what differs (only with --force), then one line a configuration and load point."""
    console = make_console(file)
    if result.differences:
        console.print(Text("NOT COMPARABLE, shown because of --force:", style="red bold"))
        for difference in result.differences:
            console.print(Padding(Text(f"· {difference}", style="red"), (0, 0, 0, 2)))
        console.print()
    console.print(Text(f"{_name(second)} (after) against {_name(first)} (before), output tok/s", style="bold"))
    if first.path.resolve() == second.path.resolve():
        console.print(Text("Both are the same run.", style="yellow"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", max_width=34, overflow="fold")
    table.add_column("load", no_wrap=True)
    table.add_column("before", justify="right", no_wrap=True)
    table.add_column("after", justify="right", no_wrap=True)
    table.add_column("ratio", no_wrap=True)
    for change in result.changes:
        standing = change.estimate.verdict
        table.add_row(
            Text(f"{STANDING_MARK[standing]} {change.label}"),
            Text(change.load),
            rate(change.first_tok_per_s),
            rate(change.second_tok_per_s),
            Text(ratio_words(change.estimate), style=STYLES.get(standing, "")),
        )
    console.print(table)
    for words, missing in (("only in the first", result.only_first), ("only in the second", result.only_second)):
        if missing:
            console.print(Text(f"{words}: {', '.join(missing)}", style="yellow"))
    if result.changes and all(change.estimate.verdict == "no difference" for change in result.changes):
        console.print(Text("No difference beyond noise."))
