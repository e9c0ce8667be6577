import asyncio
import socket
import threading

import pytest

from sweeper.errors import ClusterLost, PreflightError
from sweeper.execution import ray_address
from sweeper.execution.ray_address import answers, probe, short_temp_dir, until_gone, while_it_answers, why_not

SESSION = "/ray/session_2026-11-30_03-46-31_163746_4194304/sockets/plasma_store"
"""What Ray puts below its temporary folder, with the longest process id."""


def test_a_ray_of_our_own_stays_in_the_temporary_folder_as_long_as_its_sockets_fit() -> None:
    longest = "/" + "t" * (107 - len(SESSION) - 1)
    assert len(longest + SESSION) == 107
    assert short_temp_dir({}) is None
    assert short_temp_dir({"TMPDIR": longest}) is None
    assert short_temp_dir({"TMPDIR": longest + "t"}) == "/tmp/ray"


@pytest.mark.parametrize(
    ("environ", "moved"),
    [
        ({"RAY_TMPDIR": "/r", "TMPDIR": "/" + "t" * 80}, False),
        ({"RAY_TMPDIR": "/" + "r" * 80, "TMPDIR": "/t"}, True),
        ({"TMPDIR": "/" + "ü" * 30}, True),
        ({"TMPDIR": "/ü"}, True),
        ({"TMPDIR": "/it's"}, True),
        ({"TMPDIR": "/a b"}, False),
    ],
)
def test_rays_own_variable_comes_first_and_bytes_count(environ: dict[str, str], moved: bool) -> None:
    assert (short_temp_dir(environ) is not None) is moved


def test_a_port_that_is_no_number_is_left_to_rays_own_words() -> None:
    probe("127.0.0.1:²")


@pytest.mark.parametrize("host", ["x" * 300, "a..b"])
def test_a_host_that_can_have_no_such_name_is_one_line(host: str) -> None:
    with pytest.raises(PreflightError, match="no Ray cluster answers there"):
        probe(f"{host}:6379")


async def test_a_head_answers_until_nobody_takes_a_connection_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_address, "HEAD_EVERY_S", 0.01)
    head = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    address = f"127.0.0.1:{head.sockets[0].getsockname()[1]}"
    assert await answers(address)
    waiting = asyncio.create_task(until_gone(address))
    head.close()
    await asyncio.wait_for(waiting, 20)
    assert not await answers(address)


def test_a_ray_that_does_not_start_says_what_it_needs() -> None:
    told = why_not(None, TimeoutError("Timed out waiting for file /tmp/ray/gcs_server_port"), version="2")
    assert told.startswith("Ray did not start: Timed out waiting for file")
    assert "room in" in told and "ulimit -n" in told


async def test_a_call_that_waits_for_a_dead_head_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ray waits when its head dies between our look and its question."""
    monkeypatch.setattr(ray_address, "HEAD_EVERY_S", 0.01)
    never = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        assert await while_it_answers(address, lambda: "nodes") == "nodes"
        waiting = asyncio.create_task(while_it_answers(address, never.wait))
        await asyncio.sleep(0)
    with pytest.raises(ClusterLost, match="head is gone; run the same command again"):
        await waiting
    never.set()


async def test_what_a_call_to_the_head_raises_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ValueError("no such node")

    with socket.create_server(("127.0.0.1", 0)) as head, pytest.raises(ValueError, match="no such node"):
        await while_it_answers(f"127.0.0.1:{head.getsockname()[1]}", refuse)
