"""Clusters that this Sweeper cannot join: another Ray, another Python, another token. One line each, exit code 2."""

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray

PYTHON = platform.python_version()
pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

FAKE_VERSION = """
import json, sys
from ray._raylet import GcsClient
gcs = GcsClient(address=sys.argv[1])
known = json.loads(gcs.internal_kv_get(b"CLUSTER_METADATA", namespace=b"cluster"))
known.update(json.loads(sys.argv[2]))
gcs.internal_kv_put(b"CLUSTER_METADATA", json.dumps(known).encode(), overwrite=True, namespace=b"cluster")
"""
"""What another Ray or Python would have written at its start, where a joining process looks for it."""


@dataclass(frozen=True)
class Head:
    address: str
    env: dict[str, str]

    def answers(self) -> bool:
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True

    def pretends(self, **versions: str) -> None:
        """To run these; they stay until it pretends something else."""
        known = {"ray_version": ray.__version__, "python_version": PYTHON, **versions}
        command = [sys.executable, "-c", FAKE_VERSION, self.address, json.dumps(known)]
        subprocess.run(command, env=self.env, check=True)

    def told(self, **env: str | None) -> str:
        """What the user sees who wants to join: one line, after exit code 2."""
        environment = {**self.env, **env}
        done = subprocess.run(
            [sys.executable, "-m", "sweeper", "clean", "--ray-address", self.address],
            env={name: value for name, value in environment.items() if value is not None},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode == 2, done
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1, done.stderr
        return lines[0]


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """A cluster that wants a token, in processes of its own: Ray reads its mode once in a process."""
    folder = tmp_path_factory.mktemp("head")
    token = folder / "token"
    token.write_text("a" * 64)
    env = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray_command = str(Path(sys.executable).with_name("ray"))
    options = [f"--port={port}", "--num-cpus=1", "--include-dashboard=false", "--block", "--node-ip-address=127.0.0.1"]
    with (folder / "log").open("wb") as log:
        command = [ray_command, "start", "--head", *options]
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    made = Head(f"127.0.0.1:{port}", env)
    try:
        deadline = time.monotonic() + 60
        while not made.answers():
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.2)
        yield made
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


def test_another_ray_is_named_with_both_versions(head: Head) -> None:
    head.pretends(ray_version="2.41.0")
    line = head.told()
    assert (
        f"the cluster runs Ray 2.41.0 and Python {PYTHON}, this is Ray {ray.__version__} and Python {PYTHON};" in line
    )
    assert line.endswith("install the cluster's versions")


def test_another_python_is_named_with_both_versions(head: Head) -> None:
    head.pretends(python_version="3.9.7")
    line = head.told()
    assert f"and Python 3.9.7, this is Ray {ray.__version__} and Python {PYTHON};" in line


def test_without_the_clusters_token_the_line_says_where_to_put_it(head: Head, tmp_path: Path) -> None:
    head.pretends()
    (tmp_path / "home").mkdir()
    line = head.told(RAY_AUTH_TOKEN_PATH=None, HOME=str(tmp_path / "home"))
    assert "the cluster wants its token" in line
    assert "RAY_AUTH_TOKEN_PATH" in line


def test_another_token_is_no_absent_cluster(head: Head, tmp_path: Path) -> None:
    head.pretends()
    other = tmp_path / "other"
    other.write_text("b" * 64)
    assert "the cluster wants its token" in head.told(RAY_AUTH_TOKEN_PATH=str(other))
