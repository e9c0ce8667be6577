"""Numbers as people read them; what is absent is a dash, never a zero."""

ABSENT = "–"


def fixed(value: float | None, digits: int = 2) -> str:
    return ABSENT if value is None else f"{value:,.{digits}f}"


def rate(value: float | None) -> str:
    """tok/s: one decimal below 1,000, none above."""
    return ABSENT if value is None else f"{value:,.{1 if value < 1000 else 0}f}"


def milliseconds(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return ABSENT
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def percent(value: float | None, digits: int = 1) -> str:
    return ABSENT if value is None else f"{value:.{digits}%}"


def counted(count: int, word: str) -> str:
    """`1 arm`, `2 arms`."""
    return f"{count:,} {word}" + ("" if count == 1 else "s")
