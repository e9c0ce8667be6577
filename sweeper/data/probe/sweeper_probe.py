"""Runs inside the engine: notes what a draft model receives. An SGLang plugin, found by its entry point.

Writes one JSON line a call to the file in SWEEPER_PROBE_FILE, for the first calls of each forward mode and for any
later one that is longer: how many requests the engine answers before ours differs from start to start.
"""

import importlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_CALLS_PER_MODE = 8
_MODELS = (
    "sglang.srt.models.llama_eagle3.LlamaModel.forward",
    "sglang.srt.models.kimi_k25_eagle3.Eagle3MLAModel.forward",
)


def register() -> None:
    """Called by the engine in each of its processes; without the variable nothing is hooked."""
    path = os.environ.get("SWEEPER_PROBE_FILE")
    if not path:
        return
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
    seen: Counter[str] = Counter()
    longest: Counter[str] = Counter()

    def note(*args: Any, **kwargs: Any) -> None:
        _note(Path(path), seen, longest, args, kwargs)

    for target in _MODELS:
        hooks.HookRegistry.register(target, note, hooks.HookType.BEFORE)


def _note(
    path: Path, seen: Counter[str], longest: Counter[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    model = args[0]
    batch = kwargs.get("forward_batch", args[3] if len(args) > 3 else None)
    states = getattr(getattr(batch, "spec_info", None), "hidden_states", None)
    if batch is None or states is None or states.shape[0] == 0:
        return
    mode = batch.forward_mode.name
    seen[mode] += 1
    if seen[mode] > _CALLS_PER_MODE and states.shape[0] <= longest[mode]:
        return
    longest[mode] = max(longest[mode], states.shape[0])
    count, width = getattr(model, "num_aux_hidden_states", 1), states.shape[-1]
    hidden, fc_width = model.embed_tokens.weight.shape[1], model.fc.weight.shape[1]
    parts = states.float().chunk(count if width == fc_width else 1, -1)
    line = {
        "mode": mode,
        "rows": states.shape[0],
        "width": width,
        "fc_width": fc_width,
        "hidden": hidden,
        "norms": [round(part.norm(dim=-1).mean().item(), 4) for part in parts],
        "first_values": [round(value, 4) for value in states[-1, :5].float().tolist()],
    }
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
