"""The ports of eight servers, as the installed engine itself derives them; no server is started."""

import contextlib
import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from sweeper.effects.engine_flags import SHIPPED, installed_version
from sweeper.effects.hub import local_checkpoint
from sweeper.effects.ledger import STATE_DIR_VARIABLE
from sweeper.effects.ports import reserve_port
from sweeper.engine.ports import nccl_port, port_block

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(installed_version(None) != SHIPPED, reason=f"the offsets were read in SGLang {SHIPPED}"),
]
ATTENTION = (False, True) * 4


def derived_by_the_engine(ports: list[int]) -> list[dict[str, Any]]:
    """What SGLang makes of `--port`, with and without DP attention."""
    words = ["--model-path", str(local_checkpoint("toy:target")), "--device", "cpu", "--attention-backend", "intel_amx"]
    data_parallel = ["--tp-size", "2", "--dp-size", "2", "--enable-dp-attention"]
    requests = [
        [*words, "--port", str(port), "--nccl-port", str(nccl_port(port)), *(data_parallel if dp_attention else [])]
        for port, dp_attention in zip(ports, ATTENTION, strict=True)
    ]
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SGLANG_")},
        "PYTHONPATH": str(files("sweeper") / "data" / "cpu_engine"),
        "SGLANG_USE_CPU_ENGINE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "engine_ports.py")],
        input=json.dumps(requests),
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(answers, list)
    return answers


def test_the_engine_opens_no_port_twice_on_eight_servers_with_and_without_dp_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(tmp_path))
    with contextlib.ExitStack() as stack:
        ports = [
            stack.enter_context(reserve_port(holder=f"s{number}", dp_attention=dp_attention))
            for number, dp_attention in enumerate(ATTENTION)
        ]
        answers = derived_by_the_engine(ports)
    opened = [port for answer in answers for port in {answer["http"], answer["nccl"], *answer["tcp"]}]
    assert len(opened) == len(set(opened))
    for port, dp_attention, answer in zip(ports, ATTENTION, answers, strict=True):
        assert answer["http"] == port
        assert bool(answer["tcp"]) is dp_attention
        assert {answer["nccl"], *answer["tcp"]} <= set(port_block(port, dp_attention=dp_attention))
