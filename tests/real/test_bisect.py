"""`sweeper bisect` on the real engine: two real drafts of the toy pair, the newer one with broken layer ids.

Four server starts: about a minute and a half on two idle cores.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import sweeper
from sweeper.testing.server import stand_in_python

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

TOY_DRAFT = Path(sweeper.__file__).parent / "data" / "toy" / "draft"
EXPERIMENT = """\
name: hunt
engine: {device: cpu, ready_timeout_s: 600}
server: {model_path: "toy:target"}
speculative: {configs: [3-1-4]}
workload: {prompts: "toy:all", num_prompts: 8, max_tokens: 48, concurrency: [1]}
run: {starts: 1, repeats: 2, order: given}
sweep: {speculative.draft_model_path: [v1, v2]}
"""


def test_the_draft_with_broken_layer_ids_is_the_first_bad_one(tmp_path: Path) -> None:
    (tmp_path / "hunt.yaml").write_text(EXPERIMENT)
    (tmp_path / "state").mkdir(mode=0o700)
    shutil.copytree(TOY_DRAFT, tmp_path / "v1")
    shutil.copytree(TOY_DRAFT, tmp_path / "v2")
    path = tmp_path / "v2" / "config.json"
    config = json.loads(path.read_text())
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = [-1, 0, 1]
    path.write_text(json.dumps(config))

    found = bisect(tmp_path, "--axis", "draft_revision", "--good", "v1", "--bad", "v2")
    assert found["first_bad"].endswith("v2") and found["last_good"].endswith("v1")
    good, bad = found["tried"]
    assert good["value"] > 1.25 * bad["value"] > 1.25


def test_the_first_bad_of_simulated_engines_is_found_by_a_hunt_that_was_killed_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    stand_in = stand_in_python(tmp_path / "stand-in").read_text()
    for version, acceptance in (("0.5.20", 0.75), ("0.5.21", 0.4), ("0.5.22", 0.4)):
        python = tmp_path / f"python-{version}"
        options = f"export SWEEPER_FAKE_SERVER='--acceptance {acceptance}'"
        python.write_text(stand_in.replace("#!/bin/sh", f"#!/bin/sh\n{options}", 1))
        python.chmod(0o755)
    versions = ", ".join(str(path) for path in sorted(tmp_path.glob("python-*")))
    text = EXPERIMENT.replace("speculative: {", 'speculative: {draft_model_path: "toy:draft", ')
    (tmp_path / "hunt.yaml").write_text(
        text.replace("speculative.draft_model_path: [v1, v2]", f"engine.python: [{versions}]")
    )
    asked = ("--axis", "engine_version", "--good", "0.5.20", "--bad", "0.5.22")
    kill_after_the_first_version(tmp_path, *asked)
    [first] = probes(tmp_path)
    found = bisect(tmp_path, *asked)
    assert found["first_bad"].endswith("python-0.5.21") and found["last_good"].endswith("python-0.5.20")
    assert probes(tmp_path)[0] == first and len(probes(tmp_path)) == 3


def probes(folder: Path) -> list[dict[str, Any]]:
    """What the only hunt so far has kept."""
    kept = [json.loads(file.read_text())["probes"] for file in (folder / "out").glob("*/hunt.json")]
    return kept[0] if kept else []


def kill_after_the_first_version(folder: Path, *options: str) -> None:
    command, env = bisection(folder, *options)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
        try:
            while not probes(folder):
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
        finally:
            process.kill()
            process.wait()


def bisection(folder: Path, *options: str) -> tuple[list[str], dict[str, str]]:
    command = [sys.executable, "-m", "sweeper", "bisect", "hunt.yaml", *options]
    command += ["--repeats", "2", "--out", "out", "--json"]
    return command, {**os.environ, "SWEEPER_STATE_DIR": str(folder / "state")}


def bisect(folder: Path, *options: str) -> dict[str, Any]:
    command, env = bisection(folder, *options)
    ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=1000)
    assert ended.returncode == 0, ended.stderr[-3000:]
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer
