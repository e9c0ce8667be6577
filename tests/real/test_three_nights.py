"""Three nights of a small quickstart on the real engine; before the third somebody breaks the draft's layer ids.

Eight server starts: about four minutes on two idle cores.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import sweeper

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]

TOY_DRAFT = Path(sweeper.__file__).parent / "data" / "toy" / "draft"
EXPERIMENT = """\
name: three-nights
engine: {device: cpu, ready_timeout_s: 600}
server: {model_path: "toy:target"}
speculative: {draft_model_path: draft, configs: [3-1-4]}
workload: {prompts: "toy:all", num_prompts: 8, max_tokens: 48, concurrency: [1]}
run: {starts: 1, repeats: 2, order: given}
"""
POLICY = """\
confirm_repeats: 1
retention: {samples_days: 0}
"""
WRONG_IDS = [-1, 0, 1]
"""Legal for the engine, but not what the draft was trained on."""


@dataclass(frozen=True)
class Place:
    folder: Path

    def night(self) -> tuple[int, dict[str, Any]]:
        command = [sys.executable, "-m", "sweeper", "nightly", "run", "nights.yaml", "--history", "history"]
        command += ["--policy", "policy.yaml", "--json"]
        env = {**os.environ, "SWEEPER_STATE_DIR": str(self.folder / "state")}
        ended = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=900)
        assert ended.stdout, ended.stderr[-3000:]
        return ended.returncode, json.loads(ended.stdout)

    def break_layer_ids(self) -> None:
        path = self.folder / "draft" / "config.json"
        config = json.loads(path.read_text())
        config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = WRONG_IDS
        path.write_text(json.dumps(config))


def test_the_night_after_the_layer_ids_were_broken_says_what_where_and_why(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (tmp_path / "nights.yaml").write_text(EXPERIMENT)
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "state").mkdir(mode=0o700)
    shutil.copytree(TOY_DRAFT, tmp_path / "draft")

    code, first = place.night()
    assert (code, first["state"]) == (0, "unknown")
    code, second = place.night()
    assert (code, second["state"]) == (0, "unknown")
    place.break_layer_ids()
    code, third = place.night()

    assert (code, third["state"]) == (1, "regressed")
    said = third["sentence"]
    assert "accept length of 3-1-4 at concurrency 1" in said
    assert "changed with draft" in said
    assert "doctor: the engine captures layers 0, 1, 2, on the last good night 3, 5, 7" in said
    (length,) = [one for one in third["alarms"] if one["quantity"] == "accept_length"]
    assert length["since"] == third["night_id"] and length["confirmed"]
    assert length["change"] < -0.25
    assert length["trial_id"]
    assert (tmp_path / "history" / "junit.xml").read_text().count("<failure") >= 1
    assert "accept length" in (tmp_path / "history" / "history.html").read_text()
