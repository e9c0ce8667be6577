"""The shipped pair on the real engine: what drafts are accepted, of which prompts, and what is written."""

import asyncio
import functools
import json
import os
import shutil
import sys
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

import sweeper
from sweeper.core.trial import ServerConfig, SpecConfig
from sweeper.effects.ports import reserve_port
from sweeper.effects.server import SglangLauncher
from sweeper.engine.argv import launch_plan
from sweeper.toy import ToyPair, unpack
from sweeper.toy.repetition import distinct_share, ends_in_loop

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(find_spec("sglang") is None, reason="SGLang is not installed in this interpreter"),
]

CPU_ENGINE = Path(sweeper.__file__).parent / "data" / "cpu_engine"
WRONG_IDS = [-1, 0, 1]
PROMPTS_PER_CATEGORY = 6
MAX_TOKENS = 160
CONCURRENCY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    category: str
    output_ids: tuple[int, ...]
    finish: str
    verify_steps: int
    correct_drafts: int


def accept_length(answers: Sequence[Answer]) -> float:
    return 1 + sum(a.correct_drafts for a in answers) / sum(a.verify_steps for a in answers)


def held_out(pair: ToyPair) -> list[dict[str, Any]]:
    by_category: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in pair.prompts.read_text().splitlines():
        row = json.loads(line)
        if row["split"] == "heldout":
            by_category[row["category"]].append(row)
    return [row for rows in by_category.values() for row in rows[:PROMPTS_PER_CATEGORY]]


async def ask(client: httpx.AsyncClient, turn: asyncio.Semaphore, row: dict[str, Any]) -> Answer:
    sampling = {"max_new_tokens": MAX_TOKENS, "temperature": 0}
    async with turn:
        response = await client.post("/generate", json={"text": row["text"], "sampling_params": sampling})
    body = response.raise_for_status().json()
    meta = body["meta_info"]
    return Answer(
        category=row["category"],
        output_ids=tuple(body["output_ids"]),
        finish=meta["finish_reason"]["type"],
        verify_steps=meta["spec_verify_ct"],
        correct_drafts=meta["spec_num_correct_drafts"],
    )


async def answers_of(pair: ToyPair, draft: Path, num_steps: int, log: Path) -> list[Answer]:
    """One server start with a chain of `num_steps` drafts, and its greedy answers to the held-out prompts."""
    server = ServerConfig(
        model_path=str(pair.target),
        device="cpu",
        args={"context_length": 1024},
        env={},
        spec=SpecConfig(
            algorithm="EAGLE3",
            draft_model_path=str(draft),
            num_steps=num_steps,
            eagle_topk=1,
            num_draft_tokens=num_steps + 1,
        ),
        ready_timeout_s=400,
    )
    with reserve_port(holder=f"toy pair test {os.getpid()}") as port:
        plan = launch_plan(
            server,
            launch_id=uuid.uuid4().hex[:12],
            gpu_ids=(),
            port=port,
            log_path=log,
            python=sys.executable,
            cpu_engine_dir=CPU_ENGINE,
        )
        launched = SglangLauncher().launch(
            plan, run_id="toy-pair-test", owner_pid=os.getpid(), on_phase=lambda phase, text: None
        )
        async with launched, httpx.AsyncClient(base_url=plan.base_url, timeout=300) as client:
            turn = asyncio.Semaphore(CONCURRENCY)
            return list(await asyncio.gather(*(ask(client, turn, row) for row in held_out(pair))))


class Servers:
    """Answers by configuration; each configuration is started once, when a test first asks for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pair = unpack(folder / "toy")

    @functools.cached_property
    def wrong_draft(self) -> Path:
        copy = self.folder / "wrong"
        shutil.copytree(self.pair.draft, copy)
        config = json.loads((copy / "config.json").read_text())
        config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = WRONG_IDS
        (copy / "config.json").write_text(json.dumps(config))
        return copy

    @functools.cache  # noqa: B019  lives as long as the module's tests
    def answers(self, num_steps: int, *, wrong_layers: bool = False) -> list[Answer]:
        draft = self.wrong_draft if wrong_layers else self.pair.draft
        log = self.folder / f"server-{num_steps}-{wrong_layers}.log"
        return asyncio.run(answers_of(self.pair, draft, num_steps, log))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Servers:
    return Servers(tmp_path_factory.mktemp("toy-pair"))


def test_three_drafts_a_step_reach_an_accept_length_of_two_and_a_half(servers: Servers) -> None:
    answers = servers.answers(3)
    assert len(answers) >= 32
    assert 2.5 <= accept_length(answers) <= 4


def test_accept_length_rises_with_the_number_of_draft_steps(servers: Servers) -> None:
    one, three, seven = (accept_length(servers.answers(steps)) for steps in (1, 3, 7))
    assert one <= 2
    assert one + 0.5 < three < seven - 0.5
    assert seven <= 8


def test_wrong_aux_layers_cost_at_least_one_token_a_step(servers: Servers) -> None:
    right, wrong = accept_length(servers.answers(3)), accept_length(servers.answers(3, wrong_layers=True))
    assert wrong <= right - 1.0


def test_generated_text_is_easier_to_draft_than_real_code(servers: Servers) -> None:
    by_category: dict[str, list[Answer]] = defaultdict(list)
    for answer in servers.answers(3):
        by_category[answer.category].append(answer)
    lengths = {category: accept_length(answers) for category, answers in by_category.items()}
    assert lengths["library"] == min(lengths.values())
    assert lengths["library"] + 1.0 < lengths["json"]


def test_outputs_are_no_repetition_loops(servers: Servers) -> None:
    answers = servers.answers(3)
    loops = [answer for answer in answers if ends_in_loop(answer.output_ids)]
    assert len(loops) <= 1, [answer.category for answer in loops]
    pairs = [distinct_share(answer.output_ids, 2) for answer in answers]
    assert sum(pairs) / len(pairs) >= 0.5
    fours = [distinct_share(answer.output_ids, 4) for answer in answers]
    assert sum(fours) / len(fours) >= 0.7


def test_some_answers_end_by_themselves_and_some_fill_their_budget(servers: Servers) -> None:
    finishes = [answer.finish for answer in servers.answers(3)]
    assert finishes.count("stop") >= 5
    assert finishes.count("length") >= 5
