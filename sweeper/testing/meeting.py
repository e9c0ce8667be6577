"""How the ranks of a fake server that spans nodes find each other, and notice when one is gone."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

KNOCK_S = 0.1
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc] Connection closed by peer"
"""What a rank of the real engine logs when another one dies."""


@asynccontextmanager
async def meeting(info: Mapping[str, Any]) -> AsyncIterator[asyncio.Event]:
    """Returns when all ranks are there; the event is set once one of them is gone. A single rank never waits."""
    ranks, rank = int(info.get("nnodes", 1)), int(info.get("node_rank", 0))
    gone = asyncio.Event()
    if ranks == 1:
        yield gone
        return
    host, _, port = str(info["dist_init_addr"]).rpartition(":")
    together = _host(host, int(port), ranks - 1) if rank == 0 else _join(host, int(port))
    readers, writers, listener = await together
    watches = [asyncio.create_task(_until_gone(reader, gone)) for reader in readers]
    try:
        yield gone
    finally:
        for watch in watches:
            watch.cancel()
        for writer in writers:
            writer.close()
        if listener is not None:
            listener.close()


_Together = tuple[list[asyncio.StreamReader], list[asyncio.StreamWriter], asyncio.Server | None]


async def _host(host: str, port: int, others: int) -> _Together:
    readers: list[asyncio.StreamReader] = []
    writers: list[asyncio.StreamWriter] = []
    all_there = asyncio.Event()

    def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        readers.append(reader)
        writers.append(writer)
        if len(readers) == others:
            all_there.set()

    listener = await asyncio.start_server(joined, host, port)
    await all_there.wait()
    for writer in writers:
        writer.write(b"all there\n")
    return readers, writers, listener


async def _join(host: str, port: int) -> _Together:
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            await reader.readline()
            return [reader], [writer], None
        await asyncio.sleep(KNOCK_S)


async def _until_gone(reader: asyncio.StreamReader, gone: asyncio.Event) -> None:
    with suppress(OSError):
        while await reader.read(64):
            pass
    gone.set()
