"""Why a server failed, from its log and exit code: class, cause and remedy. Pure.

The *first* recognised cause counts: what follows a crash (dead peers, refused connections, a final SIGKILL of the
launcher by itself, exit code -9) is its consequence. Checked against SGLang 0.5.17 and 0.5.23.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sweeper.core.launch import ServerFailure
from sweeper.core.redaction import redact_text
from sweeper.core.result import FailureClass
from sweeper.engine.failure_rules import FREE_MEMORY, LOWER_MEMORY, OOM_KILLER, RULES
from sweeper.engine.log import Progress, clean_line, message_of, telling_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What is known of a failed server beside its log."""

    exit_code: int | None
    """None: the process still runs."""
    ready: bool
    """It had answered a generation before."""
    model_path: str | None = None
    draft_path: str | None = None
    hang_s: float | None = None
    """Ended by us after this long without progress."""
    timeout_s: float | None = None
    """Ended by us because it was not ready in time."""
    refusal: str | None = None
    """What came of the last generation it was asked for before it was ready; None: it was asked for none."""


_OUT_OF_MEMORY = re.compile(
    r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|HIP out of memory"
    r"|DefaultCPUAllocator: can't allocate"
)
_FULL_GPU = re.compile(r"GPU (\d+) has a total capacity")
_OTHER_HOLDER = re.compile(r"\bProcess (\d+) has ([\d.]+) ([GT]iB) memory in use")
"""The server itself is `this process`; some MiB of another one are a bare context and not why memory ran out."""
_BAD_LAUNCH_ARGUMENT = re.compile(r"bad launch argument (\S.*)", re.DOTALL)
_UNKNOWN_ALGORITHM = re.compile(r"unknown speculative algorithm ")
"""The sentences of failure_rules."""
_CAPTURE_FAILED = re.compile(r"Capture (?:\w+ )*graph failed", re.IGNORECASE)
_MISSING_PATH = re.compile(
    r"^(?:\w+\.)*(?:OSError|HFValidationError|\w*NotFoundError|ValueError|RuntimeError): "
    r".*(?:Repo id must be|is not a local folder|couldn't connect|Incorrect path_or_model_id"
    r"|Can't load the configuration|does not appear to have a file named|No such file or directory"
    r"|Cannot find any model weights|Unrecognized model in|outgoing traffic has been disabled|Repository Not Found)"
)
_CHILD_DIED = re.compile(
    r"(?:Subprocess (\w+) \(pid=\d+\) crashed|(Rank \d+ scheduler) died during initialization).*?exit code:? (-?\d+)"
)
_EXCEPTION = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt|Exit))(?::|$)")
_ARGUMENT_FRAMES = re.compile(r"in (?:prepare_server_args|from_cli_args|__post_init__|handle_speculative_decoding)\b")


