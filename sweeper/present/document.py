"""What a report says, before it becomes HTML, Markdown or a terminal table: every string is ready to show."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.analysis.chains import chain_lines
from sweeper.analysis.compare import Comparison, compare
from sweeper.analysis.exports import adaptive_config
from sweeper.analysis.golden import matching_curves
from sweeper.analysis.outcome import Outcome
from sweeper.analysis.points import Latency, load_words
from sweeper.analysis.simulated import BADGE
from sweeper.analysis.twins import Twins
from sweeper.analysis.verdict import drift_words, explain, headline, ratio_words, twin_words
from sweeper.analysis.versus import mixtures
from sweeper.core.experiment import Workload
from sweeper.core.run import RunData
from sweeper.doctor import causes
from sweeper.present.answers import AnswerTable, answer_notes, answer_table, answer_words
from sweeper.present.assets import golden
from sweeper.present.cards import WinnerCard, tie_lines, winner_card
from sweeper.present.machine_tables import machine_tables
from sweeper.present.numbers import ABSENT, fixed, milliseconds, percent, rate
from sweeper.present.side_tables import SideTable, side_tables
from sweeper.present.surroundings import environment_words

STANDING_MARK = {
    "baseline": "●",
    "better": "▲",
    "worse": "▼",
    "no difference": "=",
    "undecided": "?",
    "not compared": ABSENT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One trial of the table."""

    label: str
    requested: str
    effective: str
    rewritten: bool
    """The engine ran something else than asked for."""
    captured: str
    standing: str
    mark: str
    speedup: str
    tok_per_s: str
    per_user: str
    ttft: tuple[str, str, str]
    """p50, p95, p99."""
    tpot: tuple[str, str, str]
    accept_length: str
    accept_rate: str
    step_ms: str
    break_even: str
    delivered: str
    remark: str
    answers: str = ""
    """`61 equal, 3 ties`: greedy answers beside the baseline's; empty where they were not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTable:
    title: str
    floor: str
    rows: tuple[Row, ...]
    ties: tuple[str, ...] = ()
    """The winner beside each configuration it cannot be told apart from, where that is not the baseline's row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCard:
    label: str
    where: str
    failure_class: str
    message: str
    remedy: str
    log_lines: tuple[str, ...]
    expected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    experiment: str
    run_id: str
    facts: tuple[tuple[str, str], ...]
    headline: str
    notes: tuple[str, ...]
    winners: tuple[WinnerCard, ...]
    adaptive: str
    """SGLang's adaptive configuration from the measured frontier; empty when it would say nothing."""
    tables: tuple[LoadTable, ...]
    explanations: tuple[tuple[str, str], ...]
    chains: tuple[str, ...]
    failures: tuple[FailureCard, ...]
    merged: tuple[str, ...]
    engine_notes: tuple[str, ...]
    """What the engine silently does to requests, and whose."""
    environment: tuple[tuple[str, str], ...]
    side_tables: tuple[SideTable, ...]
    answers: AnswerTable | None
    """Are greedy answers the baseline's?"""


def document(run: RunData, comparison: Comparison | None = None) -> Document:
    """Everything a report says about this run."""
    comparison = comparison or compare(run)
    return Document(
        experiment=run.plan.experiment,
        run_id=run.run_id,
        facts=_facts(run),
        headline=headline(comparison),
        notes=_notes(run, comparison),
        winners=tuple(winner_card(run, comparison, winner) for winner in comparison.winners),
        adaptive=_adaptive(comparison),
        tables=tuple(_table(comparison, load) for load in comparison.loads),
        explanations=_low_acceptance(run) + _explanations(comparison),
        chains=chain_lines(comparison) + tuple(f"Not held against {line}." for line in _unlike(run)),
        failures=_failures(comparison),
        merged=_merged(run),
        engine_notes=_engine_notes(run),
        environment=environment_words(run),
        side_tables=side_tables(comparison) + machine_tables(run, comparison),
        answers=answer_table(run, comparison),
    )


