"""Values to JSON and back. Unknown fields are ignored and new ones have defaults: older and newer runs still open."""

import re
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sweeper.errors import StoreError

_SUSPECT = (b"\\u00", b"\\u20", b"\\b", b"\\f", b"\x7f", b"\xc2", b"\xe2\x80", b"\xe2\x81")
_BEFORE = rb"(?<!\\)((?:\\\\)*)"
_SEQUENCE = re.compile(_BEFORE + rb"\\u001b\[[0-?]*[ !#-/]*[@-\[\]-~]", re.IGNORECASE)
_NUMBERS = rb"u00(?:0[0-8bcef]|1[0-9a-f]|7f|[89][0-9a-f])|u20(?:0[ef]|2[a-e]|6[6-9])"
_ESCAPED = re.compile(_BEFORE + rb"\\(?:" + _NUMBERS + rb"|[bf])", re.IGNORECASE)
_RAW = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
"""What no experiment file may hold either, as it stands in JSON: by number, by letter, or as UTF-8."""


def printable_json(text: bytes) -> bytes:
    """The same document with strings that drive no terminal: files of others are shown too."""
    if not any(mark in text for mark in _SUSPECT):
        return text
    return _RAW.sub(b"", _ESCAPED.sub(rb"\1", _SEQUENCE.sub(rb"\1", text)))


def to_json(value: object, *, indent: int | None = 2) -> bytes:
    """UTF-8 JSON of a dataclass (or plain containers); NaN and infinity become null."""
    return _adapter_of(value).dump_json(value, indent=indent, fallback=str)


def to_plain(value: object) -> Any:
    """The same as containers of str, int, float, bool and None."""
    return _adapter_of(value).dump_python(value, mode="json", fallback=str)


def from_json(kind: Any, text: bytes, *, origin: str) -> Any:
    """A value of type `kind`; StoreError naming `origin` and the field when `text` is not one."""
    try:
        return _adapter(kind).validate_json(text)
    except ValidationError as error:
        raise StoreError(f"{origin}: {_first(error)}") from error


def from_plain(kind: Any, value: object, *, origin: str) -> Any:
    """Like from_json, from containers that were JSON (lists stand for tuples)."""
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise StoreError(f"{origin}: {_first(error)}") from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _adapter_of(value: object) -> TypeAdapter[Any]:
    kind: Any = type(value)
    return _adapter(kind)


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]
