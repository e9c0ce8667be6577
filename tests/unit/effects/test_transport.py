import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sweeper.effects.timestamps import arrival_of
from sweeper.effects.transport import Capture, LeanChannel, Limits, Request, endless, watch

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"


@asynccontextmanager
async def answering(answer: Answer, *, stall_s: float = 5.0) -> AsyncIterator[LeanChannel]:
    """A channel to a server that treats each connection by `answer`."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    limits = Limits(request_s=10.0, stall_s=stall_s)
    channel = LeanChannel(f"http://127.0.0.1:{port}", "/generate", headers={"x-test": "1"}, limits=limits)
    watching = asyncio.create_task(watch([channel]))
    try:
        yield channel
    finally:
        watching.cancel()
        channel.close()
        server.close()


async def ask(channel: LeanChannel, body: bytes = b"{}") -> Capture:
    return await channel.exchange(Request(body=body, max_tokens=16))


def kind(capture: Capture) -> str | None:
    failure = capture.reply().failure
    return failure.kind if failure else None


async def test_a_connection_is_used_again_and_opened_anew_when_the_server_closes_it():
    connections = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        for number in range(2):
            await reader.readuntil(b"{}")
            closing = b"connection: close\r\n" if number else b""
            writer.write(WHOLE + closing + b"\r\nok")
        writer.close()

    async with answering(answer) as channel:
        for _ in range(4):
            capture = await ask(channel)
            assert (capture.reply().status, kind(capture)) == (200, None)
    assert len(connections) == 2


async def test_a_connection_that_the_server_closed_while_idle_is_no_error():
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(WHOLE + b"\r\nok")
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with answering(answer) as channel:
        first = await ask(channel)
        await closed.wait()
        second = await ask(channel)
    assert (kind(first), kind(second)) == (None, None)


async def test_an_answer_that_is_no_http_is_garbage():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"220 mail.example ESMTP ready\r\n\r\n")

    async with answering(answer) as channel:
        assert kind(await ask(channel)) == "garbage"


async def test_a_body_without_length_ends_with_the_connection():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\ndata: x\n\n")
        writer.close()

    async with answering(answer) as channel:
        capture = await ask(channel)
    assert kind(capture) is None
    assert b"".join(data for _, data in capture.reply().body) == b"data: x\n\n"


async def test_a_server_that_says_nothing_is_given_up_and_the_next_request_has_a_new_connection():
    seen = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"{}"))
        if len(seen) > 1:
            writer.write(WHOLE + b"\r\nok")

    async with answering(answer, stall_s=0.1) as channel:
        assert kind(await ask(channel)) == "stall"
        assert kind(await ask(channel)) is None


async def test_the_request_is_http_with_the_callers_headers_and_the_length_of_its_body():
    seen = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"}"))
        writer.write(WHOLE + b"\r\nok")

    async with answering(answer) as channel:
        await ask(channel, b'{"a": 1}')
    head, _, body = seen[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /generate HTTP/1.1"
    assert {b"x-test: 1", b"content-length: 8", b"content-type: application/json"} < set(lines)
    assert body == b'{"a": 1}'


def test_an_answer_is_endless_by_its_count_or_without_counts_by_its_reads():
    assert not endless([], 10)
    assert not endless([(1, b'{"completion_tokens": 60}')], 10)
    assert endless([(1, b'{"completion_tokens":1}'), (2, b'{"completion_tokens": 99}')], 10)
    assert not endless([(i, b"data: x") for i in range(200)], 10)
    assert endless([(i, b"data: x") for i in range(400)], 10)


def test_without_a_credible_stamp_of_the_kernel_bytes_arrived_now():
    before = arrival_of([])
    old = arrival_of([(1, 35, b"\x00" * 16)])  # 1970
    after = arrival_of([(41, 8, b"\x00" * 16)])  # another message
    assert before <= old <= after
