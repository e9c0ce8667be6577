"""Experiment + facts → Plan: everything a run will do, decided before anything starts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sweeper.core.experiment import Experiment, Workload, greedy_by
from sweeper.core.trial import Arm, LaunchGroup, LoadPoint, Plan, ServerStart, Trial, content_id, without_defaults
from sweeper.engine.ports import port_collisions
from sweeper.engine.rules import ALGORITHMS
from sweeper.errors import ConfigError
from sweeper.planning.arms import Expansion, expand
from sweeper.planning.estimate import estimate_s
from sweeper.planning.facts import Facts
from sweeper.planning.flag_check import flag_problems
from sweeper.planning.placement import Room, jobs_of, makespan_s, room_of, timetable
from sweeper.planning.schedule import schedule

UNMEASURED = frozenset({"concurrency", "arrival", "request_timeout_s", "stall_timeout_s"})
"""Workload keys that are no part of a trial's identity: the load point has its own, time-outs change no figure."""


def make_plan(experiment: Experiment, facts: Facts) -> Plan:
    """Arms, trials, launch groups and their schedule; raises ConfigError for what cannot be planned at all."""
    for where, what in flag_problems(experiment, facts.flags, version=facts.engine_version):
        raise ConfigError(f"{'.'.join(map(str, where))}: {what}")
    found = expand(experiment, facts)
    _refuse_shared_ports(experiment, found.arms)
    trials = tuple(_trials(found.arms, experiment.workload))
    groups = _groups(found.arms, trials, experiment, facts)
    order = schedule(groups, found.arms, starts=experiment.run.starts, mirrored=experiment.run.order == "mirrored")
    plan = Plan(
        experiment=experiment.name,
        arms=tuple(found.arms),
        trials=trials,
        launch_groups=groups,
        schedule=order,
        repeats=experiment.run.repeats,
        illegal=tuple(found.illegal),
        merged=tuple(found.merged),
        unchecked=(*facts.missing, *facts.unchecked),
        warnings=tuple(_warnings(experiment, found, facts)),
        estimate_s=estimate_s(
            found.arms,
            trials,
            order,
            experiment.workload,
            repeats=experiment.run.repeats,
            facts=facts,
        ),
        engine_version=facts.engine_version,
        notes=tuple(found.notes),
    )
    room = expected_room(experiment, facts)
    return plan if room is None or room.exclusive else replace(plan, estimate_s=_side_by_side_s(plan, room))


def _refuse_shared_ports(experiment: Experiment, arms: Sequence[Arm]) -> None:
    """Side by side, two servers cannot open the port that the experiment fixed for both."""
    asked = {arm.label: arm.server.args.get("nccl_port") for arm in arms}
    fixed = {label: (port,) for label, port in asked.items() if isinstance(port, int)}
    if experiment.run.parallel == "packed" and (problems := port_collisions(fixed)):
        raise ConfigError(f"server.args.nccl_port: {problems[0]}; remove it, Sweeper gives each server its own")


def expected_room(experiment: Experiment, facts: Facts) -> Room | None:
    """Where this experiment would run as far as is known here: on this machine's GPUs; None: none were seen."""
    if experiment.engine.device != "cuda" or not facts.gpu_count:
        return None
    return room_of(facts.gpu_count, nodes=facts.node_count, exclusive=experiment.run.parallel == "exclusive")


def _side_by_side_s(plan: Plan, room: Room) -> float | None:
    """From the timetable the run will follow; what the sum holds beside the starts grows by the same share."""
    jobs = jobs_of(plan)
    placed = timetable(jobs, room)
    if plan.estimate_s is None or len(placed) < len(jobs):
        return plan.estimate_s
    return round(plan.estimate_s * makespan_s(placed) / sum(job.seconds for job in jobs), 1)


def load_points(workload: Workload) -> tuple[LoadPoint, ...]:
    """One per concurrency, all with the workload's arrival."""
    arrival = workload.arrival
    return tuple(
        LoadPoint(concurrency=level, arrival=arrival.kind, rate_rps=arrival.rate_rps, ramp_s=arrival.ramp_s)
        for level in dict.fromkeys(workload.concurrency)
    )


