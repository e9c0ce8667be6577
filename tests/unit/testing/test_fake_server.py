import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.effects.http import ControlClient
from sweeper.engine.wire import effective_config
from sweeper.testing.server import FIRED_UP, START_FAILURES, running, stand_in_python


def start(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sweeper.testing.server", "--port", "0", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("kind", sorted(START_FAILURES))
def test_a_scripted_start_failure_ends_as_the_engines_does(kind):
    code, lines = START_FAILURES[kind]
    done = start("--fail-start", kind)
    assert done.returncode == code
    assert lines[-1] in done.stderr
    assert FIRED_UP not in done.stderr


async def test_it_shows_the_launch_flags_of_the_engine_as_resolved():
    flags = ("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "5", "--speculative-eagle-topk", "4")
    more = ("--speculative-num-draft-tokens", "16", "--mem-fraction-static", "0.5", "--trust-remote-code")
    with running(*flags, *more, "--served-model-name", "nonce") as url:
        async with ControlClient(url) as client:
            info = await client.get_json("/server_info")
    config = effective_config(info)
    assert (config.triple, config.served_model_name) == ("5-4-16", "nonce")
    assert (info["mem_fraction_static"], info["trust_remote_code"]) == (0.5, True)


async def test_a_flush_is_refused_while_a_request_runs_and_empties_the_prefix_cache_after():
    ask = {"text": "one two three four", "sampling_params": {"max_new_tokens": 3}}
    with running("--prefill-ms", "1", "--step-ms", "1") as url:
        async with ControlClient(url) as client:
            cached = []
            for flush in (False, True, False):
                if flush:
                    assert (await client.post("/flush_cache"))[0] == 200
                _, text = await client.post("/generate", ask)
                cached.append(json.loads(text)["meta_info"]["cached_tokens"])
    assert cached == [0, 0, 3]


async def test_a_dead_server_is_an_oserror_with_the_path_in_it():
    async with ControlClient("http://127.0.0.1:9") as client:
        with pytest.raises(OSError, match="GET /server_info"):
            await client.get_json("/server_info")


def test_the_stand_in_interpreter_runs_the_fake_server_and_is_python_otherwise(tmp_path: Path):
    python = stand_in_python(tmp_path / "python")
    as_python = subprocess.run([python, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True)
    assert as_python.stdout == "42\n"
    env = {**os.environ, "SWEEPER_FAKE_SERVER": "--fail-start crash"}
    command = [python, "-m", "sglang.launch_server", "--port", "0", "--model-path", "m"]
    as_server = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert as_server.returncode == -9
    assert "model_path='m'" in as_server.stderr
