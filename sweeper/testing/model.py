"""An imagined machine: how fast a configuration would be, and what the load generator would have seen of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sweeper.analysis.acceptance import conditional_acceptance
from sweeper.core.launch import EffectiveConfig
from sweeper.core.result import Distribution, Failure, Metrics, SpecMetrics
from sweeper.core.trial import Arm, Trial

PROMPT_TOKENS, OUTPUT_TOKENS, REQUESTS = 180, 256, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """How an imagined machine behaves."""

    base_step_ms: float = 11.2
    acceptance: float = 0.74
    """Chance that the next draft of a chain is right."""
    draft_cost: float = 0.055
    """One draft step in baseline steps."""
    verify_cost: float = 0.022
    """One more token to verify, in baseline steps, at concurrency 1; grows with the load."""
    repeat_noise: float = 0.008
    start_noise: float = 0.004
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What went otherwise than well: by label of the arm."""

    failures: Mapping[str, Failure] = field(default_factory=dict)
    skips: Mapping[str, str] = field(default_factory=dict)
    acceptance: Mapping[str, float] = field(default_factory=dict)
    effective: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    """Label → what the engine made of the requested triple."""


def effective(arm: Arm, story: Story | None = None) -> EffectiveConfig:
    """What the engine would report for this arm."""
    spec = arm.server.spec
    steps, topk, drafts = (spec.num_steps, spec.eagle_topk, spec.num_draft_tokens) if spec else (None, None, None)
    if story and arm.label in story.effective:
        steps, topk, drafts = story.effective[arm.label]
    return EffectiveConfig(
        version="0.5.23",
        model_path=arm.server.model_path,
        served_model_name="sweeper",
        algorithm=spec.algorithm if spec else None,
        draft_model_path=spec.draft_model_path if spec else None,
        num_steps=steps,
        eagle_topk=topk,
        num_draft_tokens=drafts,
        max_running_requests=64,
        tp_size=8,
        dp_size=1,
        attention_backend="fa3",
        raw={"page_size": 1, "kv_cache_dtype": "auto", "attention_backend": "fa3", "disable_radix_cache": False},
    )


def window_metrics(arm: Arm, trial: Trial, model: Model, story: Story, factor: float) -> Metrics:
    load = trial.load.concurrency
    categories = {
        name: _window(arm, load, model, story, factor, shift)
        for name, shift in (("completion", 0.03), ("edit", 0.08), ("explain", -0.11))
    }
    return replace(_window(arm, load, model, story, factor, 0.0), by_category=categories)


def _window(arm: Arm, load: int, model: Model, story: Story, factor: float, shift: float) -> Metrics:
    spec, crowd = arm.server.spec, 1 + 0.016 * (load - 1)
    base_ms = model.base_step_ms * crowd / factor
    joint: tuple[float, ...] = (1.0,)
    step_ms = base_ms
    if spec is not None:
        config = effective(arm, story)
        steps, topk, drafts = (config.num_steps or 1), (config.eagle_topk or 1), (config.num_draft_tokens or 2)
        chance = max(
            0.0, min(0.97, story.acceptance.get(arm.label, model.acceptance) + shift + (0.05 if topk > 1 else 0))
        )
        joint = tuple(chance**i * 0.985 ** (i * (i - 1) / 2) for i in range(min(steps, drafts - 1) + 1))
        step_ms *= (
            1 + model.draft_cost * steps * (1.3 if topk > 1 else 1) + model.verify_cost * (drafts - 1) * load**0.62
        )
    length = sum(joint)
    tpot = step_ms / length
    ttft = (42 + 5.5 * load) / factor
    window = (ttft + tpot * OUTPUT_TOKENS) / 1000 * REQUESTS / load * 1.04
    verify_steps = round(OUTPUT_TOKENS * REQUESTS / length)
    return Metrics(
        requests=REQUESTS,
        ok=REQUESTS,
        errors={},
        finish_reasons={"stop": REQUESTS - 4, "length": 4},
        window_s=window,
        input_tokens=PROMPT_TOKENS * REQUESTS,
        cached_tokens=0,
        output_tokens=OUTPUT_TOKENS * REQUESTS,
        output_tok_per_s=OUTPUT_TOKENS * REQUESTS / window,
        steady_output_tok_per_s=OUTPUT_TOKENS * REQUESTS / window * 1.04,
        peak_tok_per_s=OUTPUT_TOKENS * REQUESTS / window * 1.11,
        request_per_s=REQUESTS / window,
        tok_per_s_per_user=1000 / tpot,
        ttft_ms=spread(ttft, 0.22),
        tpot_ms=spread(tpot, 0.06),
        itl_ms=spread(tpot, 0.3),
        chunk_gap_ms=spread(step_ms, 0.05),
        e2e_ms=spread(ttft + tpot * OUTPUT_TOKENS, 0.2),
        input_len=spread(PROMPT_TOKENS, 0.3),
        output_len=spread(OUTPUT_TOKENS, 0.2),
        decode_token_time_ms=tpot,
        spec=_spec(arm, joint, verify_steps, step_ms, story) if spec else None,
    )


def _spec(arm: Arm, joint: tuple[float, ...], verify_steps: int, step_ms: float, story: Story) -> SpecMetrics:
    exact = [*joint, 0.0]
    histogram = tuple(round(verify_steps * (exact[i] - exact[i + 1])) for i in range(len(joint)))
    steps = sum(histogram)
    correct = sum(i * count for i, count in enumerate(histogram))
    proposed = steps * ((effective(arm, story).num_draft_tokens or 2) - 1)
    return SpecMetrics(
        verify_steps=steps,
        correct_drafts=correct,
        proposed_drafts=proposed,
        accept_length=1 + correct / steps,
        accept_length_request_mean=1.01 + correct / steps,
        accept_rate=correct / proposed,
        histogram=histogram,
        joint=joint,
        conditional=conditional_acceptance(joint),
        delivered_length=1 + correct / steps - 0.01,
        step_time_ms=step_ms,
    )


def spread(mean: float, share: float, count: int = REQUESTS) -> Distribution:
    """A plausible distribution around `mean`; `share`: standard deviation over mean."""
    return Distribution(
        count=count,
        mean=mean,
        std=mean * share,
        min=mean * max(0.1, 1 - 2.2 * share),
        p50=mean * (1 - 0.1 * share),
        p90=mean * (1 + 1.2 * share),
        p95=mean * (1 + 1.7 * share),
        p99=mean * (1 + 2.6 * share) if count >= 100 else None,
        max=mean * (1 + 3 * share),
    )
