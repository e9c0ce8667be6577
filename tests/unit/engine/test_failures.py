"""Classes, causes and remedies from log excerpts in the engine's line format; all names and numbers are invented."""

import pytest

from sweeper.engine.failures import Context, diagnose
from sweeper.engine.log import Progress

FRAME = '  File "/opt/e/sglang/srt/{file}", line 12, in {function}\n    {code}'


def traceback(*frames: str, error: str, rank: str = "") -> str:
    return "\n".join(
        [f"[2026-03-04 05:06:07{rank}] Scheduler hit an exception: Traceback (most recent call last):", *frames, error]
    )


def plain_traceback(*frames: str, error: str) -> str:
    return "\n".join(["Traceback (most recent call last):", *frames, error])


def frame(file: str, function: str, code: str = "x = y()") -> str:
    return FRAME.format(file=file, function=function, code=code)


LOADING = "[2026-03-04 05:06:00] Load weight begin. avail mem=79.10 GB"
LOADED = "[2026-03-04 05:06:02] Load weight end. elapsed=1.9 s, type=LlamaForCausalLM, avail mem=61.00 GB"
CAPTURING = "[2026-03-04 05:06:05] Capture target verify CUDA graph begin. backend=full, bs=[1, 2], avail mem=9.0 GB"
UP = "[2026-03-04 05:06:09] The server is fired up and ready to roll!"
SIGQUIT = "[2026-03-04 05:06:08] Received sigquit from a child process. It usually means the child failed."
ARGUMENTS = frame("server_args.py", "from_cli_args", "return cls(**given)")
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.25 GiB. GPU 1 has a total capacity of 79.10 GiB."

CAPTURE_OOM = "Exception: Capture cuda graph failed: CUDA out of memory"
NCCL = "torch.distributed.DistBackendError: NCCL error in: x.cpp:10"

CASES = {
    "an unknown flag": (
        2,
        "usage: x\nsglang serve: error: unrecognized arguments: --no-flag 7",
        "bad_argument",
        "--no-flag 7",
    ),
    "a flag that became two": (
        2,
        "sglang serve: error: ambiguous option: --graph-bs could match --graph-bs-decode, --graph-bs-prefill",
        "bad_argument",
        "--graph-bs-decode, --graph-bs-prefill",
    ),
    "a wrong value": (
        2,
        "sglang serve: error: argument --tp-size: invalid int value: 'two'",
        "bad_argument",
        "--tp-size",
    ),
    "an assertion about arguments": (
        1,
        plain_traceback(ARGUMENTS, frame("arg_groups/hook.py", "check", "args.topk is None"), error="AssertionError"),
        "bad_argument",
        "args.topk is None",
    ),
    "an unknown algorithm": (
        1,
        plain_traceback(ARGUMENTS, error="ValueError: Unknown speculative algorithm name: EAGLE9"),
        "bad_argument",
        "EAGLE9",
    ),
    "a tree with too few nodes": (
        -9,
        traceback(frame("spec.py", "draft"), error="RuntimeError: selected index k out of range") + f"\n{SIGQUIT}",
        "bad_argument",
        "draft tree",
    ),
    "no memory for the cache": (
        -9,
        f"{LOADING}\n{LOADED}\n"
        + traceback(
            frame("mem.py", "profile"),
            error="ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.02. "
            "Raise --mem-fraction-static above 0.131 (minimum viable).",
        ),
        "oom_load",
        "at least 0.131",
    ),
    "out of memory while loading": (
        1,
        f"{LOADING}\n{traceback(frame('runner.py', 'load_model'), error=OOM)}",
        "oom_load",
        "while loading",
    ),
    "out of memory while capturing": (
        1,
        f"{LOADING}\n{LOADED}\n{CAPTURING}\n" + traceback(frame("graph.py", "capture"), error=CAPTURE_OOM),
        "oom_capture",
        "capturing",
    ),
    "a taken port": (
        None,
        f"{LOADING}\n[2026-03-04 05:06:09] ERROR:    [Errno 98] error while attempting to bind on address "
        "('127.0.0.1', 30444): address already in use",
        "port",
        "30444",
    ),
    "a taken derived port": (1, "ValueError: rpc_port is used by a process already. pid=4321", "port", "pid 4321"),
    "an operation the CPU engine lacks": (
        -9,
        traceback(
            frame("attention.py", "forward"),
            error="NotImplementedError: attention with sinks is not provided by Sweeper's CPU engine, which covers x",
        ),
        "engine_missing",
        "attention with sinks",
    ),
    "a GPU that somebody else uses": (
        1,
        traceback(frame("bootstrap.py", "init"), error="ValueError: The memory capacity is unbalanced. Some GPUs"),
        "gpu_busy",
        "unequal free memory",
    ),
    "communication": (
        -9,
        f"{LOADING}\n" + traceback(frame("dist.py", "init"), error=NCCL, rank=" TP1"),
        "nccl",
        "NCCL error",
    ),
    "a draft of another width": (
        -9,
        traceback(
            frame("llama_eagle3.py", "forward"),
            error="RuntimeError: mat1 and mat2 shapes cannot be multiplied (9x640 and 960x320)",
        ),
        "draft_mismatch",
        "9x640 against 960x320",
    ),
    "a weight of another shape": (
        -9,
        traceback(
            frame("weight_utils.py", "load"),
            error="AssertionError: Attempted to load weight (torch.Size([8, 24])) into parameter (torch.Size([8, 16]))",
        ),
        "draft_mismatch",
        "torch.Size([8, 24])",
    ),
    "layers that are never reached": (
        -9,
        traceback(frame("aux.py", "check"), error="RuntimeError: captured 1 of 3 aux hidden states"),
        "draft_mismatch",
        "only 1 of 3",
    ),
    "a draft of another vocabulary": (
        -9,
        traceback(
            frame("standalone_worker_v2.py", "_validate_vocab_compatibility"),
            error="ValueError: STANDALONE speculative decoding requires the draft model to share the same vocabulary "
            "as the target model, but got target vocab_size=1536 and draft vocab_size=1600. Use a draft model with "
            "a matching vocabulary, or a speculative algorithm that supports heterogeneous vocabularies.",
        ),
        "draft_mismatch",
        "the target has 1536 ids and the draft 1600",
    ),
    "no engine": (1, "/usr/bin/python3: No module named sglang", "engine_missing", "no SGLang"),
    "a part of the engine missing": (
        1,
        plain_traceback(frame("a.py", "b"), error="ImportError: libcuda.so.1: cannot open shared object file"),
        "engine_missing",
        "libcuda.so.1",
    ),
    "a killed scheduler": (
        None,
        "[2026-03-04 05:06:09] Subprocess scheduler_0 (pid=77) crashed with exit code -9. Triggering SIGQUIT",
        "scheduler_dead",
        "scheduler_0",
    ),
    "a scheduler that died at the start": (
        1,
        "[2026-03-04 05:06:09] Rank 2 scheduler died during initialization (exit code: -9). Run `dmesg`.",
        "scheduler_dead",
        "Rank 2",
    ),
    "an exception nobody knows": (
        1,
        f"{LOADING}\n{traceback(frame('a.py', 'b'), error='KeyError: 17')}",
        "crash_start",
        "KeyError: 17",
    ),
    "silence": (-11, LOADING, "crash_start", "exit code -11"),
}


