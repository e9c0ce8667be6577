"""Secrets out of everything that is shown or stored: arguments, environments, URLs, log lines, server info."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sweeper.core.plain import plain_line

HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"(?:(?:^|_)(?:api_?keys?|key|token|auth|cookie)$)|api_?key|secret|passw(?:or)?d|passphrase|credential",
    re.IGNORECASE,
)
_ORDINARY_TOKEN = re.compile(r"(?:^|_)(?:bos|eos|pad|unk|mask|sep|cls|hot|per)_token$")
_NUMERIC = re.compile(r"-?\d+(?:\.\d+)?\Z")
_URL_PASSWORD = re.compile(r"([a-z][a-z0-9+.-]*://)([^/\s:@]*):([^/\s@]+)@", re.IGNORECASE)
_URL_QUERY = re.compile(r"([?&])([\w.-]+)=([^&\s\"']+)")
_KNOWN_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|ghp_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|AKIA[A-Z0-9]{16}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}|xox[abp]-[\w-]{10,})"
)
_SHORTEST_SECRET = 8
_NAME = re.compile(r"[\w-]+\Z")
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_FLAG = re.compile(r"(--[\w-]+)([= ])(?!-)(\S+)")
_ASSIGNED = re.compile(
    r"(['\"]?\b[\w-]*(?:api_?key|password|passwd|secret|auth_token|access_token|hf_token|credential)[\w-]*['\"]?\s*[=:]\s*)"
    r"(?!\s*(?:None|null|True|False)\b)('[^']*'|\"[^\"]*\"|[^\s,)}'\"]+)",
    re.IGNORECASE,
)


def secret_name(name: str) -> bool:
    """Does a variable, flag or key of this name hold a secret? `HF_TOKEN` and `--api-key` do, `max_tokens` does not."""
    plain = name.lstrip("-").replace("-", "_").lower()
    return bool(_SECRET_NAME.search(plain)) and not _ORDINARY_TOKEN.search(plain)


def redact_text(text: str) -> str:
    """Hides URL passwords, secret query parameters, bearer tokens, known key shapes, `--api-key x`, `api_key='x'`."""
    text = redact_urls(text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _KNOWN_SHAPES.sub(HIDDEN, text)
    text = _FLAG.sub(_hide_flag, text)
    return _ASSIGNED.sub(rf"\1{HIDDEN}", text)


def quoted(text: str, *, secret: str | None = None, limit: int = 300) -> str:
    """What a server said, for a message of ours: one line without escapes and secrets. `secret`: one it was sent."""
    line = plain_line(text)
    if secret:
        line = line.replace(secret, HIDDEN)
    return redact_text(line)[:limit]


def redact_urls(text: str) -> str:
    """Hides only the passwords and secret query parameters of URLs; other words stay as they are."""
    return _URL_QUERY.sub(_hide_query, _URL_PASSWORD.sub(rf"\1\2:{HIDDEN}@", text))


def _hide_query(match: re.Match[str]) -> str:
    mark, name, value = match.groups()
    hidden = secret_name(name) or name.lower() in ("sig", "signature", "x-amz-signature")
    return f"{mark}{name}={HIDDEN if hidden else value}"


def _hide_flag(match: re.Match[str]) -> str:
    name, between, value = match.groups()
    return f"{name}{between}{HIDDEN if secret_name(name) else value}"


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """An argument list with the values of secret names hidden: `--api-key x`, `--api-key=x`, `-e MY_TOKEN=x`."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if hide_next and not word.startswith("--"):
            shown.append(HIDDEN)
        elif equals and secret_name(name) and _NAME.match(name):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(redact_text(word))
        hide_next = word.startswith("--") and not equals and secret_name(name)
    return tuple(shown)


def redact_env(env: Mapping[str, str]) -> dict[str, str]:
    """An environment with the values of secret names hidden; the names stay."""
    return {name: HIDDEN if secret_name(name) and value else redact_text(value) for name, value in env.items()}


def secrets_of(argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """The very values that `redact_argv` and `redact_env` hide, longest first; short ones would hide other words."""
    found = {password for text in (*argv, *env.values()) for _, _, password in _URL_PASSWORD.findall(text)}
    found |= {value for name, value in env.items() if secret_name(name)}
    for word, following in zip(argv, (*argv[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        if secret_name(name) and _NAME.match(name):
            found.add(value if equals else following if word.startswith("--") else "")
    return tuple(sorted((one for one in found if len(one) >= _SHORTEST_SECRET), key=len, reverse=True))


def redact_value(value: Any, name: str = "") -> Any:
    """A JSON-like value with secrets hidden at any depth; numbers, booleans and null stay as they are."""
    if isinstance(value, Mapping):
        return {str(key): redact_value(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if not secret_name(name) and all(isinstance(item, str) for item in value):
            return list(redact_argv(value))
        return [redact_value(item, name) for item in value]
    if isinstance(value, str):
        if name and value and secret_name(name) and not _NUMERIC.match(value):
            return HIDDEN
        return redact_text(value)
    return value
