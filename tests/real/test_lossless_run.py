"""`sweeper run` on the real engine says which speculation is lossless: one sound arm, one with a planted fault.

The fault stands in lossy_engine/ beside this file and reaches the servers by their environment alone; it acts on chains
of five only, so that one run holds both.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sweeper.core.lossless import Reference
from sweeper.core.run import RunData
from sweeper.store.reader import find_runs, read_run

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(find_spec("sglang") is None, reason="SGLang is not installed in this interpreter"),
]

LOSSY_ENGINE = Path(__file__).parent / "lossy_engine"
EXPERIMENT = f"""\
name: lossless
engine: {{device: cpu, ready_timeout_s: 600}}
server:
  model_path: "toy:target"
  env: {{PYTHONPATH: "{LOSSY_ENGINE}", SWEEPER_TEST_LOSSY: "1"}}
speculative: {{draft_model_path: "toy:draft", configs: [3-1-4, 5-1-6]}}
workload: {{prompts: "toy:all", num_prompts: 24, max_tokens: 48, concurrency: [1, 4], endpoint: ENDPOINT}}
run: {{starts: 1, repeats: 1, order: given}}
"""
SOUND, FAULTY = "3-1-4", "5-1-6"


@dataclass(frozen=True)
class Ended:
    run: RunData
    trials: list[Mapping[str, Any]]
    """Of `sweeper report --format json`."""
    said: str

    def counts(self, arm: str, name: str) -> list[int]:
        """By load point."""
        return [trial[f"lossless_{name}"] for trial in self.trials if trial["arm"] == arm]

    @property
    def reference(self) -> Reference:
        (reference,) = self.run.references
        return reference


@pytest.fixture(scope="module", params=["generate", "completions", "chat"])
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp(f"lossless-{request.param}")
    path = folder / "lossless.yaml"
    path.write_text(EXPERIMENT.replace("ENDPOINT", request.param))
    env = {**os.environ, "SWEEPER_STATE_DIR": str(folder / "state")}
    command = [sys.executable, "-m", "sweeper"]
    ran = subprocess.run(
        [*command, "run", str(path), "--out", str(folder / "results")],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    (run_dir,) = find_runs(folder / "results")
    told = subprocess.run(
        [*command, "report", str(run_dir), "--format", "json"], capture_output=True, text=True, check=True
    )
    return Ended(run=read_run(run_dir), trials=json.loads(told.stdout)["trials"], said=ran.stdout)


def test_the_pass_holds_two_log_probabilities_of_every_token(ended: Ended) -> None:
    assert (len(ended.reference.answers), ended.reference.concurrency, ended.reference.dtype) == (24, 1, "bfloat16")
    for answer in ended.reference.answers:
        assert answer.output_ids is not None and answer.text
        gaps = [answer.gap(position) for position in range(len(answer.output_ids))]
        assert all(gap is not None and gap >= 0 for gap in gaps)


def test_every_answer_was_compared_token_by_token(ended: Ended) -> None:
    assert len(ended.run.losslessness) == 6
    for one in ended.run.losslessness:
        assert (one.by, one.equal + len(one.unequal), one.count("unchecked")) == ("tokens", 24, 0)


def test_the_baseline_is_itself(ended: Ended) -> None:
    """Alone exactly; beside others a batch may turn a tie over."""
    assert ended.counts("baseline", "equal")[0] == 24
    assert ended.counts("baseline", "different") == [0, 0]


def test_a_sound_engine_speculates_without_a_true_difference(ended: Ended) -> None:
    assert ended.counts(SOUND, "different") == [0, 0]
    assert all(equal > 0 for equal in ended.counts(SOUND, "equal"))


def test_a_lossy_engine_is_found_out(ended: Ended) -> None:
    assert all(different > 0 for different in ended.counts(FAULTY, "different"))
    assert f"{FAULTY} is not lossless" in " ".join(ended.said.split())
    assert f"{SOUND} is not lossless" not in " ".join(ended.said.split())
