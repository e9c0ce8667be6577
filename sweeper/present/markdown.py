"""A run as Markdown that reads well in a pull request."""

from sweeper.core.run import RunData
from sweeper.present.answers import COLUMNS as COLUMNS_OF_ANSWERS
from sweeper.present.cards import by_command, lead_in
from sweeper.present.document import Document, LoadTable, Row, document
from sweeper.present.side_tables import SideTable

COLUMNS = (
    *("configuration", "ran as", "verdict", "speedup", "tok/s", "tok/s/user", "TTFT p50 / p95 / p99 ms"),
    *("TPOT p50 / p95 / p99 ms", "accept length", "accept rate", "step ms", "delivered", "break-even"),
)


def render_markdown(run: RunData) -> str:
    """Verdict, winners with their commands, one table a load point, failures, environment."""
    doc = document(run)
    blocks = [
        f"## {cell(doc.experiment)}",
        f"**{cell(doc.headline)}**",
        " · ".join(f"{name}: {cell(value)}" for name, value in doc.facts),
        *(f"> {cell(note)}" for note in doc.notes),
        *(_table(table) for table in doc.tables),
        *_answers(doc),
        *(_side_table(table) for table in doc.side_tables),
        "\n".join(f"- {cell(line)}" for line in (*doc.engine_notes, *doc.merged)),
        *_failures(doc),
        *_commands(doc),
        f"<sub>Run {cell(doc.run_id)}. {' · '.join(f'{name}: {cell(value)}' for name, value in doc.environment)}</sub>",
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def cell(text: str) -> str:
    """Text that ends no table cell, starts no markup and makes no HTML."""
    flat = " ".join(text.split())
    for sign in "\\`*_[]|":
        flat = flat.replace(sign, f"\\{sign}")
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _table(table: LoadTable) -> str:
    lines = [f"### {table.title[:1].upper()}{cell(table.title[1:])}", ""]
    lines += [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * 3 + "---:|" * (len(COLUMNS) - 3)]
    lines += [f"| {' | '.join(_cells(row))} |" for row in table.rows]
    remarks = [f"- {cell(row.label)}: {cell(row.remark)}" for row in table.rows if row.remark]
    remarks += [f"- {cell(line)}" for line in table.ties]
    return "\n".join([*lines, *(["", *remarks] if remarks else [])])


def _cells(row: Row) -> list[str]:
    ran = f"**{cell(row.requested)} → {cell(row.effective)}**" if row.rewritten else cell(row.effective)
    best = f"**{row.speedup}**" if row.standing == "better" else row.speedup
    values = [row.tok_per_s, row.per_user, " / ".join(row.ttft), " / ".join(row.tpot), row.accept_length]
    values += [row.accept_rate, row.step_ms, row.delivered, row.break_even]
    return [cell(row.label), ran, f"{row.mark} {row.standing}", best, *values]


def _answers(doc: Document) -> list[str]:
    if doc.answers is None:
        return []
    lines = ["### Greedy answers beside the baseline's", "", cell(doc.answers.intro), ""]
    lines += [f"| {' | '.join(COLUMNS_OF_ANSWERS)} |", "|---|---|" + "---:|" * 5 + "---|"]
    lines += [
        f"| {' | '.join([cell(row.label), cell(row.load), *row.counts, cell(row.detail)])} |"
        for row in doc.answers.rows
    ]
    return ["\n".join(lines)]


def _side_table(table: SideTable) -> str:
    lines = [f"### {table.title}", "", cell(table.intro), ""]
    lines += [f"| {' | '.join(table.columns)} |", "|---|---|" + "---:|" * (len(table.columns) - 2)]
    lines += [f"| {' | '.join(map(cell, row))} |" for row in table.rows]
    return "\n".join(lines)


def _failures(doc: Document) -> list[str]:
    if not doc.failures:
        return []
    lines = ["### Failures", ""]
    for card in doc.failures:
        expected = ", expected" if card.expected else ""
        lines.append(
            f"- **{cell(card.label)}** at {cell(card.where)}: {card.failure_class}{expected}: {cell(card.message)}. "
            f"{cell(card.remedy)}"
        )
    return ["\n".join(lines)]


def _commands(doc: Document) -> list[str]:
    # Indented code cannot be ended from inside, whatever a path in the command contains.
    return [
        f"{cell(lead_in(cards))}\n\n" + "\n".join(f"    {line}" for line in command.splitlines())
        for command, cards in by_command(doc.winners, lambda card: card.command).items()
    ]
