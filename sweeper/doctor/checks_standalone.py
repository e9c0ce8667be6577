"""STANDALONE: the draft is a model of its own that shares token ids, positions and GPUs with the target, no state."""

import re

from sweeper.core.finding import Finding
from sweeper.doctor.case import Case, Verdict, finding, verdict
from sweeper.engine.checkpoints import read_as_predictor
from sweeper.engine.flags import size_of

_HEAD = re.compile(r"(?:Eagle3?|NextN|MTP|MTPHead|AssistantForCausalLM|AssistantModel|DraftModel)$")
"""Classes that draft from states of a target."""


def check_model(case: Case) -> Verdict:
    """Is it a language model, and will the engine build that model?"""
    named = case.config.architecture
    if case.kind is not None or _HEAD.search(named or ""):
        return Verdict(findings=(_head(case),))
    return verdict([_predictor(case)], f"class: {named} is a model of its own and is loaded as one")


def _head(case: Case) -> Finding:
    fc = case.manifest.shape("fc.weight") or case.manifest.shape("model.fc.weight")
    proof = f"fc.weight {list(fc)}" if fc else f"its class is {case.config.architecture}"
    head, right = "a draft head", "EAGLE or NEXTN, whichever it was trained for"
    if case.eagle3_draft:
        head, right = "an EAGLE-3 draft", "EAGLE3"
    elif case.kind == "eagle":
        head, right = "an EAGLE-1/2 draft", "EAGLE"
    return finding(
        "error",
        "algorithm-standalone-for-eagle3" if case.eagle3_draft else "algorithm-standalone-for-head",
        f"This is {head} ({proof}): it reads hidden states of the target and is no model of its own. "
        "STANDALONE runs the draft as a language model that sees tokens only.",
        f"Use --speculative-algorithm {right}, or name a small model of the target's vocabulary.",
    )


def _predictor(case: Case) -> Finding | None:
    if not read_as_predictor(case.config.architecture, case.version):
        return None
    return finding(
        "error",
        "draft-read-as-predictor",
        f"SGLang {case.version} never loads {case.config.architecture} as a draft: it builds the multi-token predictor "
        "of that class instead, which reads hidden states of the target, and STANDALONE hands none over.",
        "Name a small model of a class without such a predictor, or use EAGLE if the target carries one.",
    )


def check_depth(case: Case) -> Verdict:
    """More layers than declared are left alone: models often ship their predictor's layer, too."""
    declared = case.config.num_hidden_layers
    held = case.manifest.layers
    if declared is None or not held:
        return Verdict(unchecked="number of decoder layers")
    missing = finding(
        "error",
        "layer-count",
        f"num_hidden_layers is {declared} while the checkpoint holds {len(held)} decoder layer(s); the others would "
        "stay uninitialised.",
        f"Use the config.json that was saved with these weights, or set num_hidden_layers to {len(held)}.",
    )
    return verdict([missing if len(held) < declared else None], f"layer count: {declared}, all in the checkpoint")


def check_sharding(case: Case) -> Verdict:
    """The draft is cut over the target's tensor-parallel ranks."""
    ranks = size_of(case.args.get("tp_size") or case.args.get("tp") or 1)
    heads = case.config.num_attention_heads
    pairs = heads if case.config.mla else case.config.num_key_value_heads or heads
    elsewise = case.args.get("device") == "cpu" or case.args.get("attn_cp_size") not in (None, 1)
    if not heads or not pairs or not ranks or elsewise:
        return Verdict(unchecked="tensor parallelism: heads or ranks not stated, or cut in another way")
    if heads % ranks == 0 and max(pairs, ranks) % min(pairs, ranks) == 0:
        return Verdict(excluded=f"tensor parallelism: {heads} heads ({pairs} for keys and values) over {ranks}")
    found = finding(
        "error",
        "heads-not-shardable",
        f"The draft has {heads} attention heads ({pairs} for keys and values); the engine cuts it over the target's "
        f"{ranks} tensor-parallel ranks and asserts that they divide: the server fails while it builds the draft.",
        "Serve with a tp_size that divides the draft's heads, or name a draft whose heads it divides.",
    )
    return Verdict(findings=(found,))


def check_token_map(case: Case) -> Verdict:
    """The map renames what a shortened head proposes; a standalone model keeps its whole head."""
    given = case.args.get("speculative_token_map")
    found = finding(
        "error",
        "token-map-standalone",
        f"speculative_token_map {given} is applied to the draft's proposals, while STANDALONE leaves the draft its "
        "whole head: every proposal becomes another token or reaches past the map.",
        "Remove the token map.",
    )
    return verdict([found if given else None], "token map: none")


def check_unshared(case: Case) -> Verdict:
    return Verdict(
        excluded="widths, layer ids, rope, dtype: not shared; the draft gets tokens and positions only",
        unchecked="names and shapes: the tensors of an ordinary model's class are not listed here",
    )
