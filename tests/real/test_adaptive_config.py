"""The exported adaptive configuration, read by SGLang itself."""

import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from sweeper.analysis.compare import compare
from sweeper.analysis.exports import adaptive_config
from sweeper.testing.runs import Model, model_run

pytestmark = pytest.mark.real


def test_the_engine_reads_the_exported_frontier_and_routes_by_batch_size(tmp_path: Path) -> None:
    run = model_run(
        ("1-1-2", "3-1-4", "5-1-6"), concurrency=(1, 8, 128), model=Model(acceptance=0.5, repeat_noise=0.001)
    )
    config = adaptive_config(compare(run))
    file = tmp_path / "adaptive.json"
    file.write_text(json.dumps(config))
    script = Path(__file__).with_name("read_adaptive_config.py")
    stand_in = str(resources.files("sweeper") / "data" / "cpu_engine")
    found = subprocess.run(
        [sys.executable, str(script), str(file), "1", "4", "8", "100", "128", "500"],
        env={**os.environ, "PYTHONPATH": stand_in, "SGLANG_USE_CPU_ENGINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    understood = json.loads(found.stdout.splitlines()[-1])
    assert understood["steps"] == sorted({steps for entry in config.values() for steps in entry["candidate_steps"]})
    for size, key in (("1", "1"), ("4", "1"), ("8", "8"), ("100", "8"), ("128", "128"), ("500", "128")):
        assert understood["now"][size] in config[key]["candidate_steps"]
    assert understood["now"]["500"] == 0
