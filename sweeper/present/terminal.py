"""The verdict and the table of a run in 80 columns."""

import sys
from typing import IO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sweeper.analysis.compare import compare
from sweeper.core.run import RunData
from sweeper.present.cards import by_command, lead_in
from sweeper.present.document import Document, LoadTable, Row, document
from sweeper.present.glyphs import bar
from sweeper.present.overview import overview

WIDTH = 80
PICTURED_LABEL = 11
"""Longer names need the room of the bars: no number may be cut for a picture."""
MOST_ANSWER_ROWS = 24
"""Beyond so many trials only those are shown whose answers part somewhere."""
STYLES = {"better": "green", "worse": "red", "failed": "red", "baseline": "dim", "skipped": "dim", "pending": "dim"}


def print_run(run: RunData, *, file: IO[str] | None = None) -> None:
    """Headline, winners and one table a load point. No colour into pipes or with NO_COLOR; at most 80 columns."""
    console = make_console(file)
    comparison = compare(run)
    doc = document(run, comparison)
    console.print(Text(doc.headline, style="bold"))
    for note in doc.notes:
        console.print(Text(note, style="yellow"))
    lines = overview(comparison)
    if lines:
        console.print()
        console.print(lines)
    for table in doc.tables:
        console.print()
        console.print(_title(table))
        console.print(_table(table))
        _print_remarks(console, table)
    _print_answers(console, doc)
    _print_failures(console, doc)
    _print_commands(console, doc)


def make_console(file: IO[str] | None = None) -> Console:
    """A console no wider than WIDTH; a pipe gets WIDTH, so that output does not depend on who reads it."""
    console = Console(file=file or sys.stdout, highlight=False, soft_wrap=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console


def _title(table: LoadTable) -> Text:
    text = Text(table.title[:1].upper() + table.title[1:], style="bold")
    if table.floor:
        text.append(f"   {table.floor}", style="dim not bold")
    return text


def _table(table: LoadTable) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    pictured = all(len(row.label) <= PICTURED_LABEL for row in table.rows)
    made.add_column("", max_width=34, overflow="fold")
    made.add_column("speedup", no_wrap=True)
    made.add_column("tok/s", justify="right", no_wrap=True)
    if pictured:
        made.add_column("", no_wrap=True)
    made.add_column("TTFT ms", justify="right", no_wrap=True)
    made.add_column("TPOT ms", justify="right", no_wrap=True)
    made.add_column("length", justify="right", no_wrap=True)
    made.add_column("even at", justify="right", no_wrap=True)
    fastest = max((_number(row.tok_per_s) for row in table.rows), default=0.0)
    for row in table.rows:
        style = STYLES.get(row.standing, "")
        made.add_row(
            Text(f"{row.mark} {row.label}"),
            Text(_speedup(row), style=style),
            row.tok_per_s,
            *([Text(bar(_number(row.tok_per_s), fastest), style="cyan")] if pictured else []),
            row.ttft[0],
            row.tpot[0],
            row.accept_length,
            row.break_even,
        )
    return made


def _speedup(row: Row) -> str:
    if row.standing in ("failed", "skipped", "pending", "baseline"):
        return row.standing
    return row.speedup.replace(" (no interval)", " ?")


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def _print_remarks(console: Console, table: LoadTable) -> None:
    told: dict[str, list[str]] = {}
    for row in table.rows:
        words = [f"the engine ran {row.effective} instead of {row.requested}"] if row.rewritten else []
        words += [row.remark] if row.remark and row.standing != "failed" else []
        if words:
            told.setdefault("; ".join(words), []).append(row.label)
    for remark, labels in told.items():
        console.print(Padding(Text(f"{', '.join(labels)}: {remark}", style="yellow"), (0, 0, 0, 2), expand=False))
    for line in table.ties:
        console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))


def _print_answers(console: Console, doc: Document) -> None:
    if doc.answers is None:
        return
    console.print()
    console.print(Text("Greedy answers beside the baseline's", style="bold"))
    console.print(Text(doc.answers.intro, style="dim"))
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    made.add_column("", max_width=34, overflow="fold")
    made.add_column("", no_wrap=True)
    for name in ("equal", "ties", "different", "unchecked"):
        made.add_column(name, justify="right", no_wrap=True)
    rows = doc.answers.rows
    shown = rows if len(rows) <= MOST_ANSWER_ROWS else tuple(row for row in rows if row.detail)
    for row in shown:
        made.add_row(Text(row.label), row.load, *row.counts[1:], style="red" if row.lossy else "")
    console.print(made)
    if len(shown) < len(rows):
        console.print(Text(f"{len(rows) - len(shown)} more, in which every answer is equal", style="dim"))
    for row in shown:
        if row.detail:
            console.print(Padding(Text(f"{row.label} at {row.load}: {row.detail}"), (0, 0, 0, 2), expand=False))


def _print_failures(console: Console, doc: Document) -> None:
    for card in doc.failures:
        console.print()
        expected = ", expected" if card.expected else ""
        console.print(Text(f"✗ {card.label} ({card.where}): {card.failure_class}{expected}", style="red bold"))
        console.print(Padding(Text(card.message), (0, 0, 0, 2), expand=False))
        for line in card.log_lines[-3:]:
            console.print(Padding(Text(line, style="dim"), (0, 0, 0, 2), expand=False))
        if card.remedy:
            console.print(Padding(Text(f"→ {card.remedy}"), (0, 0, 0, 2), expand=False))


def _print_commands(console: Console, doc: Document) -> None:
    """The lines to paste, each command once; never wrapped, so that they can be copied."""
    for command, cards in by_command(doc.winners, lambda card: card.one_line).items():
        console.print()
        console.print(Text(lead_in(cards), style="dim"))
        console.print(Text(command), soft_wrap=True)
