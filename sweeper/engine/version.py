"""Order of SGLang releases."""

import re

from sweeper.errors import ConfigError

TABLES_READ_UP_TO = "0.5.23"
"""The newest release whose source the tables of this package were read from and tested against."""

_PATTERN = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:\.?(post|rc|dev|a|b)(\d{0,99}))?(?:[.+-].*)?")


def release(version: str) -> tuple[int, int, int, int]:
    """(0, 5, 12, 1) for 0.5.12.post1; development versions sort before their release. ConfigError when unreadable."""
    match = _PATTERN.fullmatch(version.strip())
    if match is None:
        raise ConfigError(f"engine version {version!r} is not an SGLang release; write it like {TABLES_READ_UP_TO}")
    major, minor, patch, kind, number = match.groups()
    after = 0 if kind is None else int(number or 0) if kind == "post" else -1
    return int(major), int(minor), int(patch), after
