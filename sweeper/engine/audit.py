"""Requested against effective: what the engine changed, by which of its rules, and whose server it is. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sweeper.core.launch import Difference, EffectiveConfig, LaunchPlan
from sweeper.core.trial import ServerConfig, SpecConfig
from sweeper.engine.backends import FORCED_PAGES
from sweeper.engine.request import Request
from sweeper.engine.rules import resolve

ALIASES: Mapping[str, str] = {
    "model": "model_path",
    "tp": "tp_size",
    "tensor_parallel_size": "tp_size",
    "dp": "dp_size",
    "data_parallel_size": "dp_size",
    "pp": "pp_size",
    "pipeline_parallel_size": "pp_size",
    "ep": "ep_size",
    "expert_parallel_size": "ep_size",
    "cuda_graph_max_bs": "cuda_graph_max_bs_decode",
    "speculative_draft_model": "speculative_draft_model_path",
}
"""Flags whose value stands in /server_info under another name."""

NOT_COMPARED = frozenset({"host", "port", "served_model_name", "api_key", "admin_api_key", "log_level", "config"})

MAY_DIFFER = frozenset(
    {
        "served_model_name",
        "port",
        "host",
        "random_seed",
        "launch_command",
        "startup_time",
        "internal_states",
        "api_key",
        "admin_api_key",
        "nccl_port",
        "dist_init_addr",
        "log_level",
        "version",
        "base_gpu_id",
        "max_total_num_tokens",
        "last_gen_throughput",
        "memory_usage",
        "disable_overlap_schedule",
        "draft_model_idx",
    }
)
"""What may differ between an arm and its baseline besides `speculative_*`: names, ports, seeds, what was measured."""


def differences(requested: ServerConfig, effective: EffectiveConfig, version: str | None) -> tuple[Difference, ...]:
    """Every requested value that the engine reports otherwise. Values it does not report are not differences.

    `version`: of the engine that answered; the rules were read in 0.5.23 and explain nothing they were not read for.
    """
    found = [*_speculative(requested, effective), *_arguments(requested, effective)]
    model = effective.model_path
    if model is not None and model != requested.model_path:
        found.append(Difference(key="model_path", requested=requested.model_path, effective=model))
    return tuple(found)


def identity_problem(plan: LaunchPlan, effective: EffectiveConfig, *, exit_code: int | None) -> str | None:
    """Why the server that answered is not the one launched; None: it is. Only the name with its nonce proves it.

    A model path and a healthy answer agree for yesterday's server too.
    """
    signs = []
    if effective.served_model_name is not None and effective.served_model_name != plan.served_model_name:
        signs.append(f"it serves {effective.served_model_name} instead of {plan.served_model_name}")
    wanted = _flag(plan.argv, "--speculative-algorithm")
    if signs and (wanted or "").upper() != (effective.algorithm or ""):
        signs.append(f"it runs algorithm {effective.algorithm or 'none'} although {wanted or 'none'} was wanted")
    if exit_code is not None:
        signs.append(f"our own process has exited with {exit_code}")
    return f"the server on port {plan.port} is not the one launched: {', '.join(signs)}" if signs else None


def unequal_knobs(arm: EffectiveConfig, baseline: EffectiveConfig) -> tuple[Difference, ...]:
    """Where an arm and its baseline differ in more than speculation; `requested` holds the baseline's value."""
    keys = sorted(arm.raw.keys() & baseline.raw.keys())
    return tuple(
        Difference(key=key, requested=baseline.raw[key], effective=arm.raw[key])
        for key in keys
        if not key.startswith("speculative_") and key not in MAY_DIFFER and not _same(baseline.raw[key], arm.raw[key])
    )


def _speculative(requested: ServerConfig, effective: EffectiveConfig) -> Iterator[Difference]:
    spec = requested.spec
    if spec is None:
        if effective.algorithm is not None:
            yield Difference(key="speculative_algorithm", requested=None, effective=effective.algorithm)
        return
    resolution = resolve(Request(spec=spec, args=requested.args, env=requested.env, device=requested.device))
    pairs = (
        ("algorithm", spec.algorithm, resolution.spec.algorithm, effective.algorithm),
        ("num_steps", spec.num_steps, resolution.spec.num_steps, effective.num_steps),
        ("eagle_topk", spec.eagle_topk, resolution.spec.eagle_topk, effective.eagle_topk),
        ("num_draft_tokens", spec.num_draft_tokens, resolution.spec.num_draft_tokens, effective.num_draft_tokens),
    )
    for key, asked, expected, got in pairs:
        if asked is None or asked == got or (key == "algorithm" and got is not None and str(asked).upper() == got):
            continue
        explained = _note(resolution.notes, key) if got == expected else None
        yield Difference(key=f"speculative_{key}", requested=asked, effective=got, explained=explained)
    yield from _draft_path(spec, effective)
    yield from _compare({f"speculative_{key}": value for key, value in spec.args.items()}, effective, resolution.notes)


