"""Stands in for the native `sgl_kernel` of SGLang's CPU engine, in plain PyTorch.

Only a server process that Sweeper starts ever sees it (PYTHONPATH of that process).
"""

from .attention import decode_attention_cpu, extend_attention_cpu
from .cache import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
    store_cache_cpu,
)
from .layers import (
    apply_rotary_pos_emb_cpu,
    fused_add_rmsnorm_cpu,
    gelu_and_mul_cpu,
    gelu_tanh_and_mul_cpu,
    rmsnorm_cpu,
    rotary_embedding_cpu,
    silu_and_mul_cpu,
)
from .linear import convert_weight_packed, weight_packed_linear
from .missing import explain_what_is_missing
from .runtime import init_cpu_threads_env, initialize
from .tree import (
    build_tree_kernel_efficient_cpu,
    reconstruct_indices_from_tree_mask_cpu,
    verify_tree_greedy_cpu,
)
from .version_check import warn_if_untested

__all__ = [
    "apply_rotary_pos_emb_cpu",
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "convert_weight_packed",
    "copy_all_layer_kv_cache_cpu",
    "decode_attention_cpu",
    "extend_attention_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "fused_add_rmsnorm_cpu",
    "gelu_and_mul_cpu",
    "gelu_tanh_and_mul_cpu",
    "init_cpu_threads_env",
    "initialize",
    "reconstruct_indices_from_tree_mask_cpu",
    "rmsnorm_cpu",
    "rotary_embedding_cpu",
    "rotate_input_ids_cpu",
    "silu_and_mul_cpu",
    "store_cache_cpu",
    "verify_tree_greedy_cpu",
    "weight_packed_linear",
]

explain_what_is_missing()
warn_if_untested()
