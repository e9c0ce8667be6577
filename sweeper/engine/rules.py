"""What SGLang silently does to a speculative request, and what it refuses; read in 0.5.23.

`resolve` answers for one request: the triple that will really run, sentences about what is changed, and the reason
when the engine would refuse it or could not mean it. Sources: arg_groups/speculative_hook.py unless said otherwise.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sweeper.core.trial import SpecConfig
from sweeper.engine import backends, drafts
from sweeper.engine.layers import target_architecture
from sweeper.engine.request import Refused, Request, attention_dp

EAGLE_FAMILY = ("EAGLE", "EAGLE3", "STANDALONE")
BLOCK_FAMILY = ("DFLASH", "DSPARK", "UNO")
READ_IN = "0.5.23"
ALGORITHMS = (*EAGLE_FAMILY, "NEXTN", "FROZEN_KV_MTP", "NGRAM", *BLOCK_FAMILY)
MIXED_CHUNK = ("EAGLE", "EAGLE3", "DFLASH", "DSPARK")
"""Algorithms that may keep --enable-mixed-chunk (spec_info.py, supports_mixed_chunk)."""

RUNNING_CAP = 48
"""--max-running-requests that speculation sets when it is not given; the baseline would run without it."""

ADAPTIVE_STEPS = (0, 1, 3, 5, 7)
"""Union of candidate_steps in the engine's default adaptive configuration (adaptive_spec_params.py)."""

MTP_TARGETS = frozenset(
    {
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV4ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
        "HYV3ForCausalLM",
        "HYV4ForCausalLM",
        "Qwen4ExpForConditionalGeneration",
    }
)
"""Targets that carry their own draft layer: without a draft path the engine takes the target itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What the engine makes of a request."""

    spec: SpecConfig
    """Effective: algorithm, the triple and the draft path as they will run."""
    notes: tuple[str, ...] = ()
    illegal: str | None = None


def tree_limit(num_steps: int, eagle_topk: int) -> int:
    """Most num_draft_tokens a draft tree can fill: topk + (steps − 1)·topk² candidates, and the root (eagle_utils)."""
    return eagle_topk + (num_steps - 1) * eagle_topk**2 + 1


def longest_accept(num_steps: int, eagle_topk: int, num_draft_tokens: int) -> int:
    """Upper bound of the accept length, the target's own token included."""
    return (num_steps if eagle_topk == 1 else min(num_steps, num_draft_tokens - 1)) + 1


def resolve(request: Request) -> Resolution:
    """The effective configuration of a request, with the notes; `illegal` says why it cannot run."""
    notes: list[str] = []
    spec = request.spec
    try:
        spec = _algorithm(spec, notes)
        request = replace(request, spec=spec)
        spec = _FAMILIES.get(spec.algorithm, _unknown_family)(request, notes)
        request = replace(request, spec=spec)
        for check in (_sampling, _parallel, backends.tree_on_backend, drafts.context, drafts.quantisation):
            for note in check(request):
                notes.append(note)
        notes.extend(_small_print(request))
    except Refused as refusal:
        return Resolution(spec=spec, notes=tuple(notes), illegal=str(refusal))
    return Resolution(spec=spec, notes=tuple(notes))


def known_algorithms(version: str, listed: Sequence[str]) -> tuple[str, ...]:
    """Names that this release takes without a plugin; `listed`: the choices of its flag. Empty: not known here."""
    return tuple(listed) or (ALGORITHMS if version == READ_IN else ())


def unknown_algorithm(name: str, known: Sequence[str], version: str) -> str:
    """One sentence for a name that is not among `known`, with the remedy."""
    near = difflib.get_close_matches(name.upper(), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}."
    return (
        f"SGLang {version} has no algorithm {name!r}; {hint} One that a plugin registers needs its plugin named in "
        "server.env.SGLANG_PLUGINS"
    )


def _algorithm(spec: SpecConfig, notes: list[str]) -> SpecConfig:
    name = spec.algorithm.upper()
    if name == "NEXTN":
        notes.append("NEXTN is EAGLE: the engine runs and reports EAGLE")
        return replace(spec, algorithm="EAGLE")
    return replace(spec, algorithm=name)


