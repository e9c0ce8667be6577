"""Warm-up goes on until the pace repeats."""

from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.core.experiment import Workload
from sweeper.core.launch import LaunchPlan, Server
from sweeper.core.sample import LoadOutcome, PromptSet
from sweeper.core.trial import LoadPoint
from sweeper.execution.alarm import Listen
from sweeper.execution.warmup import MAX_ROUNDS, warm_up
from sweeper.testing.launcher import FakeServer, Script, fake_drive
from sweeper.testing.plans import small_prompts

SERVER = FakeServer(
    plan=LaunchPlan(
        launch_id="warm",
        argv=("true",),
        env={},
        gpu_ids=(),
        host="127.0.0.1",
        port=1,
        base_url="http://127.0.0.1:1",
        served_model_name="warm",
        ready_timeout_s=1.0,
        log_path=Path("unused"),
    ),
    script=Script(),
)
LOAD = LoadPoint(concurrency=4)


class Paced:
    """A load whose rounds run at the given paces (tokens per second), then at the last one for ever."""

    def __init__(self, paces: list[float]) -> None:
        self.paces = paces
        self.rounds = 0
        self.asked: list[int | None] = []
        self._load = fake_drive

    async def __call__(
        self,
        server: Server,
        prompts: PromptSet,
        workload: Workload,
        load: LoadPoint,
        *,
        num_prompts: int | None = None,
        listen: Listen | None = None,
    ) -> LoadOutcome:
        pace = self.paces[min(self.rounds, len(self.paces) - 1)]
        self.rounds += 1
        self.asked.append(num_prompts)
        outcome = await self._load(server, prompts, workload, load, num_prompts=num_prompts)
        tokens = sum(one.output_tokens or 0 for one in outcome.samples)
        window_ns = int(tokens / pace * 1e9)
        samples = tuple(replace(one, send_ns=0, end_ns=window_ns) for one in outcome.samples)
        return replace(outcome, samples=samples)


@pytest.mark.parametrize(
    ("paces", "rounds"),
    [
        ([100.0], 2),
        ([30.0, 100.0], 3),
        ([100.0, 20.0, 100.0], 4),  # the slow round met something cold: no proof of a steady pace
        ([10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0], MAX_ROUNDS),
    ],
)
async def test_rounds_go_on_until_two_have_the_same_pace(paces: list[float], rounds: int) -> None:
    drive = Paced(paces)
    done = await warm_up(drive, SERVER, small_prompts(8), Workload(), LOAD)
    assert (done, drive.rounds) == (rounds, rounds)


async def test_each_round_holds_more_requests_than_the_concurrency() -> None:
    drive = Paced([100.0])
    await warm_up(drive, SERVER, small_prompts(8), Workload(), LOAD)
    assert drive.asked == [8, 8]
