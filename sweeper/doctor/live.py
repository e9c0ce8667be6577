"""Hidden states of the target as the installed engine captures them: a real server without a draft."""

import asyncio
import json
import os
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sweeper.core.launch import LaunchPlan
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


def capture(
    engine: Engine, texts: Sequence[Text], *, layer_ids: Sequence[int], hidden: int, again: bool = False
) -> tuple[Sample, ...]:
    """Run `texts` greedily; each sample holds one slot per layer id, named `id 2`, … in the engine's order.

    States cover every token but the last generated one. With `again`, one more sample follows: the last text with its
    answer, this time all as a prompt. ServerError when the engine does not start or answer.
    """
    return asyncio.run(_capture(engine, texts, tuple(layer_ids), hidden, again))


async def _capture(
    engine: Engine, texts: Sequence[Text], ids: tuple[int, ...], hidden: int, again: bool
) -> tuple[Sample, ...]:
    async with serving(engine, _server(engine, ids)) as client:
        samples = [await _sample(client, text, ids, hidden) for text in texts]
        if again:
            answered = tuple(samples[-1].input_ids[:-1].tolist())
            samples.append(await _sample(client, Text(name="again", input_ids=answered), ids, hidden))
        return tuple(samples)


@asynccontextmanager
async def serving(
    engine: Engine, server: ServerConfig, *, change: Callable[[LaunchPlan], LaunchPlan] = lambda plan: plan
) -> AsyncIterator[ControlClient]:
    """A ready server of this configuration, ended afterwards. ServerError when it does not start."""
    with tempfile.TemporaryDirectory(prefix="sweeper-diagnose-") as folder, reserve_port(holder="diagnose") as port:
        plan = launch_plan(
            server,
            launch_id=uuid.uuid4().hex[:12],
            gpu_ids=engine.gpu_ids,
            port=port,
            log_path=Path(folder) / "server.log",
            python=sys.executable,
            cpu_engine_dir=CPU_ENGINE,
        )
        plan = change(plan)
        running = SglangLauncher().launch(
            plan,
            run_id="diagnose",
            owner_pid=os.getpid(),
            on_phase=lambda phase, text: engine.on_phase(f"{phase} {text}".strip()),
        )
        async with running, ControlClient(plan.base_url) as client:
            yield client


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


async def ask(client: ControlClient, text: Text, *, states: bool) -> Mapping[str, Any]:
    """One greedy generation. ServerError when it fails."""
    body = {
        "input_ids": list(text.input_ids),
        "sampling_params": {"temperature": 0, "max_new_tokens": text.max_new_tokens},
        "return_hidden_states": states,
    }
    try:
        status, answer = await client.post("/generate", body, timeout_s=_GENERATE_TIMEOUT_S)
        if status != 200:
            raise OSError(f"HTTP {status}: {client.quoted(answer)}")
        found: Mapping[str, Any] = json.loads(answer)
        return found
    except (OSError, ValueError) as error:
        raise ServerError(f"{text.name}: the engine did not answer ({error})", failure_class="crash_load") from error


async def _sample(client: ControlClient, text: Text, ids: tuple[int, ...], hidden: int) -> Sample:
    answer = await ask(client, text, states=True)
    try:
        return _parsed(text, answer, ids, hidden)
    except (ValueError, KeyError, TypeError) as error:
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
