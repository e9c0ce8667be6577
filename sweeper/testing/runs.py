"""Runs made of thought: the values a real run would leave behind, from a simple model of speculation.

For tests and screenshots of everything that reads a run; `model_run` never touches a disk or a server.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sweeper.core.launch import EngineFingerprint, StartupTimes
from sweeper.core.result import (
    Completed,
    Conditions,
    Failed,
    Fingerprint,
    Measurement,
    Metrics,
    Skipped,
    StartRecord,
    TrialResult,
)
from sweeper.core.run import RunData
from sweeper.core.sample import GeneratorHealth
from sweeper.core.trial import (
    Arm,
    LaunchGroup,
    LoadPoint,
    Plan,
    ServerConfig,
    ServerStart,
    SpecConfig,
    Trial,
    content_id,
)
from sweeper.testing.model import OUTPUT_TOKENS, REQUESTS, Model, Story, effective, window_metrics

__all__ = ["Model", "Story", "effective", "model_run"]

BEGIN = datetime(2026, 11, 28, 21, 0, tzinfo=UTC)
ENGINE = EngineFingerprint(version="0.5.23", files_sha256="ab12" * 16)


def model_run(  # noqa: PLR0913  a factory: every argument has a default
    triples: Sequence[str] = ("3-1-4", "5-1-6", "5-4-16"),
    *,
    concurrency: Sequence[int] = (1, 8, 32),
    starts: int = 2,
    repeats: int = 4,
    aux_layer_ids: Sequence[tuple[int, ...]] = (),
    model: Model | None = None,
    story: Story | None = None,
    path: Path = Path("results/example/20261128-210000"),
) -> RunData:
    """A finished run of a baseline and the given arms over all load points."""
    model, story = model or Model(), story or Story()
    arms = _arms(triples, aux_layer_ids)
    trials = tuple(
        Trial(trial_id=content_id([arm.arm_id, load]), arm_id=arm.arm_id, load=LoadPoint(concurrency=load))
        for arm in arms
        for load in concurrency
    )
    plan = _plan(arms, trials, starts, repeats)
    records, events = _schedule(plan, story)
    return RunData(
        path=path,
        run_id=path.name,
        plan=plan,
        experiment={
            "name": plan.experiment,
            "server": {"model_path": "moonshotai/Kimi-K2.5", "args": {"tp_size": 8}},
            "workload": {
                "prompts": "builtin:code",
                "num_prompts": REQUESTS,
                "max_tokens": OUTPUT_TOKENS,
                "temperature": 0,
                "concurrency": list(concurrency),
            },
            "run": {"starts": starts, "repeats": repeats},
        },
        environment={"hostname": "node-1", "python": "3.12.4", "os": "Linux 6.8", "sweeper": "0.1.0"},
        measurements=tuple(_measurements(plan, model, story, starts)),
        results=tuple(_result(plan.arm(trial.arm_id), trial, story, starts * repeats) for trial in trials),
        starts=records,
        events=events,
        finished=True,
    )


def _arms(triples: Sequence[str], layer_ids: Sequence[tuple[int, ...]]) -> tuple[Arm, ...]:
    shared: dict[str, Any] = {
        "model_path": "moonshotai/Kimi-K2.5",
        "device": "cuda",
        "args": {"tp_size": 8, "max_running_requests": 64, "mem_fraction_static": 0.85},
        "env": {},
    }
    base = Arm(
        arm_id="base00000000", label="baseline", server=ServerConfig(**shared, spec=None), baseline_id="base00000000"
    )
    arms = [base]
    for triple in triples:
        steps, topk, drafts = (int(part) for part in triple.split("-"))
        for ids in layer_ids or (None,):
            label = triple if ids is None else f"{triple} ids={','.join(map(str, ids))}"
            spec = SpecConfig(
                algorithm="EAGLE3",
                draft_model_path="/models/kimi-k25-eagle3",
                num_steps=steps,
                eagle_topk=topk,
                num_draft_tokens=drafts,
                aux_layer_ids=ids,
            )
            arms.append(
                Arm(
                    arm_id=content_id(label),
                    label=label,
                    server=ServerConfig(**shared, spec=spec),
                    baseline_id=base.arm_id,
                    captured_layers=ids or (3, 31, 59),
                )
            )
    return tuple(arms)


def _plan(arms: Sequence[Arm], trials: Sequence[Trial], starts: int, repeats: int) -> Plan:
    groups = tuple(
        LaunchGroup(
            group_id=f"g-{arm.arm_id}",
            arm_id=arm.arm_id,
            gpus=8,
            trial_ids=tuple(trial.trial_id for trial in trials if trial.arm_id == arm.arm_id),
        )
        for arm in arms
    )
    order = [ServerStart(group_id=group.group_id, start=0) for group in groups]
    if starts == 1:
        order.append(ServerStart(group_id=groups[0].group_id, start=1))
    for start in range(1, starts):
        again = reversed(groups) if start % 2 else groups
        order += [ServerStart(group_id=group.group_id, start=start) for group in again]
    return Plan(
        experiment="kimi-k25-eagle3",
        arms=tuple(arms),
        trials=tuple(trials),
        launch_groups=groups,
        schedule=tuple(order),
        repeats=repeats,
        engine_version="0.5.23",
    )


def _schedule(plan: Plan, story: Story) -> tuple[tuple[StartRecord, ...], tuple[dict[str, Any], ...]]:
    """Start records, and journal lines as the store writes them: an event's fields and `at`."""
    records, events, now = [], [], BEGIN
    for entry in plan.schedule:
        group = next(group for group in plan.launch_groups if group.group_id == entry.group_id)
        arm = plan.arm(group.arm_id)
        if arm.label in story.skips:
            continue
        failure = story.failures.get(arm.label)
        phases = [("cleaning", 3.0), ("launching", 8.0), ("loading", 74.0), ("capturing", 28.0), ("warming", 12.0)]
        phases += [("failed", 0.0)] if failure else [("measuring", 240.0), ("stopping", 6.0), ("done", 0.0)]
        for phase, seconds in phases:
            events.append(
                {
                    "at": now.isoformat(),
                    "kind": "phase_changed",
                    "group_id": entry.group_id,
                    "arm_id": arm.arm_id,
                    "start": entry.start,
                    "phase": phase,
                    "detail": "",
                    "slot": "node-1 GPU 0-7",
                }
            )
            now += timedelta(seconds=seconds)
        records.append(
            StartRecord(
                group_id=entry.group_id,
                start=entry.start,
                launch_id=content_id([entry.group_id, entry.start]),
                command=_command(arm),
                env={},
                gpu_ids=tuple(range(8)),
                node="node-1",
                port=30000,
                times=StartupTimes(clean_s=3, load_s=74, capture_s=28, warm_s=12, ready_s=125),
                engine=ENGINE,
                effective=None if failure else effective(arm, story),
                failure=failure,
            )
        )
    return tuple(records), tuple(events)


