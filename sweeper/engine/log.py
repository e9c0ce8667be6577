"""What a server's log says of its progress. Pure: lines in, values out."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sweeper.core.plain import plain_line

StartPhase = Literal["launching", "loading", "capturing", "warming", "ready"]
ORDER: tuple[StartPhase, ...] = ("launching", "loading", "capturing", "warming", "ready")
LINE_LENGTH = 400
FIRED_UP = "The server is fired up and ready to roll!"

_PHASES: tuple[tuple[StartPhase, re.Pattern[str]], ...] = (
    ("ready", re.compile(re.escape(FIRED_UP))),
    ("warming", re.compile(r"Application startup complete|Uvicorn running on|Start of warmup|execute_warmup")),
    ("capturing", re.compile(r"Capture .*\bgraph begin|Capturing batches|Compiling .*graph")),
    (
        "loading",
        re.compile(
            r"Init torch distributed begin|Load weight begin|loading shards|Loading safetensors|Load weight end"
        ),
    ),
)
_DOOMED = re.compile(
    r"Scheduler hit an exception|SIGQUIT received|Received sigquit|died during initialization|crashed with exit code"
    r"|error while attempting to bind on address|Initialization failed\. warmup error|watchdog timeout(?!.*soft=True)"
)
_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [A-Z0-9 ]+)?\] ")
_DECODE = re.compile(
    r"Decode batch\W.*?#running-req: (?P<running>\d{1,9})(?!\d)(?:.*?accept len: (?P<accepted>\d{1,9}(?:\.\d+)?))?"
    r".*?gen throughput \(token/s\): (?P<rate>\d{1,9}(?:\.\d+)?)"
)
_DETAILS = (
    re.compile(r"(Capture [\w ]*graph) begin"),
    re.compile(r"Capturing batches \((bs=\d+)"),
    re.compile(r"(\d+% Completed \| \d+/\d+)"),
    re.compile(r"Load weight end.*?(type=\w+)"),
)


def clean_line(line: str) -> str:
    """A log line without terminal escapes, control and bidirectional characters, cut to 400 characters."""
    text = plain_line(line).rstrip()
    return text if len(text) <= LINE_LENGTH else text[: LINE_LENGTH - 1] + "…"


def split_lines(text: str) -> list[str]:
    """Lines of a log; a progress bar's carriage returns separate its states."""
    return [line for line in re.split(r"\r\n|\n|\r", text) if line.strip()]


def message_of(line: str) -> str:
    """A line without its time stamp and rank."""
    return _STAMP.sub("", line)


def phase_of(line: str) -> StartPhase | None:
    """The phase that this line proves to have begun; None: it says nothing about it."""
    if "server_args=" in line:
        return None
    return next((phase for phase, pattern in _PHASES if pattern.search(line)), None)


def doomed(line: str) -> bool:
    """Does this line say that the server will not come up (or not live on), whatever its process still does?"""
    return bool(_DOOMED.search(line))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a start is. Phases only go forward: a draft is loaded after the target, both are `loading`."""

    phase: StartPhase = "launching"
    detail: str = ""
    doomed: bool = False

    def after(self, lines: Iterable[str]) -> "Progress":
        """The progress once these lines were read."""
        phase, detail, is_doomed = self.phase, self.detail, self.doomed
        for line in lines:
            seen = phase_of(line)
            if seen is not None and ORDER.index(seen) > ORDER.index(phase):
                phase, detail = seen, ""
            detail = _detail(line) or detail
            is_doomed = is_doomed or doomed(line)
        return Progress(phase=phase, detail=detail, doomed=is_doomed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What a serving engine says of the last few decode steps."""

    tok_per_s: float
    running: int
    accept_length: float | None
    """None: no speculation."""


def pace_of(line: str) -> Pace | None:
    """From a `Decode batch` line; None for any other."""
    if not (match := _DECODE.search(line)):
        return None
    accepted = match["accepted"]
    return Pace(
        tok_per_s=float(match["rate"]),
        running=int(match["running"]),
        accept_length=None if accepted is None else float(accepted),
    )


def _detail(line: str) -> str | None:
    for pattern in _DETAILS:
        match = pattern.search(line)
        if match:
            return match.group(1)
    return None


_NOISE = re.compile(
    r"server_args=|^\s*usage:|^\s+\[-|\"(?:GET|POST) /|Decode batch|Prefill batch|[Pp]y-?spy|coredump|warnings\.warn"
    r"|Ignore import error|disabled: OpenAI|kill_process_tree"
)
_LOUD = re.compile(
    r"[Ee]rror|[Ee]xception|[Ff]ailed|died|crashed|SIGQUIT|sigquit|killed|out of memory|watchdog", re.ASCII
)


def telling_lines(lines: Sequence[str], cause: int | None, *, limit: int = 20) -> tuple[str, ...]:
    """At most `limit` lines that show why a server failed: its first traceback, cut in the middle, and the loud lines.

    `cause`: index of the line that was recognised as the cause; None: the last lines stand in.
    """
    if cause is None:
        kept = [line for line in lines if not _NOISE.search(line)]
        loud = [line for line in kept if _LOUD.search(line)][: limit // 2]
        tail = [line for line in kept[-(limit - len(loud)) :] if line not in loud]
        return tuple(clean_line(line) for line in [*loud, *tail])
    start = _traceback_start(lines, cause)
    block = [line for line in lines[start : cause + 1] if not set(line.strip()) <= {"^", "~"}]
    if len(block) > limit - 6:
        block = [block[0], "  …", *block[-(limit - 8) :]]
    after = [line for line in lines[cause + 1 :] if _LOUD.search(line) and not _NOISE.search(line)]
    return tuple(clean_line(line) for line in [*block, *after[: limit - len(block)]])


def _traceback_start(lines: Sequence[str], cause: int) -> int:
    for index in range(cause, max(-1, cause - 200), -1):
        if "Traceback (most recent call last)" in lines[index]:
            return index
        if index < cause and not lines[index].startswith((" ", "\t")):
            return cause if index == cause - 1 else index + 1
    return cause
