"""What the two config.json say about a pair before it is loaded: context, quantisation, vocabularies (0.5.23)."""

from collections.abc import Iterator, Mapping
from typing import Any

from sweeper.engine.flags import size_of
from sweeper.engine.layers import target_architecture, text_config
from sweeper.engine.request import Refused, Request

Config = Mapping[str, Any]
CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
OVERWRITE_CONTEXT = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
MLA_DRAFT = "Eagle3DeepseekV2ForCausalLM"


def num_layers(config: Config | None) -> int | None:
    """Decoder layers of the target."""
    value = text_config(config).get("num_hidden_layers") if config else None
    return value if isinstance(value, int) else None


def context_length(config: Config) -> int | None:
    """Tokens of context, as the engine derives it: the first length key times a plain rope factor."""
    text = text_config(config)
    scaling = text.get("rope_scaling") or {}
    factor = scaling.get("factor", 1) if isinstance(scaling, Mapping) else 1
    if "original_max_position_embeddings" in scaling or scaling.get("rope_type") == "llama3":
        factor = 1
    for key in CONTEXT_KEYS:
        if isinstance(value := text.get(key), int):
            return int((factor or 1) * value)
    return None


def own_layer_ids(draft: Config | None) -> tuple[int, ...] | None:
    """Layer ids the engine reads for capture: only inside `eagle_config`; None: it falls back to its defaults."""
    block = draft.get("eagle_config") if draft else None
    ids = block.get("eagle_aux_hidden_state_layer_ids") if isinstance(block, Mapping) else None
    if isinstance(ids, list) and ids and all(isinstance(item, int) for item in ids):
        return tuple(ids)
    return None


def aux_states(draft: Config | None) -> int | None:
    """Captured states the draft's first projection is made for; None: the config does not say."""
    if draft is None:
        return None
    count = draft.get("num_aux_hidden_states")
    if isinstance(count, int):
        return count
    ids = own_layer_ids(draft)
    return len(ids) if ids is not None else None


def context(request: Request) -> Iterator[str]:
    """The draft must reach as far as the target is asked to."""
    if request.draft is None or request.spec.draft_model_path is None:
        return
    asked = request.args.get("context_length")
    wanted = size_of(asked) if asked is not None else context_length(request.target) if request.target else None
    reach = context_length(request.draft)
    if wanted is None or reach is None or reach >= wanted:
        return
    if str(request.env.get(OVERWRITE_CONTEXT, "")).lower() in ("1", "true", "yes"):
        yield f"the draft was made for {reach} tokens; {OVERWRITE_CONTEXT} stretches it to {wanted}"
        return
    raise Refused(
        f"the draft's context is {reach}, the target's {wanted}: the engine refuses to start; set server.args."
        f"context_length to {reach}, or server.env.{OVERWRITE_CONTEXT} to 1"
    )


def quantisation(request: Request) -> Iterator[str]:
    """A draft without a method of its own takes the target's --quantization."""
    method = request.args.get("quantization")
    if method in (None, "unquant") or request.spec.args.get("draft_model_quantization") is not None:
        return
    if request.draft is None or request.spec.draft_model_path is None:
        return
    if request.draft.get("quantization_config"):
        return
    if target_architecture(request.draft) == MLA_DRAFT and method == "modelopt_fp4":
        return
    dtype = request.draft.get("dtype") or request.draft.get("torch_dtype") or "unquantised"
    yield (
        f"the draft inherits quantization {method} from the target, but its config has no quantization_config "
        f"({dtype} tensors); set speculative.args.draft_model_quantization: unquant"
    )


def other_vocabulary(request: Request) -> str | None:
    """Why rejection sampling cannot work on this pair: it needs one vocabulary."""
    if request.draft is None:
        return None
    own = request.draft.get("draft_vocab_size")
    target = text_config(request.target).get("vocab_size") if request.target else request.draft.get("vocab_size")
    if own is None or target is None or own == target:
        return None
    return (
        f"rejection sampling needs one vocabulary, the draft has {own} tokens of the target's {target}; remove "
        "speculative.args.use_rejection_sampling"
    )
