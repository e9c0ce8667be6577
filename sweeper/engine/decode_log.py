"""The engine's `Decode batch` lines, in the spellings of old and new versions. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_FIELDS = {
    "running": re.compile(r"#running-req:\s*(\d{1,9})(?!\d)"),
    "length": re.compile(r"accept len:\s*(\d{1,9}(?:\.\d+)?)(?![\d.])"),
    "throughput": re.compile(r"gen throughput \(token/s\):\s*(\d{1,9}(?:\.\d+)?)(?![\d.])"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLine:
    """One log interval of decoding. Its throughput is the whole batch's, without ramp-up and tail of a load."""

    running: int
    tok_per_s: float
    accept_length: float | None
    accept_rate: float | None
    """(length − 1) / (draft tokens − 1), whatever the version printed: older ones divided by all draft tokens."""

    @property
    def tok_per_s_per_user(self) -> float | None:
        return self.tok_per_s / self.running if self.running else None


def draft_tokens_of(text: str) -> int | None:
    """From the server's arguments at the head of its log; None: no speculation, or the head is not there."""
    found = re.search(r"speculative_num_draft_tokens=(\d{1,9})(?!\d)", text)
    return int(found.group(1)) if found else None


def decode_lines(lines: Iterable[str], *, num_draft_tokens: int | None) -> tuple[DecodeLine, ...]:
    """All lines of decoding in the log; `num_draft_tokens` of the effective configuration, None without speculation."""
    found = []
    for line in lines:
        if "Decode batch" in line and (entry := _parse(line, num_draft_tokens)) is not None:
            found.append(entry)
    return tuple(found)


def _parse(line: str, num_draft_tokens: int | None) -> DecodeLine | None:
    running, length, throughput = (pattern.search(line) for pattern in _FIELDS.values())
    if running is None or throughput is None:
        return None
    accepted = float(length.group(1)) if length else None
    known = accepted is not None and num_draft_tokens is not None and num_draft_tokens > 1
    return DecodeLine(
        running=int(running.group(1)),
        tok_per_s=float(throughput.group(1)),
        accept_length=accepted,
        accept_rate=(accepted - 1) / (num_draft_tokens - 1) if known and accepted and num_draft_tokens else None,
    )
