"""Container files: linted, valid by schema, and their scripts do what they say."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import compose_spec
import kubernetes_validate
import pytest
import yaml

from sweeper.planning.config import parse_document

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "docker"
DOCKERFILES = ("Dockerfile", "Dockerfile.cpu")
SCRIPTS = sorted([*DOCKER.glob("*.sh"), *DOCKER.glob("steps/*.sh")])
DIGEST = "sha256:" + "0123456789abcdef" * 4


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def fake(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
    (folder / name).chmod(0o755)


def env_with(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **more}


@pytest.mark.parametrize("name", DOCKERFILES)
def test_dockerfiles_pass_the_linter(name: str) -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert hadolint is not None
    ended = run([hadolint, "--format", "json", str(DOCKER / name)])
    assert json.loads(ended.stdout) == []


@pytest.mark.parametrize("name", DOCKERFILES)
def test_what_is_copied_exists_and_every_step_is_a_script_here(name: str) -> None:
    lines = (DOCKER / name).read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert copied and all((ROOT / word).exists() for word in copied)
    steps = [line.split("docker/")[1].split()[0] for line in lines if "docker/steps/" in line]
    assert len(steps) == 3 and all(os.access(DOCKER / step, os.X_OK) for step in steps)
    assert "USER 10001" in lines
    assert any(line.startswith("HEALTHCHECK") for line in lines)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_parse_and_stop_at_the_first_failure(path: Path) -> None:
    assert run(["bash", "-n", str(path)]).returncode == 0
    assert "set -euo pipefail" in path.read_text()


def as_read(text: str) -> str:
    """As Compose reads it with none of its variables set: interpolated, merged."""
    return yaml.safe_dump(yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)), sort_keys=False)


def test_compose_is_valid_and_gives_the_night_its_gpus_and_memory() -> None:
    text = as_read((DOCKER / "compose.yaml").read_text())
    compose_spec.PyCompose.from_yaml(text)
    services = yaml.safe_load(text)["services"]
    nightly = services["nightly"]
    (device,) = nightly["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"] and nightly["ipc"] == "host" and nightly["shm_size"] == "32gb"
    assert nightly["command"][:2] == ["nightly", "run"] and services["dashboard"]["command"][0] == "dashboard"


def test_a_compose_file_with_a_wrong_value_is_not_valid() -> None:
    text = as_read((DOCKER / "compose.yaml").read_text()).replace("pid: host", "pid: [host]")
    with pytest.raises(Exception, match="pid"):
        compose_spec.PyCompose.from_yaml(text)


@pytest.mark.parametrize("name", ["job", "cronjob"])
def test_manifests_are_valid_and_ask_for_eight_gpus(name: str) -> None:
    manifest = yaml.safe_load((DOCKER / "kubernetes" / f"{name}.yaml").read_text())
    kubernetes_validate.validate(manifest, "1.31", strict=True)
    spec = manifest["spec"]["jobTemplate"]["spec"] if name == "cronjob" else manifest["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert pod["securityContext"]["runAsNonRoot"] is True
    (state,) = pod["initContainers"]
    assert state["command"] == ["install", "-d", "-o", str(pod["securityContext"]["runAsUser"]), "-m", "700", "/state"]
    assert state["volumeMounts"] == [mount for mount in container["volumeMounts"] if mount["name"] == "state"]
    assert state["image"] == container["image"] and pod["hostPID"] is True
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**manifest, "sepc": {}}, "1.31", strict=True)


def registry(folder: Path, digest: str = DIGEST, fail: str = "") -> None:
    fake(
        folder,
        "curl",
        f"""
case "$*" in
  *auth.docker.io*) [ "{fail}" = auth ] && exit 6; echo '{{"token":"t0","expires_in":300}}' ;;
  *"Bearer t0"*) [ "{fail}" = tag ] && exit 22
     printf 'HTTP/2 200\\r\\ndocker-content-digest: {digest}\\r\\n\\r\\n' ;;
  *) exit 2 ;;
