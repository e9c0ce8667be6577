"""The machine and the software of a run, as one JSON document without secrets."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweeper.core.redaction import redact_env, redact_text
from sweeper.effects.affinity import numa_cpus
from sweeper.effects.fingerprint import engine_fingerprint
from sweeper.effects.gpu import GpuReader, NvmlGpus

PACKAGES = (
    "sglang",
    "sgl-kernel",
    "sglang-kernel",
    "torch",
    "triton",
    "transformers",
    "flashinfer-python",
    "xgrammar",
    "numpy",
    "ray",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-ml-py",
)
"""Whose version can change a result."""

VARIABLES = (
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "GLOO_",
    "SGLANG_",
    "SGL_",
    "HF_",
    "OMP_",
    "MKL_",
    "TORCH",
    "TRITON_",
    "SWEEPER_",
)
"""Prefixes of the variables that are recorded: those that can change what an engine does."""
ASKED_OF_HOSTS = frozenset({"NVIDIA_REQUIRE_CUDA"})
"""An image's long list of drivers it would start on; nothing reads it afterwards."""

_VERSIONS = (
    "import importlib.metadata as m,json,sys\n"
    "found={}\n"
    "for name in sys.argv[1:]:\n"
    "    try: found[name]=m.version(name)\n"
    "    except m.PackageNotFoundError: pass\n"
    "print(json.dumps(found))"
)


def _matters(name: str) -> bool:
    return name.startswith(VARIABLES) and name not in ASKED_OF_HOSTS


def describe_environment(
    *, python: str | None = None, gpus: GpuReader | None = None, environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """OS, CPU, memory, GPUs, versions, git state, the variables that matter. `python`: the engine's interpreter."""
    inventory = (gpus or NvmlGpus()).read()
    engine = engine_fingerprint(python)
    variables = os.environ if environ is None else environ
    return {
        "sweeper": {"version": _own_versions(("sweeper",)).get("sweeper"), "git": git_state(Path(__file__).parent)},
        "engine": {
            "python": python or sys.executable,
            "version": engine.version,
            "files_sha256": engine.files_sha256,
            "stale_bytecode": list(engine.stale_bytecode),
        },
        "packages": package_versions(python or sys.executable),
        "python": platform.python_version(),
        "os": _os_name(),
        "kernel": platform.release(),
        "node": platform.node(),
        "cpu": {"model": _cpu_model(), "cores": os.cpu_count(), "usable": len(os.sched_getaffinity(0))},
        "numa_cpus": numa_cpus(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "driver": inventory.driver,
        "gpus": [
            {"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "memory_bytes": gpu.memory_total_bytes}
            for gpu in inventory.gpus
        ],
        "gpu_problem": inventory.problem,
        "env": redact_env({name: value for name, value in variables.items() if _matters(name)}),
    }


def package_versions(python: str) -> dict[str, str]:
    """Installed versions in that interpreter, from metadata alone; empty when it cannot be asked."""
    import json

    if python == sys.executable:
        return _own_versions(PACKAGES)
    try:
        done = subprocess.run(
            [python, "-c", _VERSIONS, *PACKAGES], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return {str(name): str(version) for name, version in found.items()}


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit, branch and whether tracked files were changed; None outside of a checkout or without git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": commit,
        "branch": _git(folder, "rev-parse", "--abbrev-ref", "HEAD"),
        "dirty": None if status is None else bool(status),
        "remote": redact_text(_git(folder, "remote", "get-url", "origin") or "") or None,
    }


def _own_versions(names: tuple[str, ...]) -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
