"""Imported results in 80 columns."""

from typing import IO, Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from sweeper.analysis.decompose import crossovers
from sweeper.present.document import STANDING_MARK
from sweeper.present.numbers import ABSENT, fixed, milliseconds, rate
from sweeper.present.terminal import STYLES, make_console

NO_INTERVAL = "? no interval: give several files of a label and load, or a --floor to judge by"


def print_imported(table: pd.DataFrame, *, file: IO[str] | None = None) -> None:
    """One line a label and load, remarks below."""
    console = make_console(file)
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    made.add_column("", max_width=34, overflow="fold")
    made.add_column("load", no_wrap=True)
    for name in ("speedup", "tok/s", "TTFT ms", "TPOT ms", "length", "even at"):
        made.add_column(name, justify="right", no_wrap=True)
    for row in table.to_dict("records"):
        made.add_row(
            Text(f"{STANDING_MARK.get(row['verdict'], ABSENT)} {row['arm']}"),
            Text(str(row["load"])),
            Text(_speedup(row), style=STYLES.get(str(row["verdict"]), "")),
            rate(_value(row["output_tok_per_s"])),
            milliseconds(_value(row["ttft_ms_p50"])),
            milliseconds(_value(row["tpot_ms_mean"])),
            fixed(_value(row["accept_length"])),
            fixed(_value(row["break_even_length"])),
        )
    console.print(made)
    if (table.verdict == "undecided").any():
        console.print(Text(NO_INTERVAL, style="dim"))
    for line in _crossings(table):
        console.print(Text(line))
    for remark in dict.fromkeys(
        f"{row['arm']}: {row['remarks']}" for row in table.to_dict("records") if _text(row["remarks"])
    ):
        console.print(Text(remark, style="yellow"))


def _crossings(table: pd.DataFrame) -> list[str]:
    """Where a label stops or starts to pay; no mean over the loads, which would hide it."""
    told = table[~table.is_baseline.astype(bool) & table.speedup.notna() & table.concurrency.notna()]
    return [
        f"{label} crosses 1 between concurrency {crossing.below} and {crossing.above}, near {crossing.at:.0f}"
        for label, rows in told.groupby("arm", sort=False)
        for crossing in crossovers(dict(zip(rows.concurrency.astype(int), rows.speedup, strict=True)))
    ]


def _speedup(row: dict[Any, Any]) -> str:
    ratio, low, high = (_value(row[key]) for key in ("speedup", "speedup_low", "speedup_high"))
    if row["verdict"] == "baseline":
        return "baseline"
    if ratio is None:
        return "–"
    return f"{ratio:.2f}×" + (f" ({low:.2f}–{high:.2f})" if low is not None and high is not None else " ?")


def _value(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
