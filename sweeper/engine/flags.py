"""The engine's command-line flags as a table: spellings, shapes, types, choices; and what to say about a wrong one.

The shipped table is what argparse of that release accepts (scripts/dump_engine_flags.py); for other releases
`parse_help` reads the text of `python -m sglang.launch_server --help`.
"""

import difflib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

Shape = Literal["switch", "toggle", "value", "optional", "list", "unknown"]
"""switch: no value; toggle: --x / --no-x; optional: the value may be left out; unknown: --help does not say."""

RENAMED: Mapping[str, tuple[str, ...]] = {
    "cuda_graph_max_bs": ("cuda_graph_max_bs_decode", "cuda_graph_max_bs_prefill"),
    "cuda_graph_bs": ("cuda_graph_bs_decode", "cuda_graph_bs_prefill"),
    "disable_cuda_graph": ("disable_decode_cuda_graph", "disable_prefill_cuda_graph"),
    "enable_dp_attention": ("attn_dp_size",),
    "speculative_draft": ("speculative_draft_model_path",),
    "enable_ep_moe": ("ep_size",),
    "enable_flashmla": ("attention_backend",),
    "enable_flashinfer_mla": ("attention_backend",),
    "disable_flashinfer": ("attention_backend",),
    "enable_nan_detection": (),
}
"""Flags that releases before 0.5.23 had under another name, and what took their place; empty: nothing did."""

NUMERIC = {"int": int, "float": float}

COUNTED = frozenset({"tp_size", "pp_size", "dp_size", "ep_size", "attn_dp_size", "nnodes"})
"""Flags that say how many; the engine takes any whole number and dies later, or counts its GPUs wrong."""

READ_HERE: Mapping[str, str] = {
    **dict.fromkeys((*COUNTED, "max_running_requests", "page_size"), "int"),
    "context_length": "size",
}
"""Numbers that plans are made from: what they are also where a table (from `--help`) does not say."""

