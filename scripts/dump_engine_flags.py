"""Writes sweeper/data/engine/flags-<version>.json from the engine that is installed beside this interpreter.

    <interpreter with sglang> scripts/dump_engine_flags.py sweeper/data/engine

Runs in the engine's interpreter, never in Sweeper's. The table is what argparse itself accepts: spellings, shapes,
types, choices, defaults and which spellings are deprecated.
"""

import argparse
import contextlib
import importlib.metadata
import json
import sys
from pathlib import Path


def shape(action: argparse.Action) -> str:
    """How the flag takes its value: switch, toggle (--x / --no-x), list, optional (value may be left out) or value."""
    if isinstance(action, argparse.BooleanOptionalAction):
        return "toggle"
    if action.nargs == 0:
        return "switch"
    if action.nargs == "?":
        return "optional"
    return "list" if action.nargs in ("+", "*") or isinstance(action.nargs, int) else "value"


def type_name(action: argparse.Action) -> str:
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return "bool"
    name = getattr(action.type, "__name__", None) or type(action.type).__name__
    known = {"int": "int", "float": "float", "str": "str", "NoneType": "str", "human_readable_int": "size"}
    return known.get(name, "json" if "json" in name else "text")


def entry(action: argparse.Action) -> dict[str, object]:
    spellings = [option for option in action.option_strings if option.startswith("--")]
    if isinstance(action, argparse.BooleanOptionalAction):
        spellings = [option for option in spellings if not option.startswith("--no-")]
    found: dict[str, object] = {
        "option": spellings[0],
        "dest": action.dest,
        "shape": shape(action),
        "type": type_name(action),
    }
    if spellings[1:]:
        found["aliases"] = spellings[1:]
    if action.choices:
        found["choices"] = sorted(str(choice) for choice in action.choices)
    if isinstance(action.default, bool | int | float | str):
        found["default"] = action.default
    if "eprecated" in (action.help or "")[:16] or "Deprecated" in type(action).__name__:
        found["deprecated"] = getattr(action, "new_flag", None) or " ".join((action.help or "").split())
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):
        from sglang.srt.server_args import ServerArgs

        parser = argparse.ArgumentParser()
        ServerArgs.add_cli_args(parser)
    version = importlib.metadata.version("sglang")
    actions = (action for action in parser._actions if action.option_strings and action.dest != "help")
    table = {"version": version, "flags": sorted(map(entry, actions), key=lambda flag: str(flag["option"]))}
    path = folder / f"flags-{version}.json"
    lines = ",\n".join(json.dumps(flag) for flag in table["flags"])
    path.write_text(f'{{"version": {json.dumps(version)}, "flags": [\n{lines}\n]}}\n')
    print(f"{path}: {len(table['flags'])} flags", file=sys.stderr)


if __name__ == "__main__":
    main()
