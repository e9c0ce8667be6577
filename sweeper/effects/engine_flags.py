"""Which SGLang an experiment's interpreter has, and the flags it takes. The engine is never imported here."""

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from sweeper.effects.hub import cache_dir, text_sha256
from sweeper.engine.flags import FlagTable, parse_help, table_from_json

SHIPPED = "0.5.23"
_VERSION = "import importlib.metadata as m; print(m.version('sglang'))"
HELP_TIMEOUT_S = 180.0
"""`--help` imports half the engine: 20 s on a cold disk."""


def installed_version(python: str | None, command_prefix: Sequence[str] = ()) -> str | None:
    """SGLang's version in that interpreter, from its package metadata; None: no interpreter, or no engine in it."""
    if not command_prefix and (python is None or Path(python) == Path(sys.executable)):
        try:
            return importlib.metadata.version("sglang")
        except importlib.metadata.PackageNotFoundError:
            return None
    words = [*command_prefix, python or sys.executable, "-c", _VERSION]
    done = _output(words, timeout_s=60)
    lines = done.split() if done else []
    return lines[-1] if lines else None


def shipped_table() -> FlagTable:
    """The table of the release that Sweeper is tested with."""
    return table_from_json((files("sweeper") / "data" / "engine" / f"flags-{SHIPPED}.json").read_text(encoding="utf-8"))


def table_of(version: str, python: str | None, command_prefix: Sequence[str] = ()) -> FlagTable | None:
    """The flags of `version`, shipped or asked of the interpreter that has it; None: it does not answer."""
    return shipped_table() if version == SHIPPED else help_table(version, python, command_prefix)


def help_table(version: str, python: str | None, command_prefix: Sequence[str] = ()) -> FlagTable | None:
    """What `--help` of that interpreter's engine shows; kept in the user's cache."""
    words = [*command_prefix, python or sys.executable, "-m", "sglang.launch_server", "--help"]
    cached = cache_dir() / "flags" / f"{version}-{text_sha256(' '.join(words))[:12]}.txt"
    text = cached.read_text() if cached.is_file() else _output(words, timeout_s=HELP_TIMEOUT_S)
    table = parse_help(text or "", version)
    if len(table.flags) < 50:
        return None
    if not cached.is_file() and text:
        _keep(cached, text)
    return table


def _keep(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(text)
        part.replace(path)
    except OSError:
        return  # a cache that cannot be written only costs time


def _output(words: Sequence[str], *, timeout_s: float) -> str | None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG_")}
    env |= {"COLUMNS": "200", "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(
            list(words),
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout
