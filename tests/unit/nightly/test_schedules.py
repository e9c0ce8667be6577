"""The files that schedule a night: read as their scheduler reads them, run as it runs them."""

import configparser
import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweeper.errors import ConfigError
from sweeper.nightly.install import Installation, carried, checked_time, files_for


def installation(folder: Path) -> Installation:
    return Installation(
        name="kimi",
        experiment=folder / "my models" / "k.yaml",
        history=folder / "history 100%",
        policy=folder / "policy.yaml",
        python=sys.executable,
        at="03:07",
        environment={"PATH": f"{folder}/a bin:/usr/bin:/bin", "HF_HOME": "/100%/$HOME"},
    )


def test_systemd_gets_a_persistent_timer_and_a_service_that_calls_the_same_command(tmp_path: Path) -> None:
    job = installation(tmp_path)
    files = files_for("systemd", job, home=tmp_path, here=tmp_path).files
    service, timer = configparser.RawConfigParser(strict=False), configparser.RawConfigParser()
    service.optionxform = timer.optionxform = str  # type: ignore[assignment,method-assign]
    service.read_string(files["sweeper-nightly-kimi.service"])
    timer.read_string(files["sweeper-nightly-kimi.timer"])
    words = shlex.split(service["Service"]["ExecStart"].replace("%%", "%").replace("$$", "$"))
    assert words[:5] == ["/usr/bin/flock", "--no-fork", "--nonblock", "--conflict-exit-code", "0"]
    assert tuple(words[6:]) == job.argv()
    variables = [line for line in files["sweeper-nightly-kimi.service"].splitlines() if line.startswith("Environment=")]
    told = [shlex.split(line.removeprefix("Environment=").replace("%%", "%")) for line in variables]
    assert told == [[f"{name}={value}"] for name, value in job.environment.items()]
    assert timer["Timer"]["OnCalendar"] == "*-*-* 03:07:00" and timer["Timer"]["Persistent"] == "true"


def test_the_cron_line_runs_the_command_with_its_variables_its_secrets_and_its_log(tmp_path: Path) -> None:
    """The line is run as cron would run it, with an interpreter that only writes down what it was given."""
    spy = tmp_path / "spy"
    spy.write_text('#!/bin/sh\nprintf "%s\\n" "$HOOK" "$HF_HOME" "$@"\n')
    spy.chmod(0o755)
    job = replace(installation(tmp_path), python=str(spy))
    folder = written("cron", job, tmp_path)
    job.secrets.write_text("HOOK=https://x/y\n")
    [line] = (folder / "crontab").read_text().splitlines()
    assert "%" not in line.replace(r"\%", "")
    shell = line.removeprefix("7 3 * * * ").replace(r"\%", "%")
    subprocess.run(["/bin/sh", "-c", shell], check=True, env={"PATH": "/usr/bin:/bin"})
    said = (job.history / "nightly.log").read_text().splitlines()
    assert said == ["https://x/y", "/100%/$HOME", *job.argv()[1:]]


def test_the_interpreter_comes_first_on_the_path_of_a_night_and_secrets_are_not_written_down() -> None:
    given = {"PATH": "/usr/bin:/opt/cuda/bin", "CUDA_HOME": "/opt/cuda", "HF_TOKEN": "hf_x", "HF_HOME": ""}
    found = carried(given, "/opt/venv/bin/python")
    assert found == {"PATH": "/opt/venv/bin:/usr/bin:/opt/cuda/bin", "CUDA_HOME": "/opt/cuda"}


def test_the_workflow_runs_on_an_own_runner_never_twice_and_keeps_junit_and_summary(tmp_path: Path) -> None:
    job = installation(tmp_path)
    made = files_for("github-actions", job, home=tmp_path, here=tmp_path)
    workflow = yaml.safe_load(made.files["sweeper-nightly-kimi.yml"])
    night = workflow["jobs"]["nightly"]
    assert night["runs-on"] == ["self-hosted", "gpu"]
    assert workflow[True]["schedule"] == [{"cron": "7 3 * * *"}]  # YAML 1.1 reads `on` as true
    assert workflow["concurrency"]["cancel-in-progress"] is False
    assert tuple(shlex.split(night["steps"][0]["run"])) == job.argv()
    assert night["steps"][0]["env"] == job.environment
    assert "GITHUB_STEP_SUMMARY" in night["steps"][1]["run"] and night["steps"][1]["if"] == "always()"
    assert "junit.xml" in night["steps"][2]["with"]["path"]


