"""Text that others wrote, fit for a terminal: without escape sequences, control and bidirectional characters."""

import re

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]|\x9b[0-?]*[ -/]*[@-~]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Only tabs and line ends are left of what is not printed."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def sendable(text: str) -> bool:
    """Can it be written as UTF-8? Half of a surrogate pair, or a byte of the command line that is none, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def plain_line(text: str) -> str:
    """The same as one line."""
    return plain(" ".join(text.expandtabs(4).splitlines()))
