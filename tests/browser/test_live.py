"""A run watched from its first server to its report, in Chromium; written step by step by the real writer."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Visitor, serving
from folders import Hasty, requests
from playwright.sync_api import expect

from sweeper.core.events import Measured, Notice, PhaseChanged, RunEnded, RunStarted, ServerReady, TrialEnded
from sweeper.core.launch import Phase
from sweeper.core.result import Completed
from sweeper.core.run import RunData
from sweeper.store import layout
from sweeper.store.writer import RunWriter
from sweeper.testing.runs import model_run

DECODING = (
    "[2026-11-28 21:04:{:02d}] Decode batch, #running-req: 8, #token: 900, token usage: 0.02, accept len: {:.2f}, "
    "accept rate: 0.61, cuda graph: True, gen throughput (token/s): {:.2f}, #queue-req: 0\n"
)


class Going:
    """A run that goes on when the test says so."""

    def __init__(self, results: Path) -> None:
        self.stopped = False
        self.run: RunData = model_run(("3-1-4", "5-1-6"), concurrency=(1, 8), starts=2, repeats=2)
        self.writer = RunWriter.create(
            results, self.run.plan, experiment=self.run.experiment, environment=self.run.environment, disk=Hasty()
        )
        self.writer.record(
            RunStarted(run_id=self.writer.run_id, experiment="live", trials=6, starts=6, resumed=0, estimate_s=540.0)
        )

    def phase(self, label: str, phase: Phase, detail: str = "") -> None:
        arm = next(arm for arm in self.run.plan.arms if arm.label == label)
        self.writer.record(
            PhaseChanged(
                group_id=f"g-{arm.arm_id}",
                arm_id=arm.arm_id,
                start=0,
                phase=phase,
                detail=detail,
                slot="node-1 GPU 0-7",
            )
        )

    def log(self, label: str, text: str) -> None:
        arm = next(arm for arm in self.run.plan.arms if arm.label == label)
        folder = layout.start_dir(self.writer.path, f"g-{arm.arm_id}", 0)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / layout.SERVER_LOG).open("a") as file:
            file.write(text)

    def measure(self, count: int) -> None:
        done = len(list(self.writer.path.glob("trials/*/start-*/measurement.json")))
        for one in self.run.measurements[done : done + count]:
            self.writer.record(Measured(measurement=one, samples=requests(3)))

    def end(self) -> None:
        self.measure(len(self.run.measurements))
        for record in self.run.starts:
            self.writer.record(ServerReady(record=record, server_info={}))
        for trial in self.run.plan.trials:
            self.writer.record(TrialEnded(result=Completed(trial_id=trial.trial_id, measurements=4)))
        self.writer.record(RunEnded(completed=6, failed=0, skipped=0))
        self.stop()

    def stop(self) -> None:
        """The writer's process ends."""
        if not self.stopped:
            self.writer.close()
        self.stopped = True


@pytest.fixture
def going(tmp_path: Path) -> Iterator[Going]:
    run = Going(tmp_path)
    yield run
    run.stop()


def test_a_run_is_watched_to_its_end(going: Going, visit: Callable[..., Visitor]) -> None:
    visitor = visit()
    with serving(going.writer.path.parents[1]) as base:
        page = visitor.see(base)
        expect(page.locator("#runs")).to_contain_text("running")
        page.locator("#runs tbody a").click()
        expect(page.locator("h1")).to_contain_text("no verdict yet", ignore_case=True)
        panel = page.locator("#panel")
        expect(panel).to_contain_text("9 min")

        going.phase("baseline", "loading", "loading weights")
        going.log("baseline", "[2026-11-28 21:00:09] Load weight begin. avail mem=139.1 GB\n")
        expect(panel.locator("tr", has_text="baseline")).to_contain_text("loading weights")
        expect(panel.locator("pre.log")).to_contain_text("Load weight begin")

        going.measure(4)
        going.phase("baseline", "done")
        going.phase("5-1-6", "measuring", "concurrency 8, repeat 1 (2 of 4)")
        going.log("5-1-6", DECODING.format(1, 3.41, 812.4))
        expect(panel).to_contain_text("4 of 24")
        expect(panel.locator(".server")).to_contain_text("812 tok/s")
        expect(panel.locator(".server")).to_contain_text("accept length 3.41")
        going.log("5-1-6", DECODING.format(2, 3.52, 833.0))
        expect(panel.locator(".server")).to_contain_text("833 tok/s")
        expect(page.locator("#results")).to_contain_text("baseline")
        visitor.check_access()

        going.writer.record(Notice(message="5-1-6: start 1 is tried once more (port)"))
        going.measure(6)
        expect(panel).to_contain_text("10 of 24")
        expect(page.locator("#live-status")).to_contain_text("10 of 24")
        panel.locator(".notices summary").click()
        expect(panel.locator(".notices")).to_contain_text("tried once more")
        # The table below follows without a reload.
        expect(page.locator("#results tr", has_text="3-1-4").first).to_contain_text("×")
        visitor.shot("live")

        going.end()
        expect(page.locator("h1")).to_contain_text("the baseline's speed")
        expect(page.locator("#live")).to_have_count(0)
        assert visitor.draw_all() >= 6
        visitor.shot("live-ended")


def test_a_run_whose_writer_died_is_no_longer_called_running(going: Going, visit: Callable[..., Visitor]) -> None:
    visitor = visit()
    with serving(going.writer.path.parents[1]) as base:
        page = visitor.see(f"{base}/run/{going.writer.path.parent.name}/latest")
        going.phase("baseline", "measuring")
        expect(page.locator("#panel")).to_contain_text("measuring")
        going.stop()
        expect(page.locator("main")).to_contain_text("Nobody is writing this run now")
        visitor.check_access()
