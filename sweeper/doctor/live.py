"""Hidden states of the target as the installed engine captures them: a real server without a draft."""

import asyncio
import json
import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sweeper.core.trial import ServerConfig
from sweeper.doctor.samples import Sample
from sweeper.effects.http import ControlClient
from sweeper.effects.ports import reserve_port
from sweeper.effects.server import SglangLauncher
from sweeper.engine.argv import launch_plan
from sweeper.errors import ServerError

CPU_ENGINE = Path(__file__).parent.parent / "data" / "cpu_engine"
_GENERATE_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Where and how the capturing server runs."""

    target: Path
    device: Literal["cuda", "cpu"]
    gpu_ids: tuple[int, ...] = ()
    args: Mapping[str, Any] = field(default_factory=dict)
    on_phase: Callable[[str], None] = lambda text: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Token ids to run through the target."""

    name: str
    input_ids: tuple[int, ...]
    max_new_tokens: int = 1


def capture(engine: Engine, texts: Sequence[Text], *, layer_ids: Sequence[int], hidden: int) -> tuple[Sample, ...]:
    """Run `texts` greedily; each sample holds one slot per layer id, named `id 2`, … in the engine's order.

    States cover every token but the last generated one. ServerError when the engine does not start or answer.
    """
    return asyncio.run(_capture(engine, texts, tuple(layer_ids), hidden))


async def _capture(engine: Engine, texts: Sequence[Text], ids: tuple[int, ...], hidden: int) -> tuple[Sample, ...]:
    with tempfile.TemporaryDirectory(prefix="sweeper-capture-") as folder, reserve_port(holder="diagnose") as port:
        plan = launch_plan(
            _server(engine, ids),
            launch_id=uuid.uuid4().hex[:12],
            gpu_ids=engine.gpu_ids,
            port=port,
            log_path=Path(folder) / "server.log",
            python=sys.executable,
            cpu_engine_dir=CPU_ENGINE,
        )
        launcher = SglangLauncher()
        running = launcher.launch(
            plan,
            run_id="diagnose",
            owner_pid=os.getpid(),
            on_phase=lambda phase, text: engine.on_phase(f"{phase} {text}".strip()),
        )
        async with running, ControlClient(plan.base_url) as client:
            return tuple([await _sample(client, text, ids, hidden) for text in texts])


def _server(engine: Engine, ids: tuple[int, ...]) -> ServerConfig:
    capture_only = {
        "speculative_algorithm": "EAGLE3",
        "enable_return_aux_hidden_states": True,
        "return_aux_hidden_state_layer_ids": list(ids),
        "disable_radix_cache": True,  # a cached prefix has no states
    }
    return ServerConfig(
        model_path=str(engine.target),
        device=engine.device,
        args={**engine.args, **capture_only},
        env={},
        spec=None,
    )


async def _sample(client: ControlClient, text: Text, ids: tuple[int, ...], hidden: int) -> Sample:
    body = {
        "input_ids": list(text.input_ids),
        "sampling_params": {"temperature": 0, "max_new_tokens": text.max_new_tokens},
        "return_hidden_states": True,
    }
    try:
        status, answer = await client.post("/generate", body, timeout_s=_GENERATE_TIMEOUT_S)
        if status != 200:
            raise OSError(f"HTTP {status}: {answer[:200]}")
        return _parsed(text, json.loads(answer), ids, hidden)
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{text.name}: the engine returned no captured states ({error})"
        raise ServerError(message, failure_class="crash_load") from error


def _parsed(text: Text, answer: Mapping[str, Any], ids: tuple[int, ...], hidden: int) -> Sample:
    states = _stacked(answer["meta_info"]["hidden_states"])
    if states.shape[-1] != len(ids) * hidden:
        raise ValueError(f"states are {states.shape[-1]} wide, {len(ids)} layers of {hidden} were asked for")
    tokens = torch.tensor([*text.input_ids, *answer["output_ids"]], dtype=torch.long)
    # The engine captures in layer order, whatever the order of the ids.
    slots = zip(sorted(ids), states.chunk(len(ids), -1), strict=True)
    return Sample(
        name=text.name,
        input_ids=tokens,
        slots=tuple((f"id {index}", part) for index, part in slots),
        generated_from=len(text.input_ids),
    )


def _stacked(parts: Sequence[Any]) -> Tensor:
    """Prefill gives rows (one list per chunk), each decode step a single row."""
    rows = [torch.tensor(part, dtype=torch.float32) for part in parts]
    return torch.cat([row if row.dim() == 2 else row[None] for row in rows])


def renamed(sample: Sample, names: Sequence[str]) -> Sample:
    """The same states under other slot names."""
    parts = (part for _, part in sample.slots)
    return replace(sample, slots=tuple(zip(names, parts, strict=True)))
