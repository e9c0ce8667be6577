"""Sound drafts of many families, as a careful training run would publish them."""

from collections.abc import Mapping
from dataclasses import replace

from drafts import QKV, Draft, eagle2_draft, ids, llama_draft, mla_draft, nested, target_of

LLAMA31 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "rope_theta": 150000.0}
LLAMA_TARGET = target_of("LlamaForCausalLM", hidden=4096, layers=32, vocab=128256, rope_scaling=LLAMA31)
QWEN_MOE = target_of("Qwen3MoeForCausalLM", hidden=2048, layers=48, vocab=151936)
DEEPSEEK = target_of("DeepseekV3ForCausalLM", hidden=7168, layers=61, vocab=129280)
KIMI = nested(
    "KimiK25ForConditionalGeneration",
    target_of("DeepseekV3ForCausalLM", hidden=7168, layers=61, vocab=163840),
)
DEEPSEEK_YARN = {
    "type": "yarn",
    "factor": 40,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
MROPE = {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [24, 20, 20]}
GPT_OSS = {**target_of("GptOssForCausalLM", hidden=2880, layers=36, vocab=201088), "rope_parameters": YARN}
GPT_OSS.pop("rope_theta")
GEMMA_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
GEMMA = nested(
    "Gemma3ForConditionalGeneration",
    target_of("Gemma3ForCausalLM", hidden=3840, layers=48, vocab=262208, rope_parameters=GEMMA_ROPE),
)
LLAMA4 = nested("Llama4ForConditionalGeneration", target_of("Llama4ForCausalLM", hidden=5120, layers=48, vocab=202048))

LLAMA = llama_draft(LLAMA_TARGET, size=(4096, 14336, 32, 8), vocab=128256)
MLA = mla_draft(DEEPSEEK, hidden=7168, inner=18432, heads=64, vocab=129280, draft_vocab_size=129280)


def _eagle31() -> Draft:
    target = target_of("Qwen3NextForCausalLM", hidden=2048, layers=48, vocab=151936)
    draft = llama_draft(
        target, size=(2048, 6144, 16, 4), vocab=151936, num_hidden_layers=2, eagle_config=ids(1, 23, 44)
    )
    second = {
        name.replace("midlayer.", "layers.1."): (dtype, (shape[0], 2048) if name[-13:-8] in QKV else shape)
        for name, (dtype, shape) in draft.tensors.items()
        if name.startswith("midlayer.")
    }
    norms = {f"fc_norm.{index}.weight": ("BF16", (2048,)) for index in range(3)}
    before = {"input_norm.weight": ("BF16", (6144,))}
    tensors = {**draft.renamed("midlayer.", "layers.0.").tensors, **second, **norms, **before}
    return replace(draft.configured(fc_norm=True, norm_before_fc=True, norm_output=True), tensors=tensors)


def _qwen3_4b() -> Draft:
    """As `save_pretrained` writes it: what equals the default of the config class is not in the file."""
    target = target_of("Qwen3ForCausalLM", hidden=2560, layers=36, vocab=151936, rope_theta=1e6)
    draft = llama_draft(target, size=(2560, 9728, 32, 8), vocab=151936, model_type="qwen3").without("embed_tokens")
    silent = ("head_dim", "tie_word_embeddings")
    return replace(draft, config={key: value for key, value in draft.config.items() if key not in silent})


def _with_output_bias(draft: Draft) -> Draft:
    bias = {"midlayer.self_attn.o_proj.bias": ("BF16", (draft.config["hidden_size"],))}
    return replace(draft, tensors={**draft.tensors, **bias})


SOUND: Mapping[str, tuple[Draft, str]] = {
    "Llama 3.1 8B": (LLAMA, "EAGLE3"),
    "Qwen3 8B": (
        llama_draft(
            target_of("Qwen3ForCausalLM", hidden=4096, layers=36, vocab=151936),
            size=(4096, 12288, 32, 8),
            vocab=151936,
            eagle_config=ids(1, 17, 32),
        ).renamed("midlayer.", "layers.0."),
        "EAGLE3",
    ),
    "Qwen3-MoE 30B": (llama_draft(QWEN_MOE, size=(2048, 12288, 32, 4), vocab=151936), "EAGLE3"),
    "GPT-OSS 120B, head borrowed": (
        llama_draft(GPT_OSS, size=(2880, 17280, 64, 8), vocab=201088, draft_vocab=None, eagle_config=ids(1, 17, 32)),
        "EAGLE3",
    ),
    "GPT-OSS 120B, last block": (
        llama_draft(GPT_OSS, size=(2880, 17280, 64, 8), vocab=201088, eagle_config=ids(24, 30, 36)),
        "EAGLE3",
    ),
    "DeepSeek V3, MLA, own full head": (MLA.configured(eagle_config=ids(2, 30, 58)), "EAGLE3"),
    "Kimi K2.5 multimodal, MLA, head borrowed": (
        mla_draft(KIMI, hidden=7168, inner=18432, heads=64, vocab=163840, eagle_config=ids(1, 29, 57)).renamed(
            "midlayer.", "layers.0."
        ),
        "EAGLE3",
    ),
    "Kimi K2.5 multimodal, Llama class": (
        llama_draft(KIMI, size=(7168, 18432, 64, 64), vocab=163840, eagle_config=ids(2, 30, 58)),
        "EAGLE3",
    ),
    "GLM-4-MoE": (
        llama_draft(
            target_of("Glm4MoeForCausalLM", hidden=5120, layers=92, vocab=151552),
            size=(5120, 12288, 40, 8),
            vocab=151552,
        ).renamed("midlayer.", "model.layers.0."),
        "EAGLE3",
    ),
    "Gemma 3 12B multimodal": (llama_draft(GEMMA, size=(3840, 15360, 16, 8), vocab=262208), "EAGLE3"),
    "MiniMax M2": (
        llama_draft(
            target_of("MiniMaxM2ForCausalLM", hidden=3072, layers=62, vocab=200064),
            size=(3072, 8192, 24, 8),
            vocab=200064,
            eagle_config=ids(1, 30, 58),
        ),
        "EAGLE3",
    ),
    "Llama 4 Maverick multimodal": (
        llama_draft(
            LLAMA4,
            size=(5120, 8192, 40, 8),
            vocab=202048,
            model_type="llama4_text",
            intermediate_size_mlp=16384,
            eagle_config=ids(1, 23, 44),
        ),
        "EAGLE3",
    ),
    "EAGLE-2 Llama": (eagle2_draft(), "EAGLE"),
    "smaller draft for Llama 70B": (
        llama_draft(
            target_of("LlamaForCausalLM", hidden=8192, layers=80, vocab=128256),
            size=(3072, 8192, 24, 8),
            vocab=128256,
            target_hidden_size=8192,
        ),
        "EAGLE3",
    ),
    "EAGLE-3.1, two layers, all norms": (_eagle31(), "EAGLE3"),
    "Qwen3 4B, defaults left out": (_qwen3_4b(), "EAGLE3"),
    "GPT-OSS 120B, bias of the output projection": (
        _with_output_bias(llama_draft(GPT_OSS, size=(2880, 17280, 64, 8), vocab=201088, attention_bias=True)),
        "EAGLE3",
    ),
    "DeepSeek V3, MLA, yarn, small vocabulary": (
        mla_draft(
            target_of("DeepseekV3ForCausalLM", hidden=7168, layers=61, vocab=129280, rope_scaling=DEEPSEEK_YARN),
            hidden=7168,
            inner=18432,
            heads=128,
            vocab=129280,
            model_type="deepseek_v3",
            draft_vocab_size=32000,
            eagle_config=ids(2, 30, 58),
        ).without("embed_tokens"),
        "EAGLE3",
    ),
    "Qwen3-VL-MoE, mrope": (
        llama_draft(
            nested(
                "Qwen3VLMoeForConditionalGeneration",
                target_of("Qwen3VLMoeTextModel", hidden=4096, layers=94, vocab=151936, rope_scaling=MROPE),
            ),
            size=(4096, 12288, 64, 4),
            vocab=151936,
            rope_scaling=None,
        ),
        "EAGLE3",
    ),
    "GLM-4.6, half of each head turned": (
        llama_draft(
            target_of("Glm4MoeForCausalLM", hidden=5120, layers=92, vocab=151552, partial_rotary_factor=0.5),
            size=(5120, 12288, 40, 8),
            vocab=151552,
            partial_rotary_factor=0.5,
        ),
        "EAGLE3",
    ),
}
"""Family to a draft without fault, and the algorithm it is for."""
