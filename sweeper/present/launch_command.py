"""The command that starts a configuration again, outside Sweeper."""

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePath

from sweeper.core.result import StartRecord
from sweeper.core.run import RunData
from sweeper.core.trial import Arm
from sweeper.engine.argv import paste_line

OURS = ("--host", "--port", "--served-model-name", "--nccl-port")
"""Flags of one start that mean nothing to another."""
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
OUR_ENVIRONMENT = ("SWEEPER_LAUNCH_ID", "CUDA_VISIBLE_DEVICES", "PYTHONDONTWRITEBYTECODE")


def start_of(run: RunData, arm: Arm) -> StartRecord | None:
    """The last start of this arm that did not fail."""
    groups = {group.group_id for group in run.plan.launch_groups if group.arm_id == arm.arm_id}
    good = [record for record in run.starts if record.group_id in groups and record.failure is None]
    return good[-1] if good else None


def paste_command(run: RunData, arm: Arm) -> str:
    """One line to paste: what really ran, without what belonged to that run (host, port, name, GPU pinning)."""
    record = start_of(run, arm)
    return paste_line(arm.server) if record is None else _cleaned(record.command, record.env)


def _cleaned(command: str, recorded: Mapping[str, str]) -> str:
    words = shlex.split(command)
    split = next((i for i, word in enumerate(words) if "=" not in word or word.startswith("-")), 0)
    environment = {**recorded, **dict(word.split("=", 1) for word in words[:split])}
    argv = _without_ours(words[split:])
    argv = ["python" if PurePath(word).name.startswith("python") else word for word in argv[:1]] + argv[1:]
    kept = {key: value for key, value in environment.items() if key not in OUR_ENVIRONMENT}
    return " ".join([*(f"{key}={shlex.quote(value)}" for key, value in sorted(kept.items())), shlex.join(argv)])


def _without_ours(argv: list[str]) -> list[str]:
    kept, skip = [], False
    for word in argv:
        if skip:
            skip = False
        elif word in OURS:
            skip = True
        elif not word.startswith(tuple(f"{flag}=" for flag in OURS)):
            kept.append(word)
    return kept


def wrapped(command: str, width: int = 96) -> str:
    """The same command over several lines, broken before flags (between words where one is too long) by a backslash."""
    lines: list[str] = []
    for chunk in _chunks(command, width - len("   \\")):
        if lines and len(lines[-1]) + len(chunk) + 3 <= width:
            lines[-1] += f" {chunk}"
        else:
            lines.append(chunk if not lines else f"  {chunk}")
    return " \\\n".join(lines)


def _chunks(command: str, most: int) -> list[str]:
    """Each flag with its values, as one; words as they are quoted, so that none is broken inside."""
    chunks: list[list[str]] = [[]]
    for word in _WORD.findall(command):
        if word.startswith("--"):
            chunks.append([])
        chunks[-1].append(word)
    together = [" ".join(words) for words in chunks if words]
    parted = [[text] if len(text) <= most else _WORD.findall(text) for text in together]
    return [text for texts in parted for text in texts]