def _trials(arms: Sequence[Arm], workload: Workload) -> Iterator[Trial]:
    load = workload.model_dump(mode="json", exclude=set(UNMEASURED), exclude_defaults=True)
    points = [(point, _plain(point)) for point in load_points(workload)]
    for arm in arms:
        for point, plain in points:
            request = {"arm": arm.arm_id, "load": plain, "workload": load}
            yield Trial(trial_id=content_id(request), arm_id=arm.arm_id, load=point)


def _plain(point: LoadPoint) -> dict[str, Any]:
    return without_defaults(point)


def _groups(
    arms: Sequence[Arm], trials: Sequence[Trial], experiment: Experiment, facts: Facts
) -> tuple[LaunchGroup, ...]:
    by_arm: dict[str, list[Trial]] = {}
    for trial in trials:
        by_arm.setdefault(trial.arm_id, []).append(trial)
    return tuple(
        LaunchGroup(
            group_id=arm.arm_id,
            arm_id=arm.arm_id,
            gpus=arm.server.gpus,
            trial_ids=tuple(trial.trial_id for trial in by_arm[arm.arm_id]),
            estimate_s=estimate_s(
                (arm,),
                by_arm[arm.arm_id],
                (ServerStart(group_id=arm.arm_id, start=0),),
                experiment.workload,
                repeats=experiment.run.repeats,
                facts=facts,
            ),
        )
        for arm in arms
    )


def _warnings(experiment: Experiment, found: Expansion, facts: Facts) -> Iterator[str]:
    yield from found.warnings
    yield from _load_warnings(experiment.workload)
    if experiment.run.starts == 1:
        yield "one server start per arm: start-to-start noise is unseen, every claim is labelled so; use starts: 2"
    if not any(not arm.is_baseline for arm in found.arms):
        yield "no speculative arm is left: only the baseline would be measured"
    yield from _unknown_algorithms(found.arms)
    spanned = max((arm.server.nodes or 1 for arm in found.arms), default=1)
    if spanned > 1:
        yield f"a server spans {spanned} nodes (server.args.nnodes): it runs on a Ray cluster of them, by --ray-address"
    needed = max((arm.server.gpus for arm in found.arms), default=0)
    if facts.gpu_count is not None and experiment.engine.device == "cuda" and needed > facts.gpu_count:
        yield f"a server needs {needed} GPUs, {facts.gpu_count} can be used here: it can be planned, not run"


def _load_warnings(workload: Workload) -> Iterator[str]:
    largest, prompts = max(workload.concurrency), workload.num_prompts
    unreached = sorted({point for point in workload.concurrency if point > prompts})
    if unreached and workload.arrival.kind == "closed":
        yield (
            f"num_prompts {prompts} keeps at most {prompts} requests in flight: concurrency "
            f"{', '.join(map(str, unreached))} is never reached; raise it to {largest}, for a steady window to "
            f"{8 * largest}"
        )
    elif prompts < 8 * largest:
        yield (
            f"{prompts} prompts at concurrency {largest}: ramp and tail weigh; "
            f"from {8 * largest} on the whole window is steady"
        )
    greedy = greedy_by(top_p=workload.top_p, top_k=workload.top_k)
    if workload.temperature > 0 and greedy:
        yield (
            f"temperature {workload.temperature:g} with {greedy} is greedy: no measurement will be ranked; "
            f"use temperature: 0, or drop {greedy.split()[0]}"
        )


def _unknown_algorithms(arms: Sequence[Arm]) -> Iterator[str]:
    """What is left of them here stands in for a plugin's, or for those of a release without a table."""
    named = {arm.server.spec.algorithm.upper() for arm in arms if arm.server.spec is not None}
    for name in sorted(named - set(ALGORITHMS)):
        yield f"{name} is no algorithm that is known here: the engine must have it, or a plugin register it"
