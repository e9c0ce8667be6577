"""What does the drafter really receive? A probe inside the engine, with the draft loaded."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweeper.core.launch import LaunchPlan
from sweeper.core.trial import ServerConfig, SpecConfig
from sweeper.doctor.live import Engine, Text, ask, serving

PROBE = Path(__file__).parent.parent / "data" / "probe"
_OWN_STEP = "DECODE"
"""In this mode the drafter gets its own state, one hidden wide; in every other mode the target's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One kind of call of the drafter, by the engine's forward mode."""

    mode: str
    calls: int
    width: int
    expected: int
    """What the draft was trained to take in this mode."""
    norms: tuple[float, ...]
    """Mean length of each captured state of the longest noted call: warm-up and health requests are short ones."""
    first_values: tuple[float, ...]

    @property
    def fits(self) -> bool:
        return self.width == self.expected


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What was received in each mode."""

    received: tuple[Received, ...]

    @property
    def sentence(self) -> str:
        wrong = [item for item in self.received if not item.fits]
        if not self.received:
            return "The drafter was never called, or its class is not one the probe knows."
        if not wrong:
            return "The drafter receives the width it was trained on, on extend and after verify."
        first = wrong[0]
        return (
            f"The drafter receives {first.width} values per token ({first.mode.lower()}) where it was trained on "
            f"{first.expected}: its fc is skipped. Use EAGLE3 and eagle_config.use_aux_hidden_state."
        )


async def probe(engine: Engine, draft: Path, texts: Sequence[Text], *, algorithm: str) -> ProbeReport:
    """Serve the pair with the probe and run `texts`. ServerError when the engine does not start or answer."""
    with tempfile.TemporaryDirectory(prefix="sweeper-probe-") as folder:
        notes = Path(folder) / "received.jsonl"

        def watched(plan: LaunchPlan) -> LaunchPlan:
            return replace(plan, env=_with_probe(plan.env, notes))

        async with serving(engine, speculative(engine, draft, algorithm=algorithm, steps=3), change=watched) as client:
            for text in texts:
                await ask(client, text, states=False)
        lines = notes.read_text().splitlines() if notes.exists() else []
    return ProbeReport(received=tuple(summarise([json.loads(line) for line in lines])))


def summarise(notes: Sequence[Mapping[str, Any]]) -> list[Received]:
    """One entry a mode, in the order of first appearance, from its last call with the most rows."""
    found = []
    for mode in dict.fromkeys(note["mode"] for note in notes):
        calls = [note for note in notes if note["mode"] == mode]
        longest = max(reversed(calls), key=lambda note: note["rows"])
        found.append(
            Received(
                mode=mode,
                calls=len(calls),
                width=longest["width"],
                expected=longest["hidden"] if mode == _OWN_STEP else longest["fc_width"],
                norms=tuple(longest["norms"]),
                first_values=tuple(longest["first_values"]),
            )
        )
    return found


def speculative(engine: Engine, draft: Path, *, algorithm: str, steps: int) -> ServerConfig:
    """The pair as a chain of `steps` drafts, run eagerly: a replayed CUDA graph calls no Python, so no probe."""
    chain = SpecConfig(
        algorithm=algorithm, draft_model_path=str(draft), num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1
    )
    return ServerConfig(
        model_path=str(engine.target),
        device=engine.device,
        args={**engine.args, "disable_cuda_graph": True},
        env={},
        spec=chain,
    )


def _with_probe(env: Mapping[str, str], notes: Path) -> dict[str, str]:
    paths = [str(PROBE), env.get("PYTHONPATH") or os.environ.get("PYTHONPATH", "")]
    return {**env, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "SWEEPER_PROBE_FILE": str(notes)}
