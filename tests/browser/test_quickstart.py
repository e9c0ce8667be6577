"""A real run on the real engine, followed in Chromium from an empty folder to its verdict."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Visitor, serving
from playwright.sync_api import expect

EXPERIMENT = """
name: quickstart
engine: {device: cpu, ready_timeout_s: 300}
server: {model_path: "toy:target"}
speculative: {algorithm: EAGLE3, draft_model_path: "toy:draft", configs: [3-1-4]}
workload: {prompts: "toy:all", num_prompts: 8, max_tokens: 48, temperature: 0, concurrency: [1]}
run: {starts: 1, repeats: 2}
"""
VERDICT = re.compile("the baseline's speed|No difference|Too noisy|Leave speculation off")
"""Eight short requests on a busy machine may not be enough to claim a gain."""
START_MS, END_MS = 240_000, 420_000


@pytest.mark.real
def test_a_quickstart_is_followed_live_to_its_verdict(tmp_path: Path, visit: Callable[..., Visitor]) -> None:
    """The quickstart with one arm and fewer requests."""
    experiment, results = tmp_path / "quickstart.yaml", tmp_path / "results"
    experiment.write_text(EXPERIMENT)
    visitor = visit()
    with serving(results) as base, (tmp_path / "said").open("w") as said:
        page = visitor.see(base)
        expect(page.locator("#empty-title")).to_be_visible()
        command = [sys.executable, "-m", "sweeper", "run", str(experiment), "--out", str(results)]
        run = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        try:
            page.locator("#runs tbody a").click(timeout=START_MS)
            panel = page.locator("#panel")
            expect(panel.locator("pre.log")).not_to_be_empty(timeout=START_MS)
            expect(panel).to_contain_text("measuring", timeout=START_MS)
            expect(panel.locator("tr", has_text="baseline")).to_contain_text("2 of 4", timeout=START_MS)
            visitor.shot("quickstart-live")
            expect(page.locator("h1")).to_contain_text(VERDICT, timeout=END_MS)
            assert run.wait(timeout=120) == 0, (tmp_path / "said").read_text()[-3000:]
        finally:
            if run.poll() is None:
                os.kill(run.pid, signal.SIGTERM)
                run.wait(timeout=60)
        assert "watch it: `sweeper dashboard" in (tmp_path / "said").read_text()
        page.get_by_role("link", name="3-1-4 at concurrency 1").click()
        page.get_by_role("link", name="request 0", exact=True).click()
        assert visitor.draw_all() >= 1
        page.get_by_role("link", name="The server's log from then on").click()
        expect(page.locator("div.log")).to_contain_text("/generate")
        visitor.shot("quickstart-log")
