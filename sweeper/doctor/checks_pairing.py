"""Do the class, the algorithm and the number of layers belong to this checkpoint?"""

from sweeper.core.finding import Finding
from sweeper.doctor.case import EAGLE_LIKE, Case, Verdict, finding, verdict
from sweeper.doctor.manifest import Manifest
from sweeper.engine.checkpoints import (
    LAYERS_NAMES_SINCE,
    LLAMA_EAGLE3,
    MLA_EAGLE3,
    MLA_SINCE,
    DraftClass,
    draft_class,
)
from sweeper.engine.version import release


def kind_by_tensors(manifest: Manifest) -> DraftClass | None:
    """The class that the tensors prove: `hidden_norm` or an attention twice as wide is EAGLE-3, `fc` alone EAGLE."""
    names = {name.removeprefix("model."): tensor for name, tensor in manifest.tensors.items()}
    hidden = manifest.config.get("hidden_size")
    wide = any(
        name.endswith(("q_proj.weight", "q_a_proj.weight")) and tensor.shape[-1:] == (2 * hidden,)
        for name, tensor in names.items()
        if isinstance(hidden, int)
    )
    if "fc.weight" not in names:
        return None
    if wide or any(name.endswith("hidden_norm.weight") for name in names):
        return "eagle3-mla" if any("kv_a_proj_with_mqa" in name for name in names) else "eagle3-llama"
    return "eagle"


def check_architecture(case: Case) -> Verdict:
    named = case.config.architecture
    if draft_class(named) is None:
        return _unnamed(case)
    if case.kind == "eagle3-mla" and release(case.version) < release(MLA_SINCE):
        return Verdict(
            findings=(
                finding(
                    "error",
                    "draft-class-unknown",
                    f"{MLA_EAGLE3} does not exist in SGLang {case.version}; it came with {MLA_SINCE}.",
                    f"Use SGLang {MLA_SINCE} or newer.",
                ),
            )
        )
    return Verdict(excluded=f"architecture: {named} exists in SGLang {case.version}")


def _unnamed(case: Case) -> Verdict:
    if case.kind is None:
        return Verdict(unchecked=f"architecture {case.config.architecture}: not one of the draft classes known here")
    right = {"eagle3-llama": LLAMA_EAGLE3, "eagle3-mla": MLA_EAGLE3, "eagle": "LlamaForCausalLMEagle"}[case.kind]
    fc = case.manifest.shape("fc.weight") or case.manifest.shape("model.fc.weight")
    tensors = case.manifest.tensors.items()
    wide = [tensor for name, tensor in tensors if name.endswith(("q_proj.weight", "q_a_proj.weight"))]
    proof = "".join(f" and {tensor.name} {list(tensor.shape)}" for tensor in wide[:1])
    return Verdict(
        findings=(
            finding(
                "error",
                "draft-architecture",
                f"architectures names {case.config.architecture}, but fc.weight {list(fc or ())}{proof} belong to an "
                f"{'EAGLE' if case.kind == 'eagle' else 'EAGLE-3'} draft; the engine picks the class by that name "
                "alone and would build another model.",
                f'Set "architectures": ["{right}"] (`sweeper doctor --fix` does it).',
            ),
        )
    )


def check_algorithm(case: Case) -> Verdict:
    if case.algorithm == "EAGLE3" and case.kind is None and _is_ordinary(case):
        return Verdict(findings=(_no_draft(case),))
    if case.kind is None or case.algorithm not in ("EAGLE3", *EAGLE_LIKE):
        return Verdict(unchecked=f"algorithm {case.algorithm} with a draft of class {case.config.architecture}")
    if case.eagle3_draft and case.algorithm in EAGLE_LIKE:
        return Verdict(findings=(_eagle_for_eagle3(case),))
    if case.kind == "eagle" and case.algorithm == "EAGLE3":
        found = finding(
            "error",
            "algorithm-eagle3-for-eagle",
            f"{case.config.architecture} is an EAGLE-1/2 draft: it takes one hidden state, EAGLE3 sends it three.",
            "Use --speculative-algorithm EAGLE.",
        )
        return Verdict(findings=(found,))
    return Verdict(excluded=f"algorithm: {case.algorithm} fits a draft of this kind")


