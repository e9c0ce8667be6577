"""Files of the report that ship with the package."""

from importlib import resources


def asset(name: str) -> str:
    return (resources.files("sweeper") / "data" / "report" / name).read_text(encoding="utf-8")
