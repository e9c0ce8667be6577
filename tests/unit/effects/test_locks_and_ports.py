import asyncio
import contextlib
import errno
import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.effects.locks import hold_all, hold_one_of, holder_of, locked_names, try_lock
from sweeper.effects.ports import claim_block, listener, port_free, reserve_port
from sweeper.engine.ports import port_block, port_collisions
from sweeper.errors import DiskError, PreflightError

HOLDER = """
import sys
from sweeper.effects.locks import try_lock
lock = try_lock(sys.argv[1], holder="run night-7")
print("held" if lock else "refused", flush=True)
sys.stdin.read()
"""


def other_process(name: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_a_lock_of_another_process_is_respected_and_ends_with_it(state: Path) -> None:
    other = other_process("gpu-a")
    assert try_lock("gpu-a", holder="me") is None
    assert holder_of("gpu-a") == (other.pid, "run night-7")
    assert list(locked_names()) == ["gpu-a"]
    end(other)
    lock = try_lock("gpu-a", holder="me")
    assert lock is not None
    lock.release()


def test_locks_that_cannot_be_made_are_one_clear_line(state: Path) -> None:
    state.mkdir(mode=0o700)
    (state / "locks").write_text("no folder can be made here")
    with pytest.raises(PreflightError, match="locks: cannot be made: File exists"):
        try_lock("gpu-0", holder="me")
    (state / "locks").unlink()
    (state / "locks" / "gpu-0.lock").mkdir(parents=True)
    with pytest.raises(PreflightError, match=r"gpu-0\.lock: cannot be made: Is a directory"):
        try_lock("gpu-0", holder="me")


def test_a_file_system_without_locks_is_one_clear_line(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(file: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuses)
    with pytest.raises(DiskError, match=r"cannot be locked: Function not implemented; set SWEEPER_STATE_DIR"):
        try_lock("gpu-0", holder="me")


async def test_waiting_for_a_gpu_says_who_holds_it_and_goes_on_when_it_is_free(state: Path) -> None:
    other = other_process("gpu-b")
    told: list[str] = []

    def on_wait(text: str) -> None:
        told.append(text)
        end(other)

    async with hold_all(["gpu-b", "gpu-a"], holder="me", on_wait=on_wait) as locks:
        assert [lock.name for lock in locks] == ["gpu-a", "gpu-b"]
    assert told == [f"gpu-b in use by run night-7 (pid {other.pid})"]
    assert list(locked_names()) == []


async def test_of_several_slots_the_free_one_is_taken(state: Path) -> None:
    first = try_lock("cpu-0", holder="x")
    async with hold_one_of(["cpu-0", "cpu-1"], holder="me", on_wait=print) as (lock,):
        assert lock.name == "cpu-1"
    assert first is not None
    first.release()


async def test_two_waiters_for_the_same_gpus_never_hold_them_at_once(state: Path) -> None:
    inside = 0

    async def use(names: list[str]) -> None:
        nonlocal inside
        async with hold_all(names, holder="me", on_wait=lambda _: None):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.01)
            inside -= 1

    async with asyncio.timeout(20):
        await asyncio.gather(use(["gpu-0", "gpu-1"]), use(["gpu-1", "gpu-0"]), use(["gpu-1"]))


def test_two_reservations_get_different_ports_and_whole_blocks(state: Path) -> None:
    with (
        reserve_port(holder="a", dp_attention=True, first=31600) as first,
        reserve_port(holder="b", first=first + 233) as second,
    ):
        assert second >= first + 233 + 7, "the derived block of the first is reserved too"


def test_a_listening_port_is_passed_over_and_its_holder_named(state: Path) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        taken = stranger.getsockname()[1]
        assert not port_free(taken)
        found = listener(taken)
        assert found is not None and found.pid == os.getpid() and found.sid == os.getsid(0)
        with (
            pytest.raises(PreflightError, match=f"port {taken} is in use by pid {os.getpid()}"),
            claim_block((taken,), holder="me"),
        ):
            pass


def test_a_port_reserved_by_another_run_is_refused_and_named(state: Path) -> None:
    other = other_process("port-31650")
    with pytest.raises(PreflightError, match="reserved by run night-7"), claim_block((31650,), holder="me"):
        pass
    end(other)


def test_a_port_this_process_reserved_itself_may_be_launched_on(state: Path) -> None:
    with reserve_port(holder="me", first=31660) as port, claim_block((port,), holder="me") as locks:
        assert locks == ()


@pytest.mark.parametrize("attention", [[False] * 8, [True] * 8, [True, False] * 4, [False] * 4 + [True] * 4])
def test_eight_servers_of_a_node_get_ports_that_never_meet(state: Path, attention: list[bool]) -> None:
    with contextlib.ExitStack() as stack:
        blocks = {}
        for number, dp_attention in enumerate(attention):
            port = stack.enter_context(reserve_port(holder=f"s{number}", dp_attention=dp_attention, first=31000))
            blocks[f"s{number}"] = port_block(port, dp_attention=dp_attention)
        assert port_collisions(blocks) == ()
        assert len({port for block in blocks.values() for port in block}) == sum(map(len, blocks.values()))


def test_a_derived_port_of_one_server_is_nobodys_http_port(state: Path) -> None:
    with reserve_port(holder="a", dp_attention=True, first=31000) as first:
        derived = port_block(first, dp_attention=True)[2]
        with reserve_port(holder="b", first=derived) as second:
            assert second not in port_block(first, dp_attention=True)