def _is_ordinary(case: Case) -> bool:
    """A language model of its own, by class name and by tensors: it has no `fc` that takes states of a target."""
    ordinary = (case.config.architecture or "").endswith(("ForCausalLM", "ForConditionalGeneration"))
    return ordinary and bool(case.manifest.layers) and case.manifest.named("fc.weight") is None


def _no_draft(case: Case) -> Finding:
    return finding(
        "error",
        "draft-is-a-model",
        f"{case.config.architecture} without fc.weight is a model of its own, no EAGLE-3 draft: the engine loads it, "
        "finds no draft vocabulary on it and ends with an AttributeError (hot_token_id).",
        "Name the draft's folder; a small model of the same vocabulary drafts with --speculative-algorithm STANDALONE.",
    )


def _eagle_for_eagle3(case: Case) -> Finding:
    fc = case.manifest.shape("fc.weight") or case.manifest.shape("model.fc.weight") or ()
    alias = "NEXTN is EAGLE by another name, and " if case.algorithm == "NEXTN" else ""
    proof = f"fc.weight takes {fc[-1]} values per token" if fc else f"its class is {case.config.architecture}"
    return finding(
        "error",
        "algorithm-eagle-for-eagle3",
        f"This is an EAGLE-3 draft ({proof}), but {alias}only EAGLE3 makes the engine capture several target layers. "
        f"With {case.algorithm} the draft gets one state of {case.config.width_in}, its fc is skipped in silence and "
        "the target's head replaces its own: accept length near 1, no error.",
        "Use --speculative-algorithm EAGLE3.",
    )


def check_layer_count(case: Case) -> Verdict:
    declared = case.config.num_hidden_layers
    held = case.manifest.layers
    if declared is None or not held or case.kind is None:
        return Verdict(unchecked="number of decoder layers")
    one_only = case.kind == "eagle3-mla" or (
        case.kind == "eagle3-llama" and release(case.version) < release(LAYERS_NAMES_SINCE)
    )
    wrong = finding(
        "error",
        "layer-count",
        f"num_hidden_layers is {declared} while the checkpoint holds {len(held)} decoder layer(s)"
        + (", and this class refuses anything but 1." if one_only else "; the others would stay uninitialised."),
        f"Set num_hidden_layers to {len(held)}.",
    )
    refused = finding(
        "error",
        "layer-count",
        f"The draft has {declared} decoder layers; this class of SGLang {case.version} refuses anything but 1.",
        f"Use SGLang {LAYERS_NAMES_SINCE} or newer with {LLAMA_EAGLE3}, or a draft of one layer.",
    )
    found = wrong if declared != len(held) else refused if one_only and declared != 1 else None
    return verdict([found], f"layer count: {declared}, as in the checkpoint")


STRICT_HEADS_SINCE = "0.5.23"
"""First release seen with a transformers package (5.19) whose Llama config validates its heads."""


def check_model_type(case: Case) -> Verdict:
    """The engine's config class comes from `model_type`, whatever `architectures` says."""
    config = case.manifest.config
    if "model_type" in config or "auto_map" in config or not case.manifest.tensors:
        return Verdict(excluded=f"model type: {case.config.model_type}")
    if release(case.version) < release(STRICT_HEADS_SINCE):
        return Verdict(unchecked="model type: none; older transformers packages guess it from the folder's name")
    found = finding(
        "error",
        "model-type-missing",
        "config.json has no model_type; the transformers package of this engine cannot choose a config class and the "
        "server refuses to start.",
        'Add "model_type": "llama" (or that of the draft\'s own kind).',
    )
    return Verdict(findings=(found,))


def check_heads(case: Case) -> Verdict:
    """The config class of `model_type: llama` refuses a width that its heads do not divide, even with `head_dim`."""
    hidden, heads = case.config.hidden_size, case.config.num_attention_heads
    if case.config.model_type != "llama" or not hidden or not heads:
        return Verdict(unchecked="attention heads: not a Llama config, or not stated")
    if hidden % heads == 0 or release(case.version) < release(STRICT_HEADS_SINCE):
        return Verdict(excluded=f"attention heads: {heads} for {hidden}")
    found = finding(
        "error",
        "heads-do-not-divide",
        f"hidden_size {hidden} is no multiple of num_attention_heads {heads}; the Llama config of this engine's "
        "transformers package refuses that, although head_dim is given.",
        'Train with heads that divide, or name a "model_type" whose config has no such check ("qwen3" has none).',
    )
    return Verdict(findings=(found,))
