"""Small pictures made of characters, and what stands for them on a terminal that has only ASCII."""

import codecs
import io
import shutil
import textwrap
from collections.abc import Sequence
from typing import TextIO

SPARKS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉"
BAR_CELLS = 8
"""Width of the small bars: one cell is an eighth of the largest value."""
_READABLE_COLUMNS = 100

STAND_INS = str.maketrans(
    {
        **dict(zip(SPARKS, "_.:-=+*#", strict=True)),
        **dict.fromkeys("▏▎▍", " "),
        **dict.fromkeys("▌▋▊▉", "#"),
        **{
            "×": "x",
            "–": "-",
            "−": "-",
            "●": "o",
            "▲": "+",
            "▼": "-",
            "✗": "x",
            "→": ">",
            "…": "~",
            "·": ".",
            "•": "*",
        },
    }
)
"""In encodings without these characters. Each is one character, so that columns stay columns."""


def bar(value: float, largest: float) -> str:
    """`value` as a bar of at most BAR_CELLS cells, in eighths of a cell."""
    if largest <= 0 or value <= 0:
        return ""
    eighths = round(BAR_CELLS * 8 * value / largest)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def spark(values: Sequence[float | None], largest: float) -> str:
    """One character a value, from nothing to `largest`; a blank where there is none."""
    return "".join(" " if value is None else _height(value, largest) for value in values)


def paragraph(text: str, indent: str = "") -> str:
    """`text` in lines as wide as the terminal and no wider than reads well; words, paths and options stay whole."""
    width = min(shutil.get_terminal_size().columns, _READABLE_COLUMNS)
    return textwrap.fill(
        text,
        width=max(width, 40),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _height(value: float, largest: float) -> str:
    share = value / largest if largest > 0 else 0.0
    return SPARKS[min(7, max(0, round(share * 8) - 1))]


def make_printable(*streams: TextIO) -> None:
    """Characters that a terminal's encoding does not hold are replaced from now on, instead of ending the command."""
    codecs.register_error("stand-in", _stand_in)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="stand-in")


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(STAND_INS)
    return text.encode("ascii", "replace").decode("ascii"), error.end
