"""`sweeper bisect` on the real engine: two real drafts of the toy pair, the newer one with broken layer ids.

Four server starts: about a minute and a half on two idle cores.
"""

import json
import os
import shutil
import subprocess
import sys
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


def test_the_first_bad_interpreter_is_found_in_a_list_of_simulated_engines(tmp_path: Path) -> None:
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
    found = bisect(tmp_path, "--axis", "engine_version", "--good", "0.5.20", "--bad", "0.5.22")
    assert found["first_bad"].endswith("python-0.5.21") and found["last_good"].endswith("python-0.5.20")


def bisect(folder: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "sweeper", "bisect", "hunt.yaml", *options]
    command += ["--repeats", "2", "--out", "out", "--json"]
    env = {**os.environ, "SWEEPER_STATE_DIR": str(folder / "state")}
    ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=1000)
    assert ended.returncode == 0, ended.stderr[-3000:]
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer
