import subprocess
from pathlib import Path

from sweeper.effects.environment import describe_environment, git_state
from sweeper.effects.gpu import Inventory
from sweeper.testing.gpus import FakeGpus, fake_node

SECRET = "hf_abcdefghijklmnopqrstuvwx"


def test_what_matters_is_there_and_secrets_are_not(state: Path) -> None:
    environ = {"HF_TOKEN": SECRET, "HF_ENDPOINT": f"https://u:{SECRET}@hub", "NCCL_DEBUG": "WARN", "HOME": "/root"}
    environ |= {"NVIDIA_REQUIRE_CUDA": "cuda>=13.0 brand=tesla,driver>=535 " * 40}
    found = describe_environment(gpus=FakeGpus([fake_node(2)]), environ=environ)
    assert found["env"] == {"HF_TOKEN": "***", "HF_ENDPOINT": "https://u:***@hub", "NCCL_DEBUG": "WARN"}
    assert [gpu["index"] for gpu in found["gpus"]] == [0, 1]
    assert SECRET not in str(found)
    assert found["python"] and found["kernel"] and found["cpu"]["cores"] >= 1


def test_a_machine_without_nvml_says_so(state: Path) -> None:
    gpus = FakeGpus([Inventory(problem="no NVML: not found")])
    found = describe_environment(python="/no/such/python", gpus=gpus, environ={})
    assert (found["gpus"], found["gpu_problem"]) == ([], "no NVML: not found")


def test_git_state_tells_commit_and_changes(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)

    assert git_state(tmp_path) is None
    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "first")
    clean = git_state(tmp_path)
    assert clean is not None and len(clean["commit"]) == 40 and clean["dirty"] is False
    (tmp_path / "a").write_text("2")
    changed = git_state(tmp_path)
    assert changed is not None and changed["dirty"] is True