def _facts(run: RunData) -> tuple[tuple[str, str], ...]:
    first = run.measurements[0] if run.measurements else None
    arm = run.plan.arms[0]
    workload = run.experiment.get("workload")
    asked = dict(workload) if isinstance(workload, Mapping) else {}
    load = {
        name: asked.get(name, Workload.model_fields[name].default) for name in ("num_prompts", "prompts", "temperature")
    }
    gpus = first.fingerprint.gpu if first else ()
    facts = [
        ("Model", model_name(arm.server.model_path)),
        ("Engine", f"SGLang {(first and first.effective.version) or run.plan.engine_version or 'unknown'}"),
        ("Hardware", f"{len(gpus)} × {gpus[0]}" if gpus else ("CPU" if arm.server.device == "cpu" else "unknown")),
        (
            "Prompts",
            f"{load['num_prompts']} × {load['prompts']}, temperature {load['temperature']:g}",
        ),
        ("Measured", f"{_count(_starts(run), 'server start')} × {_count(run.plan.repeats, 'repeat')}"),
        ("Began", first.started_at[:16].replace("T", " ") + " UTC" if first else ABSENT),
    ]
    return tuple((name, str(value)) for name, value in facts)


def model_name(path: str) -> str:
    """`moonshotai/Kimi-K2.5`; of a folder its last two names: the rest is about the machine."""
    return "/".join(path.rstrip("/").split("/")[-2:])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _starts(run: RunData) -> int:
    """Of the arms that are compared: a single pass starts its baseline twice."""
    baselines = {arm.arm_id for arm in run.plan.arms if arm.is_baseline}
    groups = {group.group_id for group in run.plan.launch_groups if group.arm_id not in baselines}
    return max((entry.start + 1 for entry in run.plan.schedule if entry.group_id in groups), default=1)


def _notes(run: RunData, comparison: Comparison) -> tuple[str, ...]:
    notes = [] if run.finished else ["This run is not finished: what is missing is marked as not measured yet."]
    if mixed := mixtures(run):
        notes.append(f"Not all of this was measured with the same engine: {'; '.join(mixed)}.")
    if comparison.noise and comparison.noise.scope == "within one server start":
        notes.append(
            "Every claim holds within one server start: noise from start to start was not measured. "
            "Use run.starts: 2 or more for claims that survive a restart."
        )
    labels = {arm.arm_id: arm.label for arm in run.plan.arms}
    drifts = drift_words(comparison, labels)
    if drifts:
        notes.append("Drift of the baseline: " + "; ".join(drifts) + ".")
    notes += _twin_notes(comparison)
    notes += answer_notes(comparison)
    notes += [f"On disk: {problem}." for problem in run.problems]
    prompts = run.environment.get("prompts")
    notes += [f"Prompts: {words}." for words in prompts.get("warnings") or ()] if isinstance(prompts, Mapping) else []
    # The plan's own warning about single starts says the same before the run.
    warnings = [warning for warning in run.plan.warnings if "start-to-start" not in warning]
    return tuple(notes + [f"{warning[:1].upper()}{warning[1:]}." for warning in warnings])


def _twin_notes(comparison: Comparison) -> list[str]:
    """Where the verdict does not speak of them because there is more than them."""
    groups: dict[tuple[str, ...], list[Twins]] = {}
    for entry in comparison.twins:
        if not entry.alone:
            groups.setdefault(tuple(arm.arm_id for arm in entry.arms), []).append(entry)
    return [words.strip() for words in map(twin_words, groups.values()) if words]


def _adaptive(comparison: Comparison) -> str:
    try:
        config = adaptive_config(comparison)
    except ValueError:
        return ""
    worth = {tuple(entry["candidate_steps"]) for entry in config.values()} - {(0,)}
    return json.dumps(config) if len(config) > 1 and worth else ""


def _table(comparison: Comparison, load: str) -> LoadTable:
    outcomes = [entry for entry in comparison.outcomes if entry.load == load]
    floor = comparison.floors.get(load)
    return LoadTable(
        title=load_words(outcomes[0].trial.load),
        floor=f"smallest difference this run could have claimed: {floor - 1:.1%}" if floor else "",
        rows=tuple(trial_row(entry) for entry in outcomes),
        ties=_ties(comparison, load),
    )


def _ties(comparison: Comparison, load: str) -> tuple[str, ...]:
    winners = [winner for winner in comparison.winners if winner.load == load and winner.estimate]
    return tuple(line for winner in winners for line in tie_lines(winner))