esac""",
    )


def pin(folder: Path, *args: str) -> tuple[subprocess.CompletedProcess[str], str]:
    target = folder / "Dockerfile"
    shutil.copy(DOCKER / "Dockerfile", target)
    ended = run([str(DOCKER / "pin.sh"), *args], env=env_with(folder / "bin", PIN_FILE=str(target)))
    return ended, target.read_text()


def test_pin_writes_the_digest_behind_the_tag(tmp_path: Path) -> None:
    registry(tmp_path / "bin")
    ended, text = pin(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert f"ARG SGLANG_TAG=v0.5.23@{DIGEST}\n" in text
    again = run(
        [str(DOCKER / "pin.sh"), "v0.6.0"], env=env_with(tmp_path / "bin", PIN_FILE=str(tmp_path / "Dockerfile"))
    )
    assert again.stdout == f"lmsysorg/sglang:v0.6.0@{DIGEST}\n"
    assert f"ARG SGLANG_TAG=v0.6.0@{DIGEST}\n" in (tmp_path / "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("fail", "digest", "said"),
    [("auth", DIGEST, "cannot be reached"), ("tag", DIGEST, "has no tag"), ("", "sha256:12", "named no digest")],
)
def test_pin_changes_nothing_without_a_registry(tmp_path: Path, fail: str, digest: str, said: str) -> None:
    registry(tmp_path / "bin", digest=digest, fail=fail)
    ended, text = pin(tmp_path)
    assert ended.returncode == 2 and said in ended.stderr and "is unchanged" in ended.stderr
    assert text == (DOCKER / "Dockerfile").read_text()


def test_pin_takes_no_tag_that_is_none(tmp_path: Path) -> None:
    registry(tmp_path / "bin")
    ended, _ = pin(tmp_path, "x|e touch /tmp/y")
    assert ended.returncode == 2 and "no such tag" in ended.stderr


def kimi(folder: Path, gpus: int, *args: str) -> subprocess.CompletedProcess[str]:
    fake(folder / "bin", "nvidia-smi", f"seq {gpus}")
    fake(folder / "bin", "docker", 'printf "%s " "$@"; echo')
    copy = folder / "repo" / "docker"
    copy.mkdir(parents=True, exist_ok=True)
    shutil.copy(DOCKER / "kimi.sh", copy)
    return run([str(copy / "kimi.sh"), *args], env=env_with(folder / "bin", SWEEPER_STATE_DIR=str(folder / "state")))


def test_kimi_checks_then_runs_with_gpus_memory_and_the_nodes_locks(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    ended = kimi(tmp_path, 8, str(tmp_path / "models"))
    first, second = ended.stdout.splitlines()
    assert first.endswith("sweeper check /opt/sweeper/experiments/kimi_eagle3.yaml ")
    assert second.endswith("sweeper run /opt/sweeper/experiments/kimi_eagle3.yaml --out /results ")
    assert "--gpus all" in first and "--ipc=host" in first and f"{tmp_path}/state:/state" in first
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700  # of the user that the container runs as


def test_kimi_refuses_fewer_than_eight_gpus_and_unknown_words(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    assert "this node has 4 GPUs" in kimi(tmp_path, 4, str(tmp_path / "models")).stderr
    assert kimi(tmp_path, 8, str(tmp_path / "models"), "dance").returncode == 2
    assert "no such folder" in kimi(tmp_path, 8, str(tmp_path / "nowhere")).stderr


def test_the_engine_step_names_the_interpreter_in_every_experiment_for_gpus(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    step = DOCKER / "steps" / "name_engine.sh"
    ended = run([str(step), "/opt/engine/bin/python3"], env={**os.environ, "SWEEPER_HOME": str(tmp_path)})
    assert ended.returncode == 0, ended.stderr
    named = {}
    for path in (tmp_path / "experiments").glob("*.yaml"):
        engine = parse_document(path.read_text(), path).experiment.engine
        named[path.name] = (engine.device, engine.python)
    assert named["kimi_eagle3.yaml"] == ("cuda", "/opt/engine/bin/python3")
    assert {python for device, python in named.values() if device == "cpu"} == {None}
    assert {python for device, python in named.values() if device == "cuda"} == {"/opt/engine/bin/python3"}
