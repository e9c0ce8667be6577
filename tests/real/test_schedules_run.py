"""The files of `sweeper nightly install`, run as their schedulers run them: cron, systemd, GitHub, a Ray cluster.

The engine is a stand-in; every night is a real process that knows no more than its scheduler tells it. Needs the
package index that CI installs from, for the job server of Ray.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray
import yaml

from sweeper.nightly.history import History
from sweeper.testing.server import stand_in_python

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

EXPERIMENT = """\
name: nights
engine: {{device: cpu, python: {engine}}}
server: {{model_path: "toy:target"}}
speculative: {{draft_model_path: "toy:draft", configs: [3-1-4]}}
workload: {{prompts: "toy:all", num_prompts: 8, max_tokens: 16, concurrency: [1]}}
run: {{starts: 1, repeats: 2, order: given}}
"""
BROKEN = EXPERIMENT.replace("3-1-4", "3-x-4")
TOKEN = "a" * 64


@dataclass(frozen=True)
class Place:
    folder: Path
    python: str = sys.executable

    @property
    def history(self) -> Path:
        return self.folder / "history"

    @property
    def experiment(self) -> Path:
        return self.folder / "nights.yaml"

    def prepare(self) -> "Place":
        (self.folder / "state").mkdir(mode=0o700)
        self.write(EXPERIMENT)
        return self

    def write(self, text: str) -> None:
        engine = self.folder / "engine"
        self.experiment.write_text(text.format(engine=stand_in_python(engine)))

    def install(self, kind: str, **variables: str) -> Path:
        """The folder with the files, written by a shell that knows where the ledger is."""
        to = self.folder / kind
        command = [self.python, "-m", "sweeper", "nightly", "install", str(self.experiment), f"--{kind}"]
        command += ["--history", str(self.history), "--to", str(to)]
        env = {**os.environ, "SWEEPER_STATE_DIR": str(self.folder / "state"), **variables}
        subprocess.run(command, check=True, env=env, capture_output=True, timeout=120)
        return to

    def told(self) -> dict[str, str]:
        """What cron and systemd tell a process."""
        return {"HOME": str(self.folder), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}

    def nights(self) -> int:
        return len(History(self.history).nights())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path).prepare()


def test_the_crontab_line_runs_a_night(place: Place) -> None:
    [line] = (place.install("cron") / "crontab").read_text().splitlines()
    shell = line.removeprefix("0 3 * * * ").replace(r"\%", "%")
    ended = subprocess.run(["/bin/sh", "-c", shell], env=place.told(), cwd="/", timeout=300, check=False)
    log = (place.history / "nightly.log").read_text()
    assert ended.returncode == 0 and place.nights() == 1, log
    assert "this is the first good night" in log


def test_the_command_of_the_systemd_service_runs_a_night(place: Place) -> None:
    lines = (place.install("systemd") / "sweeper-nightly-nights.service").read_text().splitlines()
    value = {line.partition("=")[0]: line.partition("=")[2].replace("%%", "%") for line in lines if "=" in line}
    told = [shlex.split(line.partition("=")[2].replace("%%", "%"))[0] for line in lines if line.startswith("Env")]
    env = place.told() | dict(one.split("=", 1) for one in told if "=" in one)
    command = shlex.split(value["ExecStart"].replace("$$", "$"))
    ended = subprocess.run(
        command, env=env, cwd=value["WorkingDirectory"], capture_output=True, timeout=300, check=False
    )
    assert ended.returncode == 0 and place.nights() == 1, ended.stderr.decode()


def github(workflow: Path, place: Place, summary: Path) -> bool:
    """Runs the steps as a runner does; False: the job failed. The one step that is an action must find its files."""
    fine = True
    for step in yaml.safe_load(workflow.read_text())["jobs"]["nightly"]["steps"]:
        if not fine and step.get("if") != "always()":
            continue
        if "run" not in step:
            assert all(Path(line).is_file() for line in step["with"]["path"].split("\n") if line)
            continue
        script = place.folder / "step.sh"
        script.write_text(step["run"])
        env = {**place.told(), "CI": "true", "GITHUB_STEP_SUMMARY": str(summary), **step.get("env", {})}
        clone = place.folder / "clone"
        clone.mkdir(exist_ok=True)
        ended = subprocess.run(["bash", "-e", str(script)], env=env, cwd=clone, timeout=300, check=False)
        fine = fine and ended.returncode == 0
    return fine


def test_the_steps_of_the_workflow_run_a_night_and_leave_summary_and_junit(place: Place) -> None:
    workflow = place.install("github-actions") / "sweeper-nightly-nights.yml"
    summary = place.folder / "summary"
    assert github(workflow, place, summary)
    assert summary.read_text().startswith("## nights, night ")
    suite = ET.parse(place.history / "junit.xml").getroot().find("testsuite")
    assert suite is not None and suite.get("failures") == "0" and int(suite.get("tests", "0")) > 5
    place.write(BROKEN)
    assert not github(workflow, place, summary)


# --- Ray


@dataclass(frozen=True)
class Cluster:
    python: str
    address: str
    env: dict[str, str]

    def answers(self) -> bool:
        request = urllib.request.Request(f"{self.address}/api/version", headers={"Authorization": f"Bearer {TOKEN}"})
        with suppress(OSError), urllib.request.urlopen(request, timeout=2) as answer:
            return bool(answer.status == 200)
        return False

    def submit(self, script: Path) -> tuple[int, str]:
        ended = subprocess.run(
            [self.python, str(script)], env=self.env, capture_output=True, text=True, timeout=300, check=False
        )
        return ended.returncode, ended.stdout + ended.stderr


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def with_job_server(folder: Path) -> str:
    """An interpreter with everything of this one and what `ray[default]` adds."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    own = sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)})
    theirs = sysconfig.get_path("purelib")
    (Path(own) / "beside.pth").write_text(f"import site; site.addsitedir({theirs!r})\n")
    wanted = f"ray[default]=={ray.__version__}"
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted]
    subprocess.run(command, check=True, timeout=300)
    return python


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node that wants a token, with dashboard and job server."""
    folder = tmp_path_factory.mktemp("cluster")
    python = with_job_server(folder)
    token = folder / "token"
    token.write_text(TOKEN)
    gcs, web, agent, client = free_ports(4)
    address = f"http://127.0.0.1:{web}"
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env |= {"RAY_AUTH_TOKEN_PATH": str(token), "RAY_API_SERVER_ADDRESS": address, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [python, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--node-ip-address=127.0.0.1"]
    command += [f"--port={gcs}", f"--dashboard-port={web}", f"--dashboard-agent-listen-port={agent}", "--num-cpus=2"]
    command += [f"--ray-client-server-port={client}", f"--object-store-memory={2**28}"]
    with (folder / "log").open("wb") as log:
        head = subprocess.Popen(
            command, env={**env, "RAY_AUTH_MODE": "token"}, stdout=log, stderr=log, start_new_session=True
        )
    made = Cluster(python, address, env)
    try:
        deadline = time.monotonic() + 90
        while not made.answers():
            assert head.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.2)
        yield made
    finally:
        os.killpg(head.pid, signal.SIGTERM)
        head.wait(timeout=60)


def test_the_ray_job_runs_a_night_says_who_is_at_it_and_fails_with_the_nights_exit_code(
    cluster: Cluster, tmp_path: Path
) -> None:
    place = Place(tmp_path, cluster.python).prepare()
    script = place.install("ray-job", RAY_API_SERVER_ADDRESS=cluster.address) / "ray-submit-nights.py"
    code, said = cluster.submit(script)
    assert code == 0 and place.nights() == 1, said
    assert "this is the first good night" in said and "SUCCEEDED, exit code 0" in said
    with History(place.history).locked():
        code, said = cluster.submit(script)
    assert code == 0 and f"process {os.getpid()} is at it; nothing is started" in said
    place.write(BROKEN)
    code, said = cluster.submit(script)
    assert code == 2 and "FAILED, exit code 2" in said and "speculative.configs.0" in said
    spec = json.loads((script.parent / "ray-job.json").read_text())
    assert TOKEN not in json.dumps(spec)