@pytest.mark.parametrize("name", CASES)
def test_class_and_cause_are_recognised(name: str) -> None:
    exit_code, log, failure_class, telling = CASES[name]
    failure = diagnose(log.split("\n"), Context(exit_code=exit_code, ready=False))
    assert (failure.failure_class, telling in failure.message) == (failure_class, True), failure
    assert failure.remedy
    assert 0 < len(failure.log_lines) <= 20


def test_memory_at_load_is_raised_and_at_capture_lowered() -> None:
    load = diagnose(CASES["no memory for the cache"][1].split("\n"), Context(exit_code=1, ready=False))
    capture = diagnose(CASES["out of memory while capturing"][1].split("\n"), Context(exit_code=1, ready=False))
    assert load.remedy.startswith("raise mem_fraction_static")
    assert capture.remedy.startswith("lower mem_fraction_static")


def test_memory_held_by_another_process_is_named_with_its_pid() -> None:
    line = f"{OOM} Process 3141 has 61.50 GiB memory in use."
    failure = diagnose([LOADING, line], Context(exit_code=1, ready=False))
    assert failure.message == (
        "out of GPU memory while loading weights on GPU 1; 61.50 GiB held by pid 3141, which is not this server"
    )
    assert "sweeper clean" in failure.remedy
    assert failure.failure_class == "gpu_busy"


def test_the_largest_of_several_holders_is_named_and_the_server_itself_is_none() -> None:
    holders = "Process 77 has 3.25 GiB memory in use. Process 88 has 101.50 GiB memory in use."
    own = "Including non-PyTorch memory, this process has 30.00 GiB memory in use."
    failure = diagnose([LOADING, f"{OOM} {holders} {own}"], Context(exit_code=1, ready=False))
    assert failure.message == (
        "out of GPU memory while loading weights on GPU 1; 101.50 GiB held by pid 88, which is not this server"
    )