def written(kind: Any, job: Installation, folder: Path) -> Path:
    job.experiment.parent.mkdir(exist_ok=True)
    job.history.mkdir(exist_ok=True)
    made = files_for(kind, job, home=folder, here=folder)
    made.folder.mkdir(parents=True)
    for name, text in made.files.items():
        (made.folder / name).write_text(text)
    return made.folder


def test_the_ray_job_joins_the_cluster_with_its_secrets_and_may_end_in_order(tmp_path: Path) -> None:
    spy = tmp_path / "spy"
    spy.write_text('#!/bin/sh\nprintf "%s\\n" "$HOOK" "$@"\n')
    spy.chmod(0o755)
    job = replace(installation(tmp_path), python=str(spy))
    spec = json.loads((written("ray-job", job, tmp_path) / "ray-job.json").read_text())
    job.secrets.write_text("HOOK=https://x/y\n")
    ended = subprocess.run(["/bin/sh", "-c", spec["entrypoint"]], check=True, capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["https://x/y", *job.argv()[1:], "--ray-address", "auto"]
    assert "https" not in json.dumps(spec)
    assert spec["entrypoint_num_gpus"] == 0 and spec["runtime_env"]["env_vars"]["HF_HOME"] == "/100%/$HOME"
    assert int(spec["runtime_env"]["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"]) > 60


CLIENT = """\
import os
class Info:
    def __init__(self, value, code): self.status, self.driver_exit_code = self, code; self.value = value
class JobSubmissionClient:
    def __init__(self, address):
        assert os.environ["RAY_AUTH_MODE"] == "token"
        self.address, self.polls = address, 0
    def submit_job(self, *, entrypoint, entrypoint_num_cpus, entrypoint_num_gpus, runtime_env, metadata):
        if "9999" in self.address: raise ConnectionError("nobody answers")
        return "raysubmit_1"
    def get_job_status(self, job):
        self.polls += 1
        class Status:
            def is_terminal(status): return self.polls > 2  # the connection is cut once
        return Status()
    async def tail_job_logs(self, job):
        yield f"part {self.polls}\\n"
    def get_job_info(self, job): return Info("FAILED", 1)
"""


def test_the_submitting_script_follows_the_job_and_ends_with_its_exit_code(tmp_path: Path) -> None:
    """As cron runs its line, on a stand-in for Ray's client; a real cluster does it in the real tier."""
    for name, text in (
        ("__init__", ""),
        ("exceptions", "class RayError(Exception): pass\n"),
        ("job_submission", CLIENT),
    ):
        (tmp_path / "lib" / "ray").mkdir(parents=True, exist_ok=True)
        (tmp_path / "lib" / "ray" / f"{name}.py").write_text(text)
    (tmp_path / "home" / ".ray").mkdir(parents=True)
    (tmp_path / "home" / ".ray" / "auth_token").write_text("a" * 64)
    job = installation(tmp_path)
    folder = written("ray-job", job, tmp_path)
    [line] = (folder / "crontab-ray").read_text().splitlines()
    assert line.startswith("7 3 * * * RAY_API_SERVER_ADDRESS=http://127.0.0.1:8265 ")
    shell = line.removeprefix("7 3 * * * ").replace(r"\%", "%")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path / "lib")}
    assert subprocess.run(["/bin/sh", "-c", shell], env=env, check=False).returncode == 1
    said = (job.history / "nightly.log").read_text()
    assert "part 1\npart 2\njob raysubmit_1: FAILED, exit code 1\n" in said
    nowhere = subprocess.run(["/bin/sh", "-c", shell.replace("8265", "9999")], env=env, check=False)
    assert nowhere.returncode == 2
    assert "http://127.0.0.1:9999: nobody answers" in (job.history / "nightly.log").read_text()


@pytest.mark.parametrize("text", ["3:00", "24:00", "03:60", "noon"])
def test_a_wrong_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a time of day"):
        checked_time(text)
