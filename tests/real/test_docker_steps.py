"""Every RUN step of the Dockerfiles, run as a script in a clean folder, so that they cannot rot.

Needs the package index that CI installs from. What only root of an image may do (apt-get, useradd, chown) is written
down instead of done.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
INDEX = ("PIP_", "UV_INDEX", "UV_DEFAULT_", "UV_SYSTEM_CERTS", "SSL_")
"""Which package index this machine uses, and how."""
ROOT_ONLY = ("apt-get", "useradd", "chown")


def steps_of(dockerfile: Path) -> list[str]:
    """The shell text of every RUN."""
    text = dockerfile.read_text().replace("\\\n", " ")
    return re.findall(r"^RUN (.+)$", text, flags=re.MULTILINE)


def image(folder: Path, dockerfile: Path) -> dict[str, str]:
    """What the COPY lines would put into an image, below `folder`, and the environment of its ENV lines."""
    home = folder / "opt" / "sweeper"
    for line in dockerfile.read_text().splitlines():
        if line.startswith("COPY "):
            *sources, target = line.split()[1:]
            for source in sources:
                path = home / target / (source if target == "./" else "")
                path.parent.mkdir(parents=True, exist_ok=True)
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, path)
    fakes = folder / "bin"
    fakes.mkdir()
    for name in ROOT_ONLY:
        (fakes / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {folder}/root.log\n')
        (fakes / name).chmod(0o755)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "python")], check=True)
    return {
        "HOME": str(folder),
        "PATH": f"{fakes}:{folder / 'python' / 'bin'}:/usr/bin:/bin",
        "SWEEPER_HOME": str(home),
        "UV_PROJECT_ENVIRONMENT": str(home / ".venv"),
        "UV_PYTHON_DOWNLOADS": "never",
        # In an image the files are copied; here the packages that are already on this machine are linked.
        "UV_LINK_MODE": "hardlink",
        **{name: value for name, value in os.environ.items() if name.startswith(INDEX)},
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv")),
        "PIP_CONFIG_FILE": os.environ.get("PIP_CONFIG_FILE", str(Path.home() / ".config" / "pip" / "pip.conf")),
    }


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cpu"])
def test_every_step_of_the_image_works_in_a_clean_folder(tmp_path: Path, name: str) -> None:
    dockerfile = ROOT / "docker" / name
    env = image(tmp_path, dockerfile)
    home = Path(env["SWEEPER_HOME"])
    steps = steps_of(dockerfile)
    assert steps
    for step in steps:
        moved = re.sub(r" (/results|/history|/state)\b", rf" {tmp_path}\1", step)
        command = ["bash", "-euo", "pipefail", "-c", moved]
        ended = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=600)
        assert ended.returncode == 0, f"{step}\n{ended.stdout}\n{ended.stderr[-3000:]}"
    assert all((tmp_path / folder).is_dir() for folder in ("results", "history", "state"))
    assert "useradd --create-home --uid 10001 sweeper" in (tmp_path / "root.log").read_text()
    sweeper = [str(home / ".venv" / "bin" / "sweeper"), "plan", "experiments/kimi_eagle3.yaml", "--json"]
    planned = subprocess.run(sweeper, cwd=home, env=env, capture_output=True, text=True, timeout=120)
    assert planned.returncode == 0, planned.stderr
    engine = subprocess.run(
        [
            str(home / ".venv" / "bin" / "python"),
            "-c",
            "import importlib.util as u; print(u.find_spec('sglang') is not None)",
        ],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert engine.stdout.strip() == str(name == "Dockerfile.cpu")
