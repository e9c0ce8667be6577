"""`sweeper bisect` on the real engine: two real drafts of the toy pair, the newer one with broken layer ids.

Four server starts: about a minute and a half on two idle cores.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sweeper

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

    command = [sys.executable, "-m", "sweeper", "bisect", "hunt.yaml", "--axis", "draft_revision"]
    command += ["--good", "v1", "--bad", "v2", "--repeats", "2", "--out", "out", "--json"]
    env = {**os.environ, "SWEEPER_STATE_DIR": str(tmp_path / "state")}
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1000)

    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout)
    assert found["first_bad"].endswith("v2") and found["last_good"].endswith("v1")
    good, bad = found["tried"]
    assert good["value"] > 1.25 * bad["value"] > 1.25
