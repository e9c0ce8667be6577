"""The least that a client can do: sockets in asyncio, one JSON parse an event. The bound of a load generator.

python benchmarks/raw_client.py URL REQUESTS CONCURRENCY MAX_TOKENS OUT [uvloop]
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit


class Seen:
    """One request as seen by the client; times in seconds."""

    def __init__(self) -> None:
        self.start_s = time.perf_counter()
        self.times_s: list[float] = []
        self.counts: list[int] = []
        self.correct = self.steps = 0


class Connection(asyncio.Protocol):
    """Takes the next body when the answer to the last one has ended."""

    def __init__(self, bodies: Iterator[bytes], seen: list[Seen], ended: asyncio.Event) -> None:
        self.bodies, self.seen, self.ended = bodies, seen, ended

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        body = next(self.bodies, None)
        if body is None:
            self.ended.set()
            self.transport.close()
            return
        self.buffer = b""
        self.request = Seen()
        self.seen.append(self.request)
        head = b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(head % len(body) + body)

    def data_received(self, data: bytes) -> None:
        now_s = time.perf_counter()
        *events, self.buffer = (self.buffer + data).split(b"\n\n")
        for event in events:
            start = event.find(b"data: {")
            if start >= 0:
                self.take(json.loads(event[start + 6 :])["meta_info"], now_s)
        if self.buffer.endswith(b"\r\n0\r\n\r\n"):
            self.send()

    def take(self, meta: dict, now_s: float) -> None:
        self.request.times_s.append(now_s)
        self.request.counts.append(meta["completion_tokens"])
        self.request.correct = meta.get("spec_num_correct_drafts", 0)
        self.request.steps = meta.get("spec_verify_ct", 0)


async def drive(url: str, bodies: list[bytes], concurrency: int) -> list[Seen]:
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    seen: list[Seen] = []
    waiting = iter(bodies)
    ends = [asyncio.Event() for _ in range(concurrency)]
    for end in ends:
        await loop.create_connection(lambda end=end: Connection(waiting, seen, end), parts.hostname, parts.port)
    for end in ends:
        await end.wait()
    return seen


def spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"mean": statistics.fmean(values), "p50": cuts[49], "p99": cuts[98]}


def report(seen: list[Seen]) -> dict:
    first_s, last_s = min(one.start_s for one in seen), max(one.times_s[-1] for one in seen)
    per_token, per_request = [], []
    for one in seen:
        rows = list(zip(one.times_s, one.counts, strict=True))
        for (before_s, had), (after_s, has) in pairwise(rows):
            per_token += [1e3 * (after_s - before_s) / (has - had)] * (has - had)
        if one.counts[-1] > one.counts[0]:
            per_request.append(1e3 * (one.times_s[-1] - one.times_s[0]) / (one.counts[-1] - one.counts[0]))
    tokens, steps = sum(one.counts[-1] for one in seen), sum(one.steps for one in seen)
    return {
        "completed": len(seen),
        "output_tokens": tokens,
        "output_tps": tokens / (last_s - first_s),
        "ttft_ms": spread([1e3 * (one.times_s[0] - one.start_s) for one in seen]),
        "e2e_ms": spread([1e3 * (one.times_s[-1] - one.start_s) for one in seen]),
        "tpot_ms": spread(per_request),
        "itl_ms": spread(per_token),
        "accept_length": 1 + sum(one.correct for one in seen) / steps if steps else None,
    }


def main() -> None:
    url, requests, concurrency, max_tokens, out, *loop = sys.argv[1:]
    sampling = {"max_new_tokens": int(max_tokens), "ignore_eos": True}
    bodies = [
        json.dumps({"text": f"prompt {i} of words", "sampling_params": sampling, "stream": True}).encode()
        for i in range(int(requests))
    ]
    if loop:
        import uvloop

        seen = uvloop.run(drive(url, bodies, int(concurrency)))
    else:
        seen = asyncio.run(drive(url, bodies, int(concurrency)))
    Path(out).write_text(json.dumps(report(seen)))


if __name__ == "__main__":
    main()
