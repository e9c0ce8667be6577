"""YAML text → plain values that remember their lines. Scalars as in YAML 1.2: `on`, `1:30` and dates are text."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sweeper.errors import ConfigError

Key = tuple[str | int, ...]
"""Where a value stands: ("speculative", "configs", 0, "num_steps")."""

Problem = tuple[Key, str]
"""Where, and what with its remedy."""

MAX_NODES = 200_000
"""Aliases multiply: a few lines can stand for billions of values."""
MAX_DEPTH = 40
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
"""What a terminal or a system call takes for something else than text."""

_SCALARS: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"(?:~|null|Null|NULL|)\Z"), lambda _: None),
    (re.compile(r"(?:true|True|TRUE)\Z"), lambda _: True),
    (re.compile(r"(?:false|False|FALSE)\Z"), lambda _: False),
    (re.compile(r"[-+]?[0-9]{1,300}\Z"), int),
    (re.compile(r"0x[0-9a-fA-F]+\Z"), lambda text: int(text, 16)),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"), float),
)


@dataclass(frozen=True, slots=True)
class Marked:
    """A document: its plain value and the 1-based line of every key and item."""

    path: Path
    value: Any
    lines: Mapping[Key, int]

    def error(self, where: Key, what: str) -> ConfigError:
        """`file:line: dotted.path: what; remedy`, at the nearest place that is in the file."""
        dotted = ".".join(str(part) for part in where)
        return ConfigError(f"{self.path}:{self.line(where)}: {dotted + ': ' if dotted else ''}{what}")

    def line(self, where: Key) -> int:
        """Line of the nearest place that is in the file."""
        found = next((where[:n] for n in range(len(where), -1, -1) if where[:n] in self.lines), ())
        return self.lines.get(found, 1)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the schema says about keys: the name a key is kept under, and where scalars stay text (`env`)."""

    rename: Callable[[Key, str], str]
    verbatim: Callable[[Key], bool]


def read_marked(text: str, path: Path, reading: Reading) -> Marked:
    """Read one YAML document; raises ConfigError `file:line: …` for what is not YAML, given twice or endless."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = " ".join((error.problem or "not YAML").split())
        raise ConfigError(f"{path}:{line}: not valid YAML: {problem}; check quotes, brackets and indentation") from None
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise ConfigError(f"{path}:1: not valid YAML: {problem}; save the file as UTF-8 text") from None
    except RecursionError:
        raise ConfigError(f"{path}:1: nested too deeply; write it flatter") from None
    if root is None:
        raise ConfigError(f"{path}:1: the file is empty; start from experiments/quickstart.yaml")
    walk = _Walk(path, reading)
    return Marked(path, walk.value(root, ()), walk.lines)


class _Walk:
    def __init__(self, path: Path, reading: Reading) -> None:
        self.path = path
        self.reading = reading
        self.lines: dict[Key, int] = {}
        self.left = MAX_NODES

    def value(self, node: yaml.Node, where: Key) -> Any:
        self.left -= 1
        self.lines.setdefault(where, node.start_mark.line + 1)
        if self.left < 0 or len(where) > MAX_DEPTH:
            raise self.error(node, where, "too large once its aliases are written out; write it shorter")
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, where)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*where, i)) for i, item in enumerate(node.value)]
        return self.scalar(node, where)

    def mapping(self, node: yaml.MappingNode, where: Key) -> dict[str, Any]:
        found: dict[str, Any] = {}
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                raise self.error(key_node, where, "merge keys (<<) are not read; write the keys out")
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.error(key_node, where, "a key must be text; write `key: value`")
            if _CONTROL.search(key_node.value):
                raise self.error(key_node, where, "a key holds control characters; remove them")
            name = self.reading.rename(where, key_node.value)
            line = key_node.start_mark.line + 1
            if name in seen:
                raise self.error(
                    key_node, (*where, name), f"given twice, first on line {seen[name]}; remove one of the two"
                )
            seen[name] = line
            self.lines[(*where, name)] = line
            found[name] = self.value(value_node, (*where, name))
        return found

    def scalar(self, node: yaml.Node, where: Key) -> Any:
        text = str(node.value)
        if not node.tag.startswith("tag:yaml.org,2002:") or "python" in node.tag:
            raise self.error(node, where, f"the tag {node.tag} is not read; write a plain value")
        if _CONTROL.search(text):
            raise self.error(node, where, "holds control characters; remove them")
        if getattr(node, "style", None) is not None or self.reading.verbatim(where):
            return text
        for pattern, convert in _SCALARS:
            if pattern.match(text):
                found = convert(text)
                if isinstance(found, float) and not math.isfinite(found):
                    raise self.error(node, where, f"{text} is too large for a number; write a finite one")
                return found
        return text

    def error(self, node: yaml.Node, where: Key, what: str) -> ConfigError:
        dotted = ".".join(str(part) for part in where)
        return ConfigError(f"{self.path}:{node.start_mark.line + 1}: {dotted + ': ' if dotted else ''}{what}")
