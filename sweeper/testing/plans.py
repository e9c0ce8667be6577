"""Small plans, prompts and measurements, written out, for tests of whatever consumes them."""

from sweeper.core.result import Conditions, Distribution, Fingerprint, Measurement, Metrics
from sweeper.core.sample import GeneratorHealth, Prompt, PromptSet
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
from sweeper.testing.launcher import FAKE_ENGINE, UNSAID


def small_plan(
    labels: tuple[str, ...] = ("baseline", "3-1-4"),
    *,
    starts: int = 2,
    repeats: int = 2,
    concurrency: tuple[int, ...] = (1, 4),
    expect: dict[str, str] | None = None,
) -> Plan:
    """One arm a label; the first is the baseline of all; arm and group ids are the labels, starts mirrored."""
    arms = tuple(_arm(label, labels[0], (expect or {}).get(label)) for label in labels)
    trials = tuple(
        Trial(trial_id=f"{arm.arm_id}-c{one}", arm_id=arm.arm_id, load=LoadPoint(concurrency=one))
        for arm in arms
        for one in concurrency
    )
    groups = tuple(
        LaunchGroup(
            group_id=f"group-{arm.arm_id}",
            arm_id=arm.arm_id,
            gpus=1,
            trial_ids=tuple(trial.trial_id for trial in trials if trial.arm_id == arm.arm_id),
        )
        for arm in arms
    )
    schedule = [
        ServerStart(group_id=group.group_id, start=start)
        for start in range(starts)
        for group in (groups if start % 2 == 0 else reversed(groups))
    ]
    return Plan(
        experiment="small",
        arms=arms,
        trials=trials,
        launch_groups=groups,
        schedule=tuple(schedule),
        repeats=repeats,
    )


def _arm(label: str, baseline: str, expect: str | None) -> Arm:
    spec = None
    if label != baseline:
        steps, topk, tokens = (int(part) for part in label.split("-"))
        spec = SpecConfig(algorithm="EAGLE3", num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)
    server = ServerConfig(model_path="toy", device="cpu", args={}, env={}, spec=spec)
    return Arm(arm_id=label, label=label, server=server, baseline_id=baseline, expect=expect)


def small_prompts(count: int = 4) -> PromptSet:
    prompts = tuple(Prompt(prompt_id=f"p{number}", category="code", text=f"prompt {number}") for number in range(count))
    sha256 = content_id([prompt.text for prompt in prompts])
    return PromptSet(prompts=prompts, source="written out", sha256=sha256, template="none")


def small_metrics(tok_per_s: float = 100.0) -> Metrics:
    tpot = Distribution(
        count=4, mean=1e3 / tok_per_s, std=0.0, min=1.0, p50=1e3 / tok_per_s, p90=1.0, p95=1.0, p99=None, max=1.0
    )
    return Metrics(
        requests=4,
        ok=4,
        errors={},
        finish_reasons={"length": 4},
        window_s=1.0,
        input_tokens=32,
        cached_tokens=0,
        output_tokens=int(tok_per_s),
        output_tok_per_s=tok_per_s,
        steady_output_tok_per_s=None,
        peak_tok_per_s=tok_per_s,
        request_per_s=4.0,
        tok_per_s_per_user=tok_per_s,
        ttft_ms=None,
        tpot_ms=tpot,
        itl_ms=None,
        chunk_gap_ms=None,
        e2e_ms=None,
        input_len=None,
        output_len=None,
        decode_token_time_ms=1e3 / tok_per_s,
        spec=None,
    )


def small_fingerprint(prompts: PromptSet | None = None) -> Fingerprint:
    return Fingerprint(
        engine=FAKE_ENGINE, prompts_sha256=(prompts or small_prompts()).sha256, gpu=(), driver=None, device="cpu"
    )


def small_measurement(trial: Trial, *, start: int = 0, repeat: int = 0, tok_per_s: float = 100.0) -> Measurement:
    return Measurement(
        trial_id=trial.trial_id,
        group_id=f"group-{trial.arm_id}",
        arm_id=trial.arm_id,
        start=start,
        repeat=repeat,
        started_at="2026-01-01T00:00:00+00:00",
        fingerprint=small_fingerprint(),
        metrics=small_metrics(tok_per_s),
        effective=UNSAID,
        differences=(),
        health=GeneratorHealth(
            loop_lag_p99_ms=0.1, loop_lag_max_ms=0.1, send_late_p99_ms=0.1, cpu_s=0.1, cpu_share=0.1
        ),
        conditions=Conditions(),
        flush="flushed",
    )
