"""A plan for people (80 columns) and for programs (one JSON document)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sweeper.core.experiment import Experiment
from sweeper.core.trial import Arm, Plan
from sweeper.engine.argv import paste_line
from sweeper.engine.rules import longest_accept
from sweeper.planning.axes import server_sides, shown_axes, speculative_sides
from sweeper.planning.labels import axes_text
from sweeper.planning.placement import Place, Placed, Room, jobs_of, makespan_s, timetable
from sweeper.present.launch_command import wrapped
from sweeper.present.numbers import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What `sweeper plan` shows."""

    experiment: Experiment
    plan: Plan
    room: Room | None
    """Where it would run; None: no GPUs seen."""
    commands: bool = False


def plan_document(plan: Plan, room: Room | None = None) -> dict[str, Any]:
    """The plan as JSON-ready values, secrets hidden; every arm with its command, and the timetable in that room."""
    document = asdict(plan.redacted())
    for arm, shown in zip(plan.arms, document["arms"], strict=True):
        shown["command"] = paste_line(arm.server)
        shown["is_baseline"] = arm.is_baseline
    rows = [] if room is None else [_row(one) for one in timetable(jobs_of(plan), room)]
    return {"plan_id": plan.plan_id, **document, "timetable": rows}


def _row(placed: Placed) -> dict[str, Any]:
    key, place = placed.job.key, placed.place
    where = {"node": place.node, "gpu_ids": place.units}
    return {**asdict(key), **where, "begin_s": round(placed.begin_s, 1), "end_s": round(placed.end_s, 1)}


def render_plan(view: View, *, limit: int | None = 24) -> RenderableType:
    """All sections, one below the other; `limit` rows per list, None: all."""
    sections = [
        _head(view),
        _arms(view, limit),
        *_lists(view, limit),
        *_schedule(view),
        *_timetable(view, limit),
        *(_commands(view.plan, limit) if view.commands else ()),
        _foot(view),
    ]
    return Group(*sections)


def _head(view: View) -> RenderableType:
    plan, workload = view.plan, view.experiment.workload
    title = Text(f"\n {plan.experiment}", style="bold")
    title.append(f"   SGLang {plan.engine_version} · {view.experiment.engine.device}", style="dim")
    load = (
        f"{workload.num_prompts} prompts from {workload.prompts}, up to {workload.max_tokens} tokens, "
        f"temperature {workload.temperature:g}, concurrency {', '.join(map(str, workload.concurrency))}"
    )
    return Group(title, Padding(Text(load), (0, 0, 1, 1)))


def _arms(view: View, limit: int | None) -> RenderableType:
    plan, axes = view.plan, shown_axes(view.experiment)
    footnotes = _footnotes(plan.arms)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column(" Arm", overflow="fold", min_width=10)
    table.add_column("on")
    table.add_column("layers to draft", justify="right")
    table.add_column("accept ≤", justify="right")
    table.add_column("notes", overflow="fold")
    shown = plan.arms if limit is None else plan.arms[:limit]
    heading = ""
    for arm in shown:
        suffix = axes_text(arm.axes, [axis for axis in axes if axis in arm.axes])
        if suffix != heading:
            table.add_row(Text(suffix, style="dim italic"))
            heading = suffix
        table.add_row(
            Text(f" {arm.label.removesuffix(suffix)}", style="bold" if arm.is_baseline else ""),
            counted(arm.server.gpus, "GPU") if arm.server.device == "cuda" else "cpu",
            "" if arm.is_baseline else ", ".join(map(str, arm.captured_layers or ())) or "–",
            _bound(arm),
            Text(" ".join(f"[{number}]" for number in sorted(footnotes[note] for note in arm.notes)), style="dim"),
        )
    parts: list[RenderableType] = [table]
    if len(plan.arms) > len(shown):
        parts.append(Text(f" … and {len(plan.arms) - len(shown)} more arms (--all)", style="dim"))
    used = {note for arm in shown for note in arm.notes}
    told = [(f"[{number}]", note) for note, number in footnotes.items() if note in used]
    if told:
        parts += [Text("\n What the engine does to them", style="bold"), _pairs(told, limit)]
    return Group(*parts)


