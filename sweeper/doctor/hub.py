"""A model named by path or by hub id, found on this machine only; nothing is downloaded."""

import os
import re
from pathlib import Path

from sweeper.errors import PreflightError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def local_checkpoint(name: str, revision: str = "main") -> Path:
    """The folder of `name`: a path, or the cached snapshot of a hub id. PreflightError when it is not here."""
    path = Path(name).expanduser()
    if path.exists():
        return path
    if not _HUB_ID.fullmatch(name):
        raise PreflightError(f"{name}: no such folder")
    cached = hub_cache() / f"models--{name.replace('/', '--')}"
    snapshot = cached / "snapshots" / _commit(cached, revision)
    if not snapshot.is_dir():
        raise PreflightError(f"{name}: neither a folder nor in the local hub cache {hub_cache()}; download it first")
    return snapshot


def hub_cache() -> Path:
    """Where the Hugging Face client keeps its snapshots, by its own environment variables."""
    if explicit := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(explicit).expanduser()
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME', '~/.cache')}/huggingface"
    return Path(home).expanduser() / "hub"


def _commit(cached: Path, revision: str) -> str:
    reference = cached / "refs" / revision
    return reference.read_text().strip() if reference.is_file() else revision
