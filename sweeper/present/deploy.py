"""The winner as something that keeps running: a systemd unit or a compose file."""

import shlex
from itertools import pairwise
from pathlib import PurePosixPath

import yaml

from sweeper.analysis.winners import Winner
from sweeper.core.run import RunData
from sweeper.present.launch_command import paste_command

IMAGE = "lmsysorg/sglang"
PATH_FLAGS = ("--model-path", "--speculative-draft-model-path", "--speculative-adaptive-config", "--tokenizer-path")
"""Flags whose value may be a folder or file of this machine, which a container must be given."""


def systemd_unit(run: RunData, winner: Winner) -> str:
    """A unit file for /etc/systemd/system; `python` is looked up on the service's PATH."""
    environment, argv = split_command(paste_command(run, winner.arm))
    description = _percent(_flat(f"SGLang, {winner.arm.server.model_path}, {winner.arm.label}"))
    lines = [
        "[Unit]",
        f"Description={description}",
        "After=network-online.target",
        "Wants=network-online.target",
        "",
        "[Service]",
        *(f"Environment={_systemd_word(f'{key}={value}')}" for key, value in environment.items()),
        "ExecStart=/usr/bin/env " + " ".join(_systemd_word(word) for word in argv),
        "Restart=on-failure",
        "RestartSec=10",
        "TimeoutStopSec=60",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def compose_file(run: RunData, winner: Winner) -> str:
    """A compose file with the released image of the engine that was measured; local paths are mounted read-only."""
    environment, argv = split_command(paste_command(run, winner.arm))
    argv = ["python3" if word == "python" else word for word in argv]
    version = run.plan.engine_version
    service: dict[str, object] = {
        "image": f"{IMAGE}:v{version}" if version else f"{IMAGE}:latest",
        "command": [_dollar(word) for word in [*argv, "--host", "0.0.0.0", "--port", "30000"]],  # noqa: S104  of the container
        "ports": ["127.0.0.1:30000:30000"],
        "ipc": "host",
        "shm_size": "32g",
        "restart": "unless-stopped",
    }
    if environment:
        service["environment"] = {key: _dollar(value) for key, value in environment.items()}
    modules = [path for path in environment.get("PYTHONPATH", "").split(":") if PurePosixPath(path).is_absolute()]
    mounts = [f"{path}:{path}:ro" for path in [*_local_paths(argv), *modules]]
    if mounts:
        service["volumes"] = mounts
    if winner.arm.server.device == "cuda":
        devices = [{"driver": "nvidia", "count": winner.arm.server.gpus, "capabilities": ["gpu"]}]
        service["deploy"] = {"resources": {"reservations": {"devices": devices}}}
    text: str = yaml.safe_dump({"services": {"sglang": service}}, sort_keys=False, width=1000)
    return text


def split_command(command: str) -> tuple[dict[str, str], list[str]]:
    """(environment, argv) of a line to paste."""
    words = shlex.split(command)
    first = next((i for i, word in enumerate(words) if word.startswith("-") or "=" not in word), len(words))
    return dict(word.split("=", 1) for word in words[:first]), words[first:]


def _local_paths(argv: list[str]) -> list[str]:
    return sorted(
        {value for flag, value in pairwise(argv) if flag in PATH_FLAGS and PurePosixPath(value).is_absolute()}
    )


def _systemd_word(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    quoted = f'"{escaped}"' if any(sign in word for sign in " \t\"'\\;") or not word else escaped
    return _percent(_flat(quoted))


def _percent(text: str) -> str:
    return text.replace("%", "%%")


def _flat(text: str) -> str:
    """A line break in a name would begin a new directive."""
    return " ".join(text.splitlines())


def _dollar(text: str) -> str:
    return text.replace("$", "$$")