def _unknown_family(request: Request, notes: list[str]) -> SpecConfig:
    name = request.spec.algorithm
    notes.append(f"{name} is not built into SGLang {READ_IN} ({', '.join(ALGORITHMS)}): a plugin must register it")
    return request.spec


def _eagle(request: Request, notes: list[str]) -> SpecConfig:
    spec = _with_draft(request, notes)
    spec = _adaptive(request, spec, notes) if spec.args.get("adaptive") else _static(request, spec, notes)
    steps, topk, tokens = spec.num_steps, spec.eagle_topk, spec.num_draft_tokens
    if steps is None or topk is None or tokens is None:
        return spec
    if topk == 1:
        return _chain(spec, notes)
    limit = tree_limit(steps, topk)
    if tokens > limit:
        raise Refused(
            f"a tree of {steps} steps and topk {topk} has {limit - 1} candidates, so num_draft_tokens is at most "
            f"{limit}, got {tokens}"
        )
    if tokens < 2:
        raise Refused(f"num_draft_tokens {tokens} leaves no room for a draft; use at least 2")
    if tokens - 1 <= steps:
        notes.append(
            f"a window of {tokens} holds one path of {tokens - 1} drafts or a shallower tree, not both: "
            f"accept length at most {longest_accept(steps, topk, tokens)}"
        )
    return spec


def _chain(spec: SpecConfig, notes: list[str]) -> SpecConfig:
    assert spec.num_steps is not None and spec.num_draft_tokens is not None
    wanted, effective = spec.num_draft_tokens, spec.num_steps + 1
    if wanted != effective:
        drafts_ = f"{spec.num_steps} draft{'s' if spec.num_steps > 1 else ''}"
        hint = f"; for a window of {wanted} set num_steps to {wanted - 1}" if wanted > effective else ""
        notes.append(
            f"at eagle_topk 1 the engine replaces num_draft_tokens {wanted} by num_steps + 1 = {effective}: at most "
            f"{drafts_} can be accepted, accept length at most {effective}.00 per verify step{hint}"
        )
    return replace(spec, num_draft_tokens=effective)


def _static(request: Request, spec: SpecConfig, notes: list[str]) -> SpecConfig:
    given = {"num_steps": spec.num_steps, "eagle_topk": spec.eagle_topk, "num_draft_tokens": spec.num_draft_tokens}
    missing = [name for name, value in given.items() if value is None]
    if not missing:
        return spec
    if len(missing) == 3:
        return _auto(request, spec, notes)
    if missing == ["num_draft_tokens"] and spec.eagle_topk == 1:
        assert spec.num_steps is not None
        return replace(spec, num_draft_tokens=spec.num_steps + 1)
    raise Refused(
        f"{' and '.join(missing)} missing: given only some of num_steps, eagle_topk and num_draft_tokens the engine "
        "dies with a bare error; give all three or none"
    )


def _auto(request: Request, spec: SpecConfig, notes: list[str]) -> SpecConfig:
    architecture = _target_class(request)
    if spec.algorithm == "STANDALONE":
        triple = (3, 1, 4)
    elif architecture is None:
        notes.append("the engine chooses num_steps, eagle_topk and num_draft_tokens by the target's architecture")
        return spec
    else:
        grows_a_tree = architecture in ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")
        triple = (5, 4, 8) if grows_a_tree else (3, 1, 4)
    notes.append(f"nothing given: the engine chooses {triple[0]}-{triple[1]}-{triple[2]} for this target")
    return replace(spec, num_steps=triple[0], eagle_topk=triple[1], num_draft_tokens=triple[2])