def test_a_bare_context_of_another_process_does_not_excuse_a_model_that_is_too_big() -> None:
    line = f"{OOM} Process 77 has 498.00 MiB memory in use. Including non-PyTorch memory, this process has 138.00 GiB"
    assert diagnose([LOADING, line], Context(exit_code=1, ready=False)).failure_class == "oom_load"


def test_the_first_traceback_counts_and_not_what_followed() -> None:
    first = traceback(frame("llama.py", "forward"), error="RuntimeError: captured 2 of 3 aux hidden states")
    later = plain_traceback(frame("pool.py", "get"), error="requests.exceptions.ConnectionError: refused")
    failure = diagnose(f"{first}\n{SIGQUIT}\n{later}".split("\n"), Context(exit_code=-9, ready=False))
    assert failure.failure_class == "draft_mismatch"
    assert "captured 2 of 3" in " ".join(failure.log_lines)


def test_long_tracebacks_keep_their_head_and_their_end() -> None:
    frames = [frame(f"deep{index}.py", "call") for index in range(40)]
    log = traceback(*frames, error="KeyError: 'deep'")
    failure = diagnose([*log.split("\n"), SIGQUIT], Context(exit_code=-9, ready=False))
    assert len(failure.log_lines) <= 20
    assert "Traceback" in failure.log_lines[0]
    assert "KeyError: 'deep'" in failure.log_lines
    assert any("deep39.py" in line for line in failure.log_lines)


def test_waiting_for_a_port_and_soft_watchdogs_are_not_the_cause() -> None:
    log = [
        "[2026-03-04 05:06:00] port 30235 is in use. Waiting for 15 seconds. x is used by a process already. pid=7",
        "[2026-03-04 05:06:01] Scheduler watchdog timeout (self.watchdog_timeout=60, self.soft=True)",
        *traceback(frame("a.py", "b"), error="KeyError: 5").split("\n"),
    ]
    assert diagnose(log, Context(exit_code=1, ready=False)).message == "KeyError: 5"
    assert not Progress().after(log[:2]).doomed


def test_warnings_about_optional_parts_are_not_the_cause() -> None:
    log = [
        "[2026-03-04 05:06:00] Ignore import error when loading sglang.srt.models.x: No module named 'y'",
        "[2026-03-04 05:06:00] OpenAI Responses API disabled: init failed (ModuleNotFoundError: No module named 'z')",
        LOADING,
    ]
    failure = diagnose(log, Context(exit_code=-9, ready=False))
    assert failure.failure_class == "crash_start"


def test_crashes_under_load_are_told_from_crashes_at_the_start() -> None:
    log = [
        UP,
        "[2026-03-04 05:07:00] Decode batch, #running-req: 9",
        *traceback(frame("a.py", "b"), error="KeyError: 3").split("\n"),
    ]
    assert diagnose(log, Context(exit_code=None, ready=True)).failure_class == "crash_load"
    log[-1] = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    assert diagnose(log, Context(exit_code=None, ready=True)).failure_class == "illegal_memory"
    assert diagnose([UP, OOM], Context(exit_code=None, ready=True)).failure_class == "oom_run"


@pytest.mark.parametrize(("ready", "lines", "expected"), [
    (False, [LOADING], "hang_start"),
    (False, [LOADING, CAPTURING], "hang_capture"),
    (True, [LOADING, UP], "hang_load"),
])  # fmt: skip
def test_a_hang_is_named_by_its_phase(ready: bool, lines: list[str], expected: str) -> None:
    assert diagnose(lines, Context(exit_code=None, ready=ready, hang_s=300)).failure_class == expected


def test_a_missing_draft_is_told_from_a_missing_target() -> None:
    missing = "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{}'."
    context = Context(exit_code=1, ready=False, model_path="/w/target", draft_path="/w/draft")
    assert diagnose([missing.format("/w/draft")], context).failure_class == "draft_not_found"
    assert diagnose([missing.format("/w/target")], context).failure_class == "model_not_found"


def test_hostile_log_lines_are_harmless_and_secrets_hidden() -> None:
    line = "RuntimeError: \x1b[2J\x1b]0;owned\x07<script>alert(1)</script>\u202e key api_key='sk-abcdefghijklmnopqrst'"
    failure = diagnose([*traceback(frame("a.py", "b"), error=line).split("\n")], Context(exit_code=1, ready=False))
    text = failure.message + " ".join(failure.log_lines)
    assert "\x1b" not in text and "\u202e" not in text and "\x07" not in text
    assert "abcdefghij" not in text
    assert len(max(failure.log_lines, key=len)) <= 400
