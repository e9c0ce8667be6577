"""Tables beside the main one: latencies without ramp and tail, and by turn of the conversations."""

from dataclasses import dataclass

from sweeper.analysis.compare import Comparison
from sweeper.analysis.outcome import Outcome
from sweeper.analysis.points import Latency, Numbers, load_words
from sweeper.present.numbers import ABSENT, fixed, milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTable:
    key: str
    short: str
    """For the list of sections."""
    title: str
    intro: str
    columns: tuple[str, ...]
    """The first two name the row."""
    rows: tuple[tuple[str, ...], ...]


def side_tables(comparison: Comparison) -> tuple[SideTable, ...]:
    """Those that this run has something for."""
    measured = [(entry, entry.numbers) for entry in comparison.outcomes if entry.numbers is not None]
    return tuple(table for table in (_steady(measured), _turns(measured)) if table.rows)


def _steady(measured: list[tuple[Outcome, Numbers]]) -> SideTable:
    rows = []
    for entry, numbers in measured:
        if (steady := numbers.steady_latencies) is not None:
            pairs = ((steady.ttft, numbers.ttft), (steady.tpot, numbers.tpot), (steady.e2e, numbers.e2e))
            cells = [f"{words(inside)} | {words(whole)}" for inside, whole in pairs]
            rows.append((entry.arm.label, load_words(entry.trial.load), *cells))
    return SideTable(
        key="steady",
        short="Steady latency",
        title="Latency without ramp and tail",
        intro=(
            "Only requests sent and ended while the asked concurrency was reached, beside all of them "
            "(steady | whole); p50 / p99 in ms, p99 from 100 requests on. Where that window is short, long answers "
            "are under-represented."
        ),
        columns=("configuration", "load", "TTFT", "TPOT", "E2E"),
        rows=tuple(rows),
    )


def _turns(measured: list[tuple[Outcome, Numbers]]) -> SideTable:
    return SideTable(
        key="turns",
        short="Turns",
        title="By turn of the conversations",
        intro=(
            "From the second turn on a prompt holds the model's own answers, so that prompts are the same in every "
            "configuration only as far as the answers are; what came before is in the prefix cache, as in service."
        ),
        columns=("configuration", "load", "turn", "requests", "prompt tokens", "TTFT", "TPOT", "accept length"),
        rows=tuple(
            (
                entry.arm.label,
                load_words(entry.trial.load),
                str(turn.turn),
                str(turn.requests),
                ABSENT if turn.input_tokens is None else f"{turn.input_tokens:.0f}",
                words(turn.latencies.ttft),
                words(turn.latencies.tpot),
                fixed(turn.accept_length),
            )
            for entry, numbers in measured
            for turn in numbers.turns
        ),
    )


def words(latency: Latency) -> str:
    """p50 / p99 in ms."""
    return f"{milliseconds(latency.p50_ms)} / {milliseconds(latency.p99_ms)}"