def diagnose(lines: Sequence[str], context: Context) -> ServerFailure:
    """The failure of a server whose log (a list of lines, oldest first) and exit code are known."""
    usable = [line for line in lines if "server_args=" not in line and not _is_warning(line)]
    found = min(
        (hit for hit in (_by_rules(usable), _by_memory(usable, context), _by_path(usable, context)) if hit is not None),
        key=lambda hit: hit.line,
        default=None,
    )
    found = found or _by_traceback(usable, context) or _by_child(usable, context) or _by_end(usable, context)
    return ServerFailure(
        failure_class=found.failure_class,
        message=redact_text(clean_line(found.message)),
        remedy=found.remedy,
        log_lines=tuple(
            redact_text(line) for line in telling_lines(usable, found.line if found.line < len(usable) else None)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """What a bad_argument says was refused."""

    options: tuple[str, ...]
    """All spellings that the engine names, with their dashes."""
    with_any_value: bool
    """The engine has no such flag; False: it did not take this value."""


def refused_flags(message: str) -> Refused | None:
    """From a failure's message; None: it names no flag, as for a combination."""
    if _UNKNOWN_ALGORITHM.match(message):
        return Refused(options=("--speculative-algorithm",), with_any_value=False)
    found = _BAD_LAUNCH_ARGUMENT.match(message)
    if found is None:
        return None
    words = found.group(1).split()
    if words[0].endswith(":"):
        options = [word for word in words[0].rstrip(":").split("/") if word.startswith("-")]
        with_any_value = words[1:4] == ["it", "could", "be"]
    else:
        options = [word for word in words if word.startswith("--")]
        with_any_value = True
    names = tuple(option.partition("=")[0] for option in options)
    return Refused(options=names, with_any_value=with_any_value) if names else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hit:
    line: int
    failure_class: FailureClass
    message: str
    remedy: str


def _is_warning(line: str) -> bool:
    return "Ignore import error" in line or "init failed (ModuleNotFoundError" in line or "WARNING" in line[:60]


def _by_rules(lines: Sequence[str]) -> _Hit | None:
    for index, raw in enumerate(lines):
        line = message_of(raw)
        for rule in RULES:
            match = rule.pattern.search(line)
            if match:
                message = rule.message.format(*match.groups()) if rule.message else line
                return _Hit(line=index, failure_class=rule.failure_class, message=message, remedy=rule.remedy)
    return None


def _by_memory(lines: Sequence[str], context: Context) -> _Hit | None:
    index = _first(lines, _OUT_OF_MEMORY.search)
    if index is None:
        return None
    capturing = Progress().after(lines[:index]).phase != "loading" or _first(lines, _CAPTURE_FAILED.search) is not None
    capturing = capturing and Progress().after(lines[: index + 1]).phase != "launching"
    when = "under load" if context.ready else "while capturing graphs" if capturing else "while loading weights"
    if (held := _held_by_another(lines[index])) is not None:
        gpu, pid, size = held
        return _Hit(
            line=index,
            failure_class="oom_run" if context.ready else "gpu_busy",
            message=f"out of GPU memory {when} on GPU {gpu}; {size} held by pid {pid}, which is not this server",
            remedy=f"`sweeper clean` if pid {pid} is a leftover of ours, then once more; if not, choose another GPU",
        )
    failure_class: FailureClass = "oom_run" if context.ready else "oom_capture" if capturing else "oom_load"
    remedies = {"oom_run": "lower mem_fraction_static or max_running_requests", "oom_capture": LOWER_MEMORY}
    return _Hit(
        line=index,
        failure_class=failure_class,
        message=f"out of GPU memory {when}",
        remedy=remedies.get(failure_class, FREE_MEMORY),
    )


def _held_by_another(line: str) -> tuple[str, str, str] | None:
    """(GPU, pid, size) of the largest holder beside the server itself."""
    gpu = _FULL_GPU.search(line)
    holders = _OTHER_HOLDER.findall(line)
    if gpu is None or not holders:
        return None
    pid, size, unit = max(holders, key=lambda one: (one[2], float(one[1])))
    return gpu.group(1), pid, f"{size} {unit}"


def _by_path(lines: Sequence[str], context: Context) -> _Hit | None:
    index = _first(lines, lambda line: _MISSING_PATH.search(message_of(line)))
    if index is None:
        return None
    text = message_of(lines[index])
    is_draft = bool(context.draft_path) and (
        str(context.draft_path) in text or (str(context.model_path) not in text and "specul" in "".join(lines[:index]))
    )
    if is_draft and context.draft_path != context.model_path:
        return _Hit(
            line=index,
            failure_class="draft_not_found",
            message=f"draft not found: {context.draft_path}",
            remedy="correct speculative.draft_model_path",
        )
    return _Hit(
        line=index,
        failure_class="model_not_found",
        message=f"model not found: {context.model_path or text}",
        remedy="correct server.model_path, or download it first",
    )


def _by_traceback(lines: Sequence[str], context: Context) -> _Hit | None:
    """The first exception of the log; in the handling of arguments it is a bad argument, whatever its type."""
    start = _first(lines, lambda line: "Traceback (most recent call last)" in line)
    if start is None:
        return None
    index = next((i for i in range(start + 1, len(lines)) if _EXCEPTION.match(lines[i])), None)
    if index is None:
        return None
    block = "\n".join(lines[start:index])
    if _CAPTURE_FAILED.search("\n".join(lines)) and not context.ready:
        return _Hit(
            line=index,
            failure_class="crash_start",
            message=f"graph capture failed: {lines[index]}",
            remedy=LOWER_MEMORY,
        )
    if _ARGUMENT_FRAMES.search(block) and "run_scheduler_process" not in block:
        frame = next((line.strip() for line in reversed(lines[start:index]) if line.startswith("    ")), "")
        return _Hit(
            line=index,
            failure_class="bad_argument",
            message=f"the engine refuses this combination of arguments: {lines[index]} ({frame})",
            remedy="set num_steps, eagle_topk and num_draft_tokens together, and see the lines below",
        )
    return _Hit(
        line=index,
        failure_class="crash_load" if context.ready else "crash_start",
        message=lines[index],
        remedy="see the lines below; the whole log is kept",
    )


def _by_child(lines: Sequence[str], context: Context) -> _Hit | None:
    index = _first(lines, _CHILD_DIED.search)
    match = _CHILD_DIED.search(lines[index]) if index is not None else None
    if index is None or match is None:
        return None
    name, code = match.group(1) or match.group(2), match.group(3)
    by_system = " (SIGKILL: by the system's OOM killer, or by somebody)" if code == "-9" else ""
    return _Hit(
        line=index,
        failure_class="scheduler_dead",
        message=f"{name} ended with exit code {code}{by_system}",
        remedy=OOM_KILLER,
    )


def _by_end(lines: Sequence[str], context: Context) -> _Hit:
    """Nothing was recognised: say what is certain."""
    nowhere = len(lines)
    phase = Progress().after(lines).phase
    refused, look = "", None
    if context.refusal is not None:
        refused = f"; a generation was asked for in vain: {context.refusal}"
        look = "see the log for why it does not generate"
    if context.hang_s is not None:
        failure_class: FailureClass = (
            "hang_load" if context.ready else "hang_capture" if phase == "capturing" else "hang_start"
        )
        return _Hit(
            line=nowhere,
            failure_class=failure_class,
            message=f"no progress for {context.hang_s:.0f} s while {phase}{refused}",
            remedy=look or "see the stacks beside the log, if py-spy was there",
        )
    if context.timeout_s is not None:
        failure_class = "hang_capture" if phase == "capturing" else "hang_start"
        return _Hit(
            line=nowhere,
            failure_class=failure_class,
            message=f"not ready after {context.timeout_s:.0f} s, last {phase}{refused}",
            remedy=look or "raise engine.ready_timeout_s if the log still moved",
        )
    ended = "still runs" if context.exit_code is None else f"ended with exit code {context.exit_code}"
    return _Hit(
        line=nowhere,
        failure_class="crash_load" if context.ready else "crash_start" if context.exit_code is not None else "unknown",
        message=f"the server {ended} while {phase}, without a reason in its log",
        remedy="see the whole log; exit code -9 without a traceback often is the system's OOM killer",
    )


def _first(lines: Sequence[str], test: Callable[[str], object]) -> int | None:
    return next((index for index, line in enumerate(lines) if test(line)), None)
