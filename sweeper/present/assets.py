"""Files of the report that ship with the package."""

import json
from functools import lru_cache
from importlib import resources

from sweeper.analysis.golden import GoldenCurve, golden_curves


def asset(name: str) -> str:
    return (resources.files("sweeper") / "data" / "report" / name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def golden() -> tuple[GoldenCurve, ...]:
    """Published accept lengths."""
    file = resources.files("sweeper") / "data" / "golden" / "curves.json"
    return golden_curves(json.loads(file.read_text(encoding="utf-8")))
