"""The engine's decode log line. Its throughput is that of the whole batch, not of one user."""

import re
from dataclasses import dataclass

_LINE = re.compile(r"Decode batch[.,].*?#running-req: (?P<running>\d+).*?gen throughput \(token/s\): (?P<rate>[\d.]+)")
_LENGTH = re.compile(r"accept len: ([\d.]+)")
_RATE = re.compile(r"accept rate: ([\d.]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeBatch:
    """One interval of decode steps, by the log. None: not in this line."""

    running: int
    tok_per_s: float
    """Of all running requests together."""
    accept_length: float | None
    accept_rate: float | None

    @property
    def tok_per_s_per_user(self) -> float | None:
        return self.tok_per_s / self.running if self.running else None


def decode_batch(line: str) -> DecodeBatch | None:
    """A `Decode batch, #running-req: …` line (older engines write a full stop); None: another line."""
    match = _LINE.search(line)
    if match is None:
        return None
    length, rate = _LENGTH.search(line), _RATE.search(line)
    return DecodeBatch(
        running=int(match["running"]),
        tok_per_s=float(match["rate"]),
        accept_length=float(length[1]) if length else None,
        accept_rate=float(rate[1]) if rate else None,
    )
