"""The tiny trained pair that Sweeper ships: a Llama target and its EAGLE-3 draft."""

import shutil
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

__all__ = ["ToyPair", "is_free", "unpack"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyPair:
    """Where an unpacked pair lies: two checkpoint folders and a JSON-lines file of prompts."""

    target: Path
    draft: Path
    prompts: Path


def is_free(dest: Path) -> bool:
    """May `unpack` write there: it is not there, empty, or holds the pair already?"""
    ours = (dest / "draft" / "config.json").is_file() and (dest / "prompts.jsonl").is_file()
    return ours or not dest.exists() or not any(dest.iterdir())


def unpack(dest: Path) -> ToyPair:
    """Write the shipped pair into `dest`, which is made if it is missing; files of the pair are replaced."""
    dest.mkdir(parents=True, exist_ok=True)
    with as_file(files("sweeper") / "data" / "toy") as shipped:
        shutil.copytree(shipped, dest, dirs_exist_ok=True)
    return ToyPair(target=dest / "target", draft=dest / "draft", prompts=dest / "prompts.jsonl")