def _footnotes(arms: Sequence[Arm]) -> dict[str, int]:
    notes = dict.fromkeys(note for arm in arms for note in arm.notes)
    return {note: number for number, note in enumerate(notes, start=1)}


def _bound(arm: Arm) -> str:
    spec = arm.server.spec
    if spec is None:
        return "1"
    steps, topk, tokens = spec.num_steps, spec.eagle_topk, spec.num_draft_tokens
    if steps is None or topk is None or (tokens is None and topk > 1):
        return "–"
    return str(longest_accept(steps, topk, tokens or steps + 1))


def _lists(view: View, limit: int | None) -> Iterator[RenderableType]:
    plan = view.plan
    named: list[tuple[str, list[tuple[str, str]], str]] = [
        ("The same in every arm, so that only speculation differs", [("·", note) for note in plan.notes], ""),
        ("Merged: they become the same configuration", list(_merged(view, limit)), ""),
        ("Left out", list(_by_reason(view, limit)), "yellow"),
        ("Not looked at", [("?", sentence) for sentence in plan.unchecked], "yellow"),
        ("Mind", [("!", warning) for warning in plan.warnings], "yellow"),
    ]
    for title, rows, style in named:
        if rows:
            yield Text(f"\n {title}", style=f"bold {style}".strip())
            yield _pairs(rows, limit)


def _suffixes(experiment: Experiment) -> list[str]:
    """What the axes append to labels, longest first; the same point then reads the same under every combination."""
    axes = shown_axes(experiment)
    spec_sides = [side for side, _ in speculative_sides(experiment)]
    found = {axes_text({**side.axes, **spec}, axes) for side in server_sides(experiment) for spec in spec_sides}
    return sorted(found, key=len, reverse=True)


def _without(label: str, suffixes: Sequence[str]) -> str:
    return next((label.removesuffix(s) for s in suffixes if s and label.endswith(s)), label)


def _merged(view: View, limit: int | None) -> Iterator[tuple[str, str]]:
    suffixes = _suffixes(view.experiment)
    times: dict[tuple[str, str], int] = {}
    for merged in view.plan.merged:
        dropped = _few([_without(label, suffixes) for label in merged.dropped], limit)
        row = (_without(merged.kept, suffixes), f"← {', '.join(dropped)}: {merged.reason}")
        times[row] = times.get(row, 0) + 1
    for (kept, text), count in times.items():
        yield kept, text + (f" (in {count} combinations)" if count > 1 else "")


def _by_reason(view: View, limit: int | None) -> Iterator[tuple[str, str]]:
    suffixes = _suffixes(view.experiment)
    reasons: dict[str, dict[str, None]] = {}
    for illegal in view.plan.illegal:
        reasons.setdefault(illegal.reason, {})[_without(illegal.label, suffixes)] = None
    for reason, labels in reasons.items():
        yield ", ".join(_few(list(labels), 4 if limit else None)), reason


def _few(labels: Sequence[str], limit: int | None) -> list[str]:
    if limit is None or len(labels) <= limit:
        return list(labels)
    return [*labels[:limit], f"… {len(labels) - limit} more"]


def _pairs(rows: Sequence[tuple[str, str]], limit: int | None) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(overflow="fold", max_width=22)
    grid.add_column(overflow="fold")
    for left, right in rows if limit is None else rows[:limit]:
        grid.add_row(Text(left), Text(right))
    if limit is not None and len(rows) > limit:
        grid.add_row("", Text(f"… and {len(rows) - limit} more (--all)", style="dim"))
    return Padding(grid, (0, 0, 0, 1))


def _schedule(view: View) -> Iterator[RenderableType]:
    plan = view.plan
    labels = {arm.arm_id: arm.label for arm in plan.arms}
    yield Text("\n Schedule", style="bold")
    passes: dict[int, list[str]] = {}
    single = view.experiment.run.starts == 1
    for entry in plan.schedule:
        passes.setdefault(0 if single else entry.start, []).append(labels[entry.group_id])
    rows = [(f"start {number + 1}", " → ".join(_middle(names))) for number, names in passes.items()]
    yield _pairs([*rows, ("on", _placement(view))], None)