_SIZE = re.compile(r"(\d+)(Ki|Mi|Gi|Ti)|(\d+(?:\.\d+)?)(k|M|G|T)")
_UNITS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def size_of(value: Any) -> int | None:
    """8192, "8192", "8k" (8000), "25.6k" or "8Ki" (8192) as 0.5.23 reads it; None: it is no size."""
    text = str(value).strip()
    if (match := _SIZE.fullmatch(text)) is not None:
        return int(Decimal(match[1] or match[3]) * _UNITS[match[2] or match[4]])
    try:
        return int(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag. `option` is the spelling that is passed, with its dashes."""

    option: str
    dest: str
    shape: Shape
    type: str = "text"
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    default: Any = None
    deprecated: str | None = None

    @property
    def key(self) -> str:
        """The name in an experiment file: `mem_fraction_static`."""
        return plain(self.option)


def plain(name: str) -> str:
    """`--mem-fraction-static` and `mem-fraction-static` as `mem_fraction_static`."""
    return name.lstrip("-").replace("-", "_")


@dataclass(frozen=True, slots=True)
class FlagTable:
    """All flags of one engine version. `find` accepts what the engine's parser accepts: aliases and clear prefixes."""

    version: str
    flags: tuple[Flag, ...]
    _index: dict[str, Flag] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = {flag.dest: flag for flag in self.flags if not flag.deprecated}
        for flag in self.flags:
            for spelling in (flag.option, *flag.aliases):
                index[plain(spelling)] = flag
            if flag.shape == "toggle":
                index["no_" + flag.key] = flag
        object.__setattr__(self, "_index", index)

    def find(self, name: str) -> Flag | None:
        """The flag of this name, alias, or unambiguous beginning of a name; None: the engine would refuse it."""
        key = plain(name)
        if (exact := self._index.get(key)) is not None:
            return exact
        begun = {flag.option: flag for spelling, flag in self._index.items() if spelling.startswith(key)}
        return next(iter(begun.values())) if len(begun) == 1 and len(key) > 1 else None

    def unknown(self, name: str) -> str:
        """One sentence for a name that `find` does not know, with the remedy."""
        key = plain(name)
        what = f"SGLang {self.version} has no flag --{key.replace('_', '-')}"
        if successors := [new for new in RENAMED.get(key, ()) if new in self._index]:
            return f"{what}; it is now {' or '.join(successors)}"
        begun = sorted({flag.key for spelling, flag in self._index.items() if spelling.startswith(key)})
        if begun:
            return f"{what}; it could mean {', '.join(begun[:4])}: write one of them"
        near = difflib.get_close_matches(key, self._index, n=1, cutoff=0.6)
        if near:
            return f"{what}; did you mean {near[0]}?"
        return f"{what}; remove it, or see `python -m sglang.launch_server --help`"


def wrong_value(flag: Flag, value: Any) -> str | None:
    """Why the engine would refuse `value` for this flag, with the remedy; None: it is fine."""
    if value is None or flag.shape == "unknown":
        return None
    if flag.shape in ("switch", "toggle"):
        if isinstance(value, bool):
            return None
        return f"{flag.key} takes no value, got {value!r}; write true or false"
    if isinstance(value, bool):
        if flag.shape == "optional" or not value:
            return None
        return f"{flag.key} needs a value, got true; write {_example(flag)}"
    if isinstance(value, list) and flag.shape != "list" and flag.type in (*NUMERIC, "str") and not flag.choices:
        return f"{flag.key} takes one value, got a list; sweep over it with `sweep:`"
    for item in value if isinstance(value, list) else [value]:
        if problem := _wrong_item(flag, item):
            return problem
    return None


def _wrong_item(flag: Flag, item: Any) -> str | None:
    if flag.choices and str(item) not in flag.choices:
        near = difflib.get_close_matches(str(item), flag.choices, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(flag.choices[:12])}"
        return f"{flag.key} cannot be {item!r}; {hint}"
    meant = READ_HERE.get(flag.key, flag.type)
    if meant == "size" and size_of(item) is None:
        return f"{flag.key} must be a whole number, or one like 8k or 8Ki, got {item!r}; write one"
    if (kind := NUMERIC.get(meant)) is not None:
        try:
            number = kind(str(item))
        except ValueError:
            return f"{flag.key} must be {'a whole number' if kind is int else 'a number'}, got {item!r}; write one"
        if not math.isfinite(number):
            return f"{flag.key} must be a finite number, got {item!r}; write one"
        if flag.key in COUNTED and number < 1:
            return f"{flag.key} must be at least 1, got {item!r}; correct it"
    return None


def _example(flag: Flag) -> str:
    if flag.choices:
        return f"one of {', '.join(flag.choices[:12])}"
    return {"int": "a whole number", "float": "a number"}.get(flag.type, "one")


def table_from_json(text: str) -> FlagTable:
    """The shipped form: {"version": …, "flags": [{"option": …, "dest": …, "shape": …, …}]}."""
    data = json.loads(text)
    return FlagTable(str(data["version"]), tuple(_flag(item) for item in data["flags"]))


def _flag(item: dict[str, Any]) -> Flag:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in item.items()}
    return Flag(**fields)


_HELP_ENTRY = re.compile(r"^  (--[a-z0-9][^\n]*(?:\n {3,8}--[^\n]*)*)", re.MULTILINE)
_SPELLING = re.compile(
    r"(--[A-Za-z0-9][\w-]*)(?: (\[[^\]]+\](?: \[[^\]]+\])*|\{[^}]*\}|[A-Z][A-Z0-9_]*(?: \[[^\]]+\])?))?"
)
_CHOICES = re.compile(r"\{([^}]*)\}")


def parse_help(text: str, version: str) -> FlagTable:
    """The table of another release from its `--help`; that text shows shapes and choices, not types."""
    flags = []
    for match in _HELP_ENTRY.finditer(text):
        spellings = _SPELLING.findall(match.group(1).split("  ")[0])
        spelt = [option for option, _ in spellings if option != "--help"]
        options = sorted(spelt, key=lambda option: plain(option) not in READ_HERE)  # `--tp-size`, whatever comes first
        if options:
            metavar = spellings[0][1]
            toggles = "--no-" + options[0][2:] in options
            flags.append(
                Flag(
                    option=options[0],
                    dest=plain(options[0]),
                    shape="toggle" if toggles else _shape_of(metavar),
                    aliases=tuple(option for option in options[1:] if not option.startswith("--no-")),
                    choices=tuple(listed[1].split(",")) if (listed := _CHOICES.search(metavar)) else (),
                )
            )
    return FlagTable(version, tuple(flags))


def _shape_of(metavar: str) -> Shape:
    if not metavar:
        return "switch"
    if metavar.startswith("["):
        return "list" if "..." in metavar else "optional"
    return "list" if "[" in metavar else "value"
