"""Lines by which SGLang names the cause of its end: pattern, class, sentence, remedy. Read in 0.5.17 and 0.5.23."""

import re
from dataclasses import dataclass

from sweeper.core.result import FailureClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    pattern: re.Pattern[str]
    failure_class: FailureClass
    message: str
    """With {0}, {1} … of the pattern's groups; empty: the line itself."""
    remedy: str


NO_SUCH_FLAG = "this engine version does not take it: see `python -m sglang.launch_server --help`"
RAISE_MEMORY = "raise mem_fraction_static, or use more GPUs or a smaller model"
LOWER_MEMORY = "lower mem_fraction_static, or the largest captured batch (cuda_graph_max_bs_decode)"
FREE_MEMORY = "use more GPUs, a smaller or quantised model, or free the GPU"
SEE_DOCTOR = "run `sweeper doctor` on the draft: its shapes do not fit this target or these layer ids"
LAYER_IDS = "correct aux_layer_ids: `sweeper doctor` names the layers"
INSTALL = "install sglang there, or name another interpreter in engine.python"
OTHER_PORT = "run again: another port is taken (unless server.args fixes it), or end what listens there"
OOM_KILLER = "look for the OOM killer (`dmesg -T | grep -i oom`) and at the host's memory"


def _rule(pattern: str, failure_class: FailureClass, message: str, remedy: str) -> Rule:
    return Rule(pattern=re.compile(pattern), failure_class=failure_class, message=message, remedy=remedy)


RULES: tuple[Rule, ...] = (
    _rule(r": error: unrecognized arguments: (.+)", "bad_argument", "bad launch argument {0}", NO_SUCH_FLAG),
    _rule(
        r": error: ambiguous option: (\S+) could match (.+)",
        "bad_argument",
        "bad launch argument {0}: it could be {1}",
        "name one of them",
    ),
    _rule(r": error: argument ([^:]+): (.+)", "bad_argument", "bad launch argument {0}: {1}", "correct its value"),
    _rule(r": error: (the following arguments are required: .+)", "bad_argument", "{0}", "give them in server.args"),
    _rule(
        r"^ValueError: Unknown speculative algorithm name: (\S+)",
        "bad_argument",
        "unknown speculative algorithm {0}",
        NO_SUCH_FLAG,
    ),
    _rule(
        r"selected index k out of range",
        "bad_argument",
        "the draft tree is smaller than num_draft_tokens",
        "use num_draft_tokens - 1 <= eagle_topk + (num_steps - 1) * eagle_topk^2",
    ),
    _rule(
        r"context_length \((\d+)\) is greater than the derived context_length \((\d+)\)",
        "bad_argument",
        "context length {0} is above the {1} that the model's (or draft's) config allows",
        "set context_length to the smaller one, or correct max_position_embeddings in the draft's config",
    ),
    _rule(
        r"No module named '?sglang(?:\.launch_server)?'?\s*$",
        "engine_missing",
        "this interpreter has no SGLang",
        INSTALL,
    ),
    _rule(
        r"(\S.*) is not provided by Sweeper's CPU engine",
        "engine_missing",
        "the CPU engine does not provide {0}",
        "run this on a GPU, or another configuration here",
    ),
    _rule(
        r"The memory capacity is unbalanced",
        "gpu_busy",
        "the server's GPUs have unequal free memory: one is held by another process",
        "`sweeper gpus` shows who holds it",
    ),
    _rule(
        r"^(?:ModuleNotFoundError|ImportError): (.+)",
        "engine_missing",
        "the engine lacks a part: {0}",
        "install it in the engine's environment",
    ),
    _rule(
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "oom_load",
        "no memory is left for the KV cache after loading",
        RAISE_MEMORY,
    ),
    _rule(
        r"no GPU memory for the KV cache under --mem-fraction-static=(\S+?)\. Raise .* above ([\d.]+\d)",
        "oom_load",
        "no memory is left for the KV cache: mem_fraction_static={0}, at least {1} is needed",
        RAISE_MEMORY,
    ),
    _rule(r"error while attempting to bind on address (\(.*?\))", "port", "the address {0} is taken", OTHER_PORT),
    _rule(
        r"^(?!.*Waiting for).*?(\w+) is used by a process already.*pid=(\d+)",
        "port",
        "{0} is in use by pid {1}",
        "compare that pid with `sweeper clean --dry-run`; if it is foreign, run again: another port is taken",
    ),
    _rule(r"[Aa]ddress already in use", "port", "a port of the server is taken", OTHER_PORT),
    _rule(
        r"illegal memory access|CUDA error: misaligned address|device-side assert triggered",
        "illegal_memory",
        "illegal memory access on the GPU",
        "try another attention backend or disable_cuda_graph; the sweep goes on with a fresh server",
    ),
    _rule(
        r"NCCL error|nccl\w*Error|DistBackendError|DistNetworkError|Gloo connectFullMesh failed"
        r"|gloo/transport.*Connection closed by peer"
        r"|NCCL.*(?:unhandled|timed? ?out)",
        "nccl",
        "",
        "check the links (nvidia-smi topo -m), NCCL_NVLS_ENABLE=0, and that no other job uses the same port",
    ),
    _rule(
        r"captured (\d+) of (\d+) aux hidden states",
        "draft_mismatch",
        "only {0} of {1} auxiliary layers are ever reached in this target",
        LAYER_IDS,
    ),
    _rule(
        r"mat1 and mat2 shapes cannot be multiplied \((\w+) and (\w+)\)",
        "draft_mismatch",
        "the draft's input has another width than its weights ({0} against {1}): a layer id is never captured, "
        "or the draft is for another target",
        LAYER_IDS,
    ),
    _rule(
        r"Attempted to load weight \((torch\.Size\(.+?\))\) into parameter \((torch\.Size\(.+?\))\)",
        "draft_mismatch",
        "a weight of shape {0} does not fit the parameter of shape {1}",
        SEE_DOCTOR,
    ),
    _rule(
        r"has no attribute '(?:hot_token_id|set_eagle3?_layers_to_capture)'",
        "draft_mismatch",
        "this checkpoint is no draft of this algorithm",
        SEE_DOCTOR,
    ),
    _rule(
        r"target vocab_size=(\d+) and draft vocab_size=(\d+)",
        "draft_mismatch",
        "STANDALONE needs one vocabulary, the target has {0} ids and the draft {1}",
        "name a draft whose config.json has the target's vocab_size",
    ),
    _rule(
        r"unsupported operand type\(s\) for \+: 'Tensor' and 'NoneType'",
        "draft_mismatch",
        "an auxiliary layer id points before the first layer",
        LAYER_IDS,
    ),
    _rule(
        r"watchdog timeout(?!.*soft=True)",
        "hang_load",
        "the engine's own watchdog saw no forward pass end",
        "see the stacks in the log; try another attention backend",
    ),
)