def _middle(names: Sequence[str]) -> list[str]:
    if len(names) <= 14:
        return list(names)
    return [*names[:6], f"… {len(names) - 9} more …", *names[-3:]]


def _placement(view: View) -> str:
    largest = max((group.gpus for group in view.plan.launch_groups), default=0)
    if view.experiment.engine.device == "cpu":
        return "one CPU slot, one server at a time"
    packed = view.experiment.run.parallel == "packed"
    if view.room is None:
        side = "side by side where the node has room" if packed else "one server at a time"
        return f"{counted(largest, 'GPU')} per server, {side} (no GPUs seen here; --gpus 8 plans for a node of eight)"
    nodes, gpus = len(view.room.nodes), len(view.room.nodes[0].units)
    if largest > gpus:
        return f"{counted(largest, 'GPU')} per server, this node has {gpus}"
    where = f"{nodes} nodes of {gpus} GPUs" if nodes > 1 else counted(gpus, "GPU")
    return where + (", side by side where there is room" if packed else ", one server at a time on a node")


def _timetable(view: View, limit: int | None) -> Iterator[RenderableType]:
    """What begins when and where, for servers side by side."""
    if view.room is None or view.room.exclusive:
        return
    labels = {arm.arm_id: arm.label for arm in view.plan.arms}
    placed = timetable(jobs_of(view.plan), view.room)
    if not placed:
        return
    units = sum(len(node.units) for node in view.room.nodes)
    busy = sum(one.job.gpus * (one.end_s - one.begin_s) for one in placed) / (units * makespan_s(placed))
    most = max(sum(one.begin_s <= at.begin_s < one.end_s for one in placed) for at in placed)
    yield Text("\n Timetable", style="bold")
    yield Text(f" at most {most} servers side by side, {busy:.0%} of the GPU time in use", style="dim")
    beginnings: dict[tuple[float, str], list[str]] = {}
    for one in placed:
        label = labels[one.job.key.group_id] + (f" #{one.job.key.start + 1}" if one.job.key.start else "")
        beginnings.setdefault((one.begin_s, one.place.node), []).append(f"{_gpus(one.place)} {label}")
    yield _pairs([(_begin(*at), " · ".join(names)) for at, names in beginnings.items()], limit)


def _begin(begin_s: float, node: str) -> str:
    minutes = round(begin_s / 60)
    return f"{minutes // 60}:{minutes % 60:02} {node}".strip()


def _gpus(place: Place) -> str:
    first, last = place.units[0], place.units[-1]
    return f"[{first}]" if first == last else f"[{first}–{last}]"


def _commands(plan: Plan, limit: int | None) -> Iterator[RenderableType]:
    title = Text("\n Commands", style="bold")
    if any(arm.server.device == "cpu" for arm in plan.arms):
        title.append("   `sweeper run` adds what the CPU engine needs in its environment", style="not bold dim")
    yield title
    for arm in plan.arms if limit is None else plan.arms[:limit]:
        yield Text(f" # {arm.label}", style="dim")
        yield Text(wrapped(paste_line(arm.server), 78), no_wrap=True, overflow="ignore")


def _foot(view: View) -> RenderableType:
    plan, run = view.plan, view.experiment.run
    per_arm: Mapping[str, int] = {group.arm_id: len(group.trial_ids) for group in plan.launch_groups}
    measurements = sum(per_arm[entry.group_id] for entry in plan.schedule) * plan.repeats
    text = (
        f"{counted(len(plan.arms), 'arm')}, {counted(len(plan.trials), 'trial')}, "
        f"{counted(len(plan.schedule), 'server start')}, {counted(measurements, 'measurement')} "
        f"({counted(run.repeats, 'repeat')} each)"
    )
    estimate = f", about {duration_text(plan.estimate_s)}" if plan.estimate_s is not None else ""
    return Padding(Text(text + estimate, style="bold"), (1, 0, 1, 1))


def duration_text(seconds: float) -> str:
    """`4 min`, `2 h 10 min`, `3 d 4 h`."""
    minutes = max(1, round(seconds / 60))
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 60 * 48:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"