def trial_row(outcome: Outcome) -> Row:
    """One trial as the table shows it."""
    numbers, spec = outcome.numbers, outcome.arm.server.spec
    measured = numbers.spec if numbers else None
    requested = "no speculation" if spec is None else (spec.triple or f"{spec.algorithm}, engine's choice")
    effective = ABSENT
    if numbers:
        effective = (
            "no speculation" if numbers.effective.algorithm is None else (numbers.effective.triple or "not reported")
        )
    # An engine that chose for itself, or reported nothing, rewrote nothing.
    rewritten = bool(numbers and numbers.effective.triple and spec and spec.triple and spec.triple != effective)
    remarks = [outcome.reason, *outcome.remarks, *outcome.excluded]
    remarks += (
        [
            f"{entry.key}: asked {entry.requested}, got {entry.effective}"
            + (f" ({entry.explained})" if entry.explained else "")
            for entry in numbers.differences
        ]
        if numbers
        else []
    )
    return Row(
        label=outcome.arm.label,
        requested=requested,
        effective=effective,
        rewritten=rewritten,
        captured=ABSENT if outcome.arm.captured_layers is None else ", ".join(map(str, outcome.arm.captured_layers)),
        standing=_standing(outcome),
        mark=STANDING_MARK[outcome.standing],
        speedup=ratio_words(outcome.estimate)
        if outcome.estimate
        else ("1" if outcome.standing == "baseline" else ABSENT),
        tok_per_s=rate(numbers.output_tok_per_s if numbers else None),
        per_user=rate(numbers.tok_per_s_per_user if numbers else None),
        ttft=_percentiles(numbers.ttft if numbers else None),
        tpot=_percentiles(numbers.tpot if numbers else None),
        accept_length=fixed(measured.accept_length if measured else None),
        accept_rate=percent(measured.accept_rate if measured else None),
        step_ms=milliseconds(
            measured.step_time_ms if measured else (numbers.decode_token_time_ms if numbers and spec is None else None)
        ),
        break_even=fixed(outcome.decomposition.break_even_length if outcome.decomposition else None),
        delivered=fixed(measured.delivered_length if measured else None),
        remark="; ".join(filter(None, remarks)),
        answers=answer_words(outcome.lossless),
    )


def _standing(outcome: Outcome) -> str:
    if outcome.reason.startswith(BADGE):
        return BADGE
    return outcome.state if outcome.standing == "not compared" and outcome.state != "completed" else outcome.standing


def _percentiles(latency: Latency | None) -> tuple[str, str, str]:
    if latency is None:
        return (ABSENT, ABSENT, ABSENT)
    return milliseconds(latency.p50_ms), milliseconds(latency.p95_ms), milliseconds(latency.p99_ms)


def _explanations(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """At the lowest and the highest load: between them the story only bends."""
    loads = comparison.loads
    ends = dict.fromkeys([loads[0], loads[-1]]) if loads else {}
    return tuple(
        (f"{entry.arm.label} at {load_words(entry.trial.load)}", text)
        for load in ends
        for entry in comparison.outcomes
        if entry.load == load and (text := explain(entry))
    )


def _low_acceptance(run: RunData) -> tuple[tuple[str, str], ...]:
    """Arms that accept little, with the most likely cause that the measurements themselves show."""
    arms = causes.explain(run, lambda arm: None)
    return tuple((f"{arm.label} accepts little", arm.sentence) for arm in arms if arm.low and arm.ending is None)


def _unlike(run: RunData) -> tuple[str, ...]:
    return matching_curves(run, golden()).unlike[:2]


def _failures(comparison: Comparison) -> tuple[FailureCard, ...]:
    """One card per arm and cause, naming the load points it took."""
    loads: dict[tuple[str, str, str], list[Outcome]] = {}
    for entry in comparison.outcomes:
        if entry.failure:
            loads.setdefault((entry.arm.label, entry.failure.failure_class, entry.failure.message), []).append(entry)
    cards = []
    for (label, failure_class, message), entries in loads.items():
        failure = entries[0].failure
        assert failure is not None
        partly = "" if entries[0].state == "failed" else " (some starts; the others count)"
        cards.append(
            FailureCard(
                label=label,
                where=", ".join(load_words(entry.trial.load) for entry in entries) + partly,
                failure_class=failure_class,
                message=message,
                remedy=failure.remedy,
                log_lines=failure.log_lines,
                expected=entries[0].expected,
            )
        )
    return tuple(cards)


def _merged(run: RunData) -> tuple[str, ...]:
    merged = [f"{', '.join(entry.dropped)} became {entry.kept}: {entry.reason}" for entry in run.plan.merged]
    return tuple(merged + [f"{entry.label} was not run: {entry.reason}" for entry in run.plan.illegal])


def _engine_notes(run: RunData) -> tuple[str, ...]:
    labels: dict[str, list[str]] = {}
    for arm in run.plan.arms:
        for note in arm.notes:
            labels.setdefault(note, []).append(arm.label)
    return tuple(f"{', '.join(arms)}: {note}" for note, arms in labels.items())