def _draft_path(spec: SpecConfig, effective: EffectiveConfig) -> Iterator[Difference]:
    asked, got = spec.draft_model_path, effective.draft_model_path
    if asked is None or got is None or asked == got or spec.aux_layer_ids:  # layer ids come as a copy of the draft
        return
    yield Difference(key="speculative_draft_model_path", requested=asked, effective=got)


def _arguments(requested: ServerConfig, effective: EffectiveConfig) -> Iterator[Difference]:
    args = {
        ALIASES.get(plain, plain): value for key, value in requested.args.items() if (plain := key.replace("-", "_"))
    }
    notes: tuple[str, ...] = ()
    if requested.spec is not None:
        notes = resolve(
            Request(
                spec=requested.spec,
                args=requested.args,
                env=requested.env,
                device=requested.device,
            )
        ).notes
    for difference in _compare(args, effective, notes):
        yield Difference(
            key=difference.key,
            requested=difference.requested,
            effective=difference.effective,
            explained=difference.explained or _argument_rule(difference, args, effective),
        )


def _compare(args: Mapping[str, Any], effective: EffectiveConfig, notes: tuple[str, ...]) -> Iterator[Difference]:
    for key, asked in args.items():
        if key in NOT_COMPARED or asked is None or key not in effective.raw:
            continue
        got = effective.raw[key]
        if not _same(asked, got):
            short = key.removeprefix("speculative_")
            yield Difference(key=key, requested=asked, effective=got, explained=_note(notes, short))


def _argument_rule(difference: Difference, args: Mapping[str, Any], effective: EffectiveConfig) -> str | None:
    key, asked, got = difference.key, difference.requested, difference.effective
    if key == "max_running_requests" and isinstance(asked, int) and isinstance(got, int) and got < asked:
        return "the engine lowers max_running_requests to what its KV cache (or its request slots per DP rank) can hold"
    if key == "chunked_prefill_size" and args.get("enable_dp_attention"):
        return "with DP attention the engine divides chunked_prefill_size by dp_size"
    if key == "page_size" and got in FORCED_PAGES.get(str(effective.attention_backend), ()):
        return f"{effective.attention_backend} takes no other page size"
    if key == "attention_backend" and asked == "intel_amx" and got == "torch_native":
        return "the CPU engine falls back to torch_native when the CPU has no AMX tiles"
    if key == "enable_mixed_chunk" and effective.algorithm is not None:
        return f"mixed chunked prefill is switched off by the engine under {effective.algorithm}"
    if key == "schedule_conservativeness" and args.get("enable_dp_attention"):
        return "with DP attention the engine scales schedule_conservativeness"
    return None


def _note(notes: tuple[str, ...], key: str) -> str | None:
    words = (key, key.replace("_", " "), "NEXTN" if key == "algorithm" else key)
    return next((note for note in notes if any(word in note for word in words)), None)


def _same(asked: Any, got: Any) -> bool:
    """Equal as the engine reads it: 0.85 and "0.85", true and 1, a list and its repetition, JSON text and its map."""
    if isinstance(asked, bool) or isinstance(got, bool):
        return bool(asked) == bool(got)
    if isinstance(asked, Mapping) or isinstance(got, Mapping):
        return bool(_as_json(asked) == _as_json(got))
    if isinstance(asked, list | tuple):
        other = list(got) if isinstance(got, list | tuple) else [got]
        return len(asked) == len(other) and all(_same(a, b) for a, b in zip(asked, other, strict=True))
    if isinstance(got, list | tuple):
        return len(got) == 1 and _same(asked, got[0])
    try:
        return abs(float(asked) - float(got)) <= 1e-9 * max(1.0, abs(float(got)))
    except (TypeError, ValueError):
        return str(asked) == str(got)


def _as_json(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return json.loads(json.dumps(value))


def _flag(argv: tuple[str, ...], name: str) -> str | None:
    for index, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag == name:
            return value if equals else argv[index + 1] if index + 1 < len(argv) else None
    return None
