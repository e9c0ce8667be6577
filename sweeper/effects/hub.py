"""A model named by path, by hub id or as `toy:…`, found on this machine only; nothing is downloaded."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from sweeper.errors import PreflightError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
TOY = "toy:"
TOY_PARTS = ("target", "draft")


def local_checkpoint(name: str, revision: str = "main") -> Path:
    """The folder of `name`: a path, the cached snapshot of a hub id, or a shipped one. PreflightError: not here."""
    if name.startswith(TOY):
        return _shipped(name)
    path = Path(name).expanduser()
    if path.exists():
        return path
    if not _HUB_ID.fullmatch(name):
        raise PreflightError(f"{name}: no such folder; correct the path")
    cached = hub_cache() / f"models--{name.replace('/', '--')}"
    snapshot = cached / "snapshots" / _commit(cached, revision)
    if not snapshot.is_dir():
        raise PreflightError(f"{name}: neither a folder nor in {hub_cache()}; download it first (`hf download {name}`)")
    return snapshot


def _shipped(name: str) -> Path:
    part = name.removeprefix(TOY)
    if part not in TOY_PARTS:
        raise PreflightError(f"{name}: the shipped models are {', '.join(TOY + part for part in TOY_PARTS)}")
    folder = Path(str(files("sweeper"))) / "data" / "toy" / part
    if not (folder / "config.json").is_file():
        raise PreflightError(f"{name}: {folder} is missing; install Sweeper again")
    return folder


def hub_cache() -> Path:
    """Where the Hugging Face client keeps its snapshots, by its own environment variables."""
    if explicit := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(explicit).expanduser()
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME', '~/.cache')}/huggingface"
    return Path(home).expanduser() / "hub"


def _commit(cached: Path, revision: str) -> str:
    reference = cached / "refs" / revision
    return reference.read_text().strip() if reference.is_file() else revision


def read_config(path: Path) -> Mapping[str, Any]:
    """A config.json; PreflightError when it cannot be read as a map."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PreflightError(f"{path}: cannot be read ({error.strerror}); correct the path") from None
    except (ValueError, RecursionError):
        raise PreflightError(f"{path}: not JSON; it should be the model's config.json") from None
    if not isinstance(value, dict):
        raise PreflightError(f"{path}: not a JSON map; it should be the model's config.json")
    return value


def weight_bytes(folder: Path) -> int:
    """Bytes of the weight files of a checkpoint folder."""
    return sum(f.stat().st_size for pattern in ("*.safetensors", "*.bin", "*.pt") for f in folder.glob(pattern))


def cache_dir() -> Path:
    """Sweeper's own cache of this user: draft overlays, flag tables. Everything in it can be made again."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "sweeper"


def text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