def _adaptive(request: Request, spec: SpecConfig, notes: list[str]) -> SpecConfig:
    why_not = None
    if spec.algorithm not in ("EAGLE", "EAGLE3"):
        why_not = f"it is not supported with {spec.algorithm}"
    elif spec.eagle_topk not in (None, 1):
        why_not = f"it needs eagle_topk 1, got {spec.eagle_topk}"
    elif attention_dp(request.args):
        why_not = "it is not supported with attention DP"
    elif spec.args.get("enable_multi_layer_eagle") or request.args.get("enable_two_batch_overlap"):
        why_not = "it is not supported with multi-layer EAGLE or two-batch overlap"
    if why_not is not None:
        notes.append(f"adaptive is switched off by the engine: {why_not}; the arm is static")
        return _static(request, spec, notes)
    steps = spec.num_steps
    if not spec.args.get("adaptive_config"):
        steps = ADAPTIVE_STEPS[len(ADAPTIVE_STEPS) // 2] if steps is None else steps
        if steps not in ADAPTIVE_STEPS:
            raise Refused(f"adaptive starts from one of {ADAPTIVE_STEPS}, got num_steps {steps}; choose one of those")
    notes.append("adaptive: the engine changes num_steps while it runs, so the triple is only where it starts")
    tokens = None if steps is None else steps + 1
    return replace(spec, num_steps=steps, eagle_topk=1, num_draft_tokens=tokens)


def _with_draft(request: Request, notes: list[str]) -> SpecConfig:
    spec = request.spec
    bundled = _target_class(request) in MTP_TARGETS
    if spec.draft_model_path is None:
        if spec.algorithm in ("EAGLE3", "STANDALONE"):
            raise Refused(f"{spec.algorithm} needs a draft; set speculative.draft_model_path")
        if bundled:
            notes.append("no draft path: the engine takes the target's own draft layer (MTP)")
        elif request.target is not None:
            raise Refused(
                f"this target has no draft layer of its own; {spec.algorithm} needs speculative.draft_model_path"
            )
    elif bundled and spec.algorithm == "EAGLE":
        notes.append("this target has its own draft layer (MTP); the engine warns and takes the given draft")
    if spec.aux_layer_ids is not None and spec.algorithm != "EAGLE3":
        raise Refused(f"aux_layer_ids mean nothing with {spec.algorithm}: the engine captures layers only for EAGLE3")
    return spec


def _target_class(request: Request) -> str | None:
    return target_architecture(request.target) if request.target else None


def _ngram(request: Request, notes: list[str]) -> SpecConfig:
    spec = request.spec
    if spec.aux_layer_ids is not None:
        raise Refused("aux_layer_ids mean nothing with NGRAM: the engine captures layers only for EAGLE3")
    if spec.draft_model_path is not None:
        spec = replace(spec, draft_model_path=None)
    breadth = int(spec.args.get("ngram_max_bfs_breadth") or 10)
    if spec.eagle_topk not in (None, breadth):
        notes.append(f"NGRAM: the engine replaces eagle_topk {spec.eagle_topk} by ngram_max_bfs_breadth {breadth}")
    tokens = spec.num_draft_tokens
    if tokens is None:
        tokens = 12
        notes.append("NGRAM: num_draft_tokens is 12 when it is not given")
    budget = int(spec.args.get("ngram_external_sam_budget") or 0)
    if spec.args.get("ngram_external_corpus_path") and not 0 < budget <= tokens - 1:
        raise Refused(f"ngram_external_sam_budget must be 1 to num_draft_tokens − 1 = {tokens - 1}, got {budget}")
    if attention_dp(request.args):
        raise Refused("NGRAM does not support attention DP; drop attn_dp_size, or NGRAM")
    steps = spec.num_steps if spec.num_steps is not None else tokens // breadth
    return replace(spec, num_steps=steps, eagle_topk=breadth, num_draft_tokens=tokens)


def _block(request: Request, notes: list[str]) -> SpecConfig:
    spec = request.spec
    if request.device == "cpu":
        raise Refused(f"{spec.algorithm} needs a GPU; the CPU engine runs EAGLE, EAGLE3, STANDALONE and NGRAM")
    if spec.aux_layer_ids is not None:
        raise Refused(f"aux_layer_ids mean nothing with {spec.algorithm}: the engine captures layers only for EAGLE3")
    if spec.algorithm == "DFLASH":
        if spec.draft_model_path is None:
            raise Refused("DFLASH needs a draft; set speculative.draft_model_path")
        size = spec.args.get("dflash_block_size")
        if size is not None and spec.num_draft_tokens not in (None, int(size)):
            raise Refused(f"dflash_block_size {size} and num_draft_tokens {spec.num_draft_tokens} must agree; give one")
        if spec.num_steps not in (None, 1) or spec.eagle_topk not in (None, 1):
            notes.append("DFLASH: the engine sets num_steps and eagle_topk to 1; the block size is num_draft_tokens")
        tokens = int(size) if size is not None else spec.num_draft_tokens
        return replace(spec, num_steps=1, eagle_topk=1, num_draft_tokens=tokens)
    if spec.algorithm == "UNO" and not spec.args.get("uno_lora_path"):
        raise Refused("UNO needs speculative.args.uno_lora_path")
    return spec


_FAMILIES: Mapping[str, Callable[[Request, list[str]], SpecConfig]] = {
    **dict.fromkeys(EAGLE_FAMILY, _eagle),
    **dict.fromkeys(BLOCK_FAMILY, _block),
    "FROZEN_KV_MTP": _eagle,
    "NGRAM": _ngram,
}


def _sampling(request: Request) -> Iterator[str]:
    spec, args = request.spec, request.spec.args
    block = bool(args.get("use_block_verification"))
    if block and (spec.algorithm not in MIXED_CHUNK or request.device != "cuda"):
        raise Refused("use_block_verification needs EAGLE, EAGLE3, DFLASH or DSPARK on a GPU; remove it")
    rejection = bool(args.get("use_rejection_sampling")) or (block and spec.algorithm in ("EAGLE", "EAGLE3"))
    if block and not args.get("use_rejection_sampling") and rejection:
        yield "use_block_verification switches use_rejection_sampling on"
    if not rejection:
        return
    if spec.algorithm not in ("EAGLE", "EAGLE3"):
        raise Refused(f"rejection sampling is for EAGLE and EAGLE3, not {spec.algorithm}; remove it")
    if spec.eagle_topk not in (None, 1):
        raise Refused(f"rejection sampling needs eagle_topk 1, got {spec.eagle_topk}; use a chain")
    if float(args.get("accept_threshold_single") or 1) != 1 or float(args.get("accept_threshold_acc") or 1) != 1:
        raise Refused("rejection sampling ignores the accept thresholds, so the engine refuses both; give one of them")
    if problem := drafts.other_vocabulary(request):
        raise Refused(problem)


def _parallel(request: Request) -> Iterator[str]:
    spec, args = request.spec, request.args
    if int(args.get("pp_size") or 1) > 1:
        raise Refused("speculation with pp_size > 1 runs only on prefill nodes of a disaggregated setup; use tp_size")
    if spec.algorithm == "STANDALONE" and attention_dp(args):
        raise Refused("STANDALONE does not support attention DP; drop attn_dp_size, or STANDALONE")
    if args.get("enable_mixed_chunk") and spec.algorithm not in MIXED_CHUNK:
        yield f"mixed chunked prefill is switched off by the engine: {spec.algorithm} does not support it"
    if request.device == "cpu":
        yield "on the CPU engine speculation runs without overlap scheduling; the baseline keeps it"


def _small_print(request: Request) -> Iterator[str]:
    spec, args = request.spec, request.spec.args
    if args.get("token_map") and spec.algorithm == "EAGLE3":
        yield "token_map is ignored with EAGLE3: the draft brings its own reduced vocabulary"
    if args.get("draft_sink_size") is not None and args.get("draft_window_size") is None:
        raise Refused("draft_sink_size needs draft_window_size; give both or none")
    if args.get("draft_window_size") is not None and spec.algorithm not in ("EAGLE", "EAGLE3", "DFLASH"):
        yield f"draft_window_size has no effect with {spec.algorithm}"
    for name in ("accept_threshold_single", "accept_threshold_acc"):
        if float(args.get(name) or 1) < 1:
            yield f"{name} below 1 is not lossless: it accepts tokens the target would not draw (none at temperature 0)"
    if request.env.get("SGLANG_SIMULATE_ACC_LEN"):
        yield "SGLANG_SIMULATE_ACC_LEN replaces real acceptance: no figure of this arm says anything about the draft"