def _command(arm: Arm) -> str:
    argv = ["python -m sglang.launch_server", f"--model-path {arm.server.model_path}"]
    argv += [f"--{key.replace('_', '-')} {value}" for key, value in arm.server.args.items()]
    spec = arm.server.spec
    if spec:
        argv += [
            f"--speculative-algorithm {spec.algorithm}",
            f"--speculative-draft-model-path {spec.draft_model_path}",
            f"--speculative-num-steps {spec.num_steps}",
            f"--speculative-eagle-topk {spec.eagle_topk}",
            f"--speculative-num-draft-tokens {spec.num_draft_tokens}",
        ]
    return " ".join([*argv, "--host 127.0.0.1 --port 30000"])


def _result(arm: Arm, trial: Trial, story: Story, measurements: int) -> TrialResult:
    if arm.label in story.skips:
        return Skipped(trial_id=trial.trial_id, reason=story.skips[arm.label])
    if arm.label in story.failures:
        return Failed(trial_id=trial.trial_id, failure=story.failures[arm.label])
    return Completed(trial_id=trial.trial_id, measurements=measurements)


def _measurements(plan: Plan, model: Model, story: Story, starts: int) -> list[Measurement]:
    rng, made = random.Random(model.seed), []  # noqa: S311  noise, not a secret
    for number, entry in enumerate(plan.schedule):
        group = next(group for group in plan.launch_groups if group.group_id == entry.group_id)
        arm = plan.arm(group.arm_id)
        if arm.label in story.skips or arm.label in story.failures:
            continue
        start_factor = math.exp(rng.gauss(0, model.start_noise))
        for repeat in range(plan.repeats):
            for trial in plan.trials:
                if trial.arm_id == arm.arm_id:
                    factor = start_factor * math.exp(rng.gauss(0, model.repeat_noise))
                    metrics = window_metrics(arm, trial, model, story, factor)
                    made.append(
                        replace(
                            _measurement(arm, trial, entry, repeat, metrics, 6.2 * number),
                            effective=effective(arm, story),
                        )
                    )
    return made


def _measurement(
    arm: Arm, trial: Trial, start: ServerStart, repeat: int, metrics: Metrics, at_min: float
) -> Measurement:
    return Measurement(
        trial_id=trial.trial_id,
        group_id=start.group_id,
        arm_id=arm.arm_id,
        start=start.start,
        repeat=repeat,
        started_at=(
            BEGIN + timedelta(minutes=2.2 + at_min + repeat + 0.2 * math.log2(trial.load.concurrency))
        ).isoformat(),
        fingerprint=Fingerprint(
            engine=ENGINE, prompts_sha256="cd34" * 16, gpu=("NVIDIA H200",) * 8, driver="570.86.15", device="cuda"
        ),
        metrics=metrics,
        effective=effective(arm),
        differences=(),
        health=GeneratorHealth(
            loop_lag_p99_ms=0.3, loop_lag_max_ms=1.1, send_late_p99_ms=0.2, cpu_s=1.2, cpu_share=0.06
        ),
        conditions=Conditions(
            gpu_names=("NVIDIA H200",) * 8,
            driver="570.86.15",
            sm_clock_mhz_mean=1912.0,
            temperature_c_max=58,
            power_w_mean=3120.0 + 240 * math.log2(trial.load.concurrency),
            energy_j=None,
        ),
        flush="flushed",
    )
