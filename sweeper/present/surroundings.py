"""What a run was measured on, in words: machine, engine, packages, variables."""

import shlex
from collections.abc import Mapping
from typing import Any

from sweeper.core.run import RunData
from sweeper.present.numbers import ABSENT

_MOST_CHARACTERS = 80
"""Of one value: containers set variables that would fill a page of the report."""


def environment_words(run: RunData) -> tuple[tuple[str, str], ...]:
    """Name and value, in the order of environment.json; what is absent is left out."""
    first = run.measurements[0] if run.measurements else None
    known = {_name(key): words for key, value in run.environment.items() if (words := _words(_quiet(value), key))}
    if first:
        engine = first.fingerprint.engine
        known |= {
            "SGLang": engine.version or ABSENT,
            "engine files (SHA-256)": (engine.files_sha256 or ABSENT)[:16],
            "GPU driver": first.fingerprint.driver or ABSENT,
            "prompts (SHA-256)": first.fingerprint.prompts_sha256[:16],
        }
        if engine.stale_bytecode:
            known["stale bytecode"] = ", ".join(engine.stale_bytecode)
    interpreter = run.starts[0].command if run.starts else ""
    python = next((word for word in shlex.split(interpreter) if "python" in word), None)
    if python:
        known["interpreter of the servers"] = python
    return tuple((key.replace("_", " "), value) for key, value in known.items())


def _quiet(value: Any) -> Any:
    """Warnings about the prompts stand at the top of a report."""
    return {key: item for key, item in value.items() if key != "warnings"} if isinstance(value, Mapping) else value


def _name(key: str) -> str:
    return key.removesuffix("_bytes")


def _words(value: Any, key: str = "") -> str:
    """Whatever the environment holds, on one line; empty for what is absent."""
    if isinstance(value, Mapping):
        said = [f"{_name(name)} {words}" for name, entry in value.items() if (words := _words(entry, name))]
        return ", ".join(said)
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, map(_words, value)))
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and key.endswith("_bytes"):
        return f"{value / 2**30:,.1f} GiB"
    text = str(value)
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}… ({len(text):,} characters; environment.json has them all)"
