"""The formulas behind every number, as they stand in each report."""

from sweeper.present.assets import asset


def methods() -> tuple[tuple[str, str], ...]:
    """(name, formula), in the order of the appendix."""
    pairs = (line.split(" :: ", 1) for line in asset("methods.txt").splitlines())
    return tuple((name, formula) for name, formula in pairs)
