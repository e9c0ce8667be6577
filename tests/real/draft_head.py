"""Run by the engine's interpreter: SGLang's own draft classes compute a draft's chains, step by step, on the CPU.

Reads a list of draft folders as JSON on stdin; beside each lies `NAME.inputs` (safetensors) with `states` [rows,
aux * hidden] and `input_ids` [rows + steps]. The engine's `ModelRunner` builds the class that config.json names, loads
its weights, keeps its KV cache and attends with the engine's `torch_native` backend. Writes `NAME.logits` with `logits`
[rows, steps, vocabulary]: row t is a prefill of the states up to t, then one decode pass for each later step.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

# The stand-in has no kernels for latent attention; without tiles the engine takes its plain PyTorch paths.
torch.cpu._is_amx_tile_supported = lambda: False

from sglang.srt.configs.model_config import ModelConfig  # noqa: E402
from sglang.srt.distributed import bootstrap  # noqa: E402
from sglang.srt.layers.rotary_embedding import get_rope  # noqa: E402
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode  # noqa: E402
from sglang.srt.model_executor.model_runner import ModelRunner  # noqa: E402
from sglang.srt.models import deepseek_v2  # noqa: E402
from sglang.srt.models.deepseek_common.attention_backend_handler import AttentionBackendRegistry  # noqa: E402
from sglang.srt.models.deepseek_common.attention_forward_methods.forward_methods import AttnForwardMethod  # noqa: E402
from sglang.srt.runtime_context import SpawnRanks, get_device, publish, spawn_world_rank  # noqa: E402
from sglang.srt.server_args import PortArgs, ServerArgs  # noqa: E402
from sglang.srt.speculative.eagle_info import EagleDraftInput  # noqa: E402

_rope_on_cpu = deepseek_v2.get_rope_wrapper


def rope(*args: Any, rope_scaling: Any, device: str, **named: Any) -> Any:
    """On a CPU the engine's latent attention has rope for yarn only; without scaling it gets what a GPU gets."""
    if rope_scaling is None:
        return get_rope(*args, **named)
    return _rope_on_cpu(*args, rope_scaling=rope_scaling, device=device, **named)


deepseek_v2.get_rope_wrapper = rope
# `torch_native` attends over what is in the cache, so the prefill too takes the absorbed form that decoding takes.
AttentionBackendRegistry.register("torch_native", lambda attention, batch: AttnForwardMethod.MLA)


def model_runner(draft: Path) -> Any:
    """The engine's runner with the draft as its only model."""
    arguments = ServerArgs(
        model_path=str(draft),
        device="cpu",
        dtype="float32",
        attention_backend="torch_native",
        skip_tokenizer_init=True,
        max_total_tokens=256,
        mem_fraction_static=0.3,
        disable_radix_cache=True,
        disable_overlap_schedule=True,
        disable_cuda_graph=True,
    )
    arguments.resolve_once()
    ranks = SpawnRanks(world_rank=spawn_world_rank(arguments, tp_rank=0, pp_rank=0), gpu_id=0)
    publish(arguments, role="scheduler", ranks=ranks)
    config = ModelConfig.from_server_args(arguments)
    port = PortArgs.init_new(arguments).nccl_port
    bootstrap.init_parallel_runtime(server_args=arguments, device=get_device().device, dist_port=port)
    bootstrap.init_layer_runtime(model_config=config)
    runner = ModelRunner(model_config=config, mem_fraction_static=0.3, gpu_id=0, nccl_port=port, server_args=arguments)
    runner.alloc_memory_pool()
    runner.init_attention_backends()
    runner.init_cuda_graphs()
    return runner


def forward(runner: Any, ids: torch.Tensor, states: torch.Tensor, *, before: int) -> Any:
    """One pass over `ids`, the first at position `before`; more than one, or the first, is a prefill."""
    count, total = len(ids), before + len(ids)
    places = torch.arange(1, total + 1)
    runner.req_to_token_pool.req_to_token[0, :total] = places.to(torch.int32)
    mode = ForwardMode.EXTEND if before == 0 else ForwardMode.DECODE
    batch = ForwardBatch(
        forward_mode=mode,
        batch_size=1,
        input_ids=ids,
        req_pool_indices=torch.tensor([0]),
        seq_lens=torch.tensor([total]),
        seq_lens_cpu=torch.tensor([total]),
        out_cache_loc=places[before:],
        seq_lens_sum=total,
        positions=torch.arange(before, total),
        spec_info=EagleDraftInput(hidden_states=states),
        capture_hidden_mode=CaptureHiddenMode.FULL,
    )
    if mode.is_extend():
        batch.extend_num_tokens = count
        batch.extend_seq_lens = torch.tensor([count])
        batch.extend_prefix_lens = torch.tensor([0])
        batch.extend_start_loc = torch.tensor([0])
        batch.extend_seq_lens_cpu, batch.extend_prefix_lens_cpu = [count], [0]
    return runner.forward(batch).logits_output


@torch.inference_mode()
def compute(draft: Path) -> None:
    inputs = load_file(draft.with_suffix(".inputs"))
    states, ids = inputs["states"], inputs["input_ids"]
    rows = len(states)
    runner = model_runner(draft)
    chains = []
    for row in range(rows):
        out = forward(runner, ids[1 : row + 2], states[: row + 1], before=0)
        steps = [out.next_token_logits[-1]]
        for step in range(1, len(ids) - rows):
            state = out.hidden_states[-1:]
            out = forward(runner, ids[row + step + 1 : row + step + 2], state, before=row + step)
            steps.append(out.next_token_logits[-1])
        chains.append(torch.stack(steps))
    save_file({"logits": torch.stack(chains).contiguous()}, draft.with_suffix(".logits"))


def main() -> None:
    """A child process a draft: the engine keeps one configuration a process, and its imports take longest."""
    for draft in map(Path, json.load(sys.stdin)):
        child = os.fork()
        if child == 0:
            try:
                compute(draft)
            except BaseException:  # noqa: BLE001  a child ends here, whatever happened
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(f"{draft}: failed")


if __name__ == "__main__":
    main()
