"""The fake server's connections: HTTP/1.1 in, scripted generations out, and what really happened written down."""

import asyncio
import json
import os
import signal
import socket
import struct
import time
from dataclasses import dataclass
from typing import IO, Any, cast, get_args

from sweeper.testing.generation import Generation, Route, Script, event, parse_generation

_SHAPES = 64
"""Different schedules of answers that are sent at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """How the process lives, apart from its answers."""

    ready_after_s: float
    fail_start: str | None
    hang_start: bool
    die_after: int | None
    hang_after: int | None
    max_running: int
    ignore_term: bool
    children: int
    priority: int = 0
    """Of the process, where that is allowed: negative where its own times must not wait for a core."""


class FakeServer:
    """State of one server."""

    def __init__(self, script: Script, life: Life, info: dict[str, Any], truth: IO[str] | None) -> None:
        self.script = script
        self.life = life
        self.info = info
        self.truth = truth
        self.requests = 0
        self.running = 0
        self.waiting: list[Answer] = []
        self.seen: set[str] = set()
        self.steps = self.correct = 0
        self.at_once: dict[tuple[Route, int, bool, int], tuple[Generation, bytes]] = {}

    def begin(self, answer: "Answer") -> None:
        if self.running < self.life.max_running:
            self.running += 1
            answer.prefill()
        else:
            self.waiting.append(answer)

    def end(self, answer: "Answer", status: str) -> None:
        if answer in self.waiting:
            self.waiting.remove(answer)
        else:
            self.running -= 1
            if self.waiting:
                self.running += 1
                self.waiting.pop(0).prefill()
        made = answer.made
        self.steps += made.steps
        self.correct += made.correct
        if self.truth is not None:
            record = {
                "number": made.number,
                "route": made.route,
                "status": status,
                "fault": made.fault.kind if made.fault else None,
                "arrival_s": answer.arrival_s,
                "chunk_s": answer.chunk_s,
                "chunk_tokens": made.chunk_tokens,
                "prompt": made.prompt,
                "prompt_tokens": made.prompt_tokens,
                "output_tokens": made.sent,
                "steps": made.steps,
                "correct": made.correct,
            }
            self.truth.write(json.dumps(record) + "\n")

    def answer_to(self, method: str, path: str) -> tuple[int, bytes]:
        """The routes without generation."""
        if path in ("/health", "/health_generate", "/ready"):
            return 200, b""
        if path in ("/server_info", "/get_server_info"):
            return 200, json.dumps({**self.info, "internal_states": [self._internal()]}).encode()
        if path in ("/model_info", "/get_model_info"):
            return 200, json.dumps({key: self.info[key] for key in ("model_path", "served_model_name")}).encode()
        if path == "/v1/models":
            return 200, json.dumps({"data": [{"id": self.info["served_model_name"], "object": "model"}]}).encode()
        if path == "/flush_cache":
            if self.running or self.waiting:
                return 400, b"Flush cache failed: requests are running."
            self.seen.clear()
            self.steps = self.correct = 0
            return 200, b"Cache flushed."
        if path == "/truth/flush" and self.truth is not None:
            self.truth.flush()
            return 200, b""
        return 404, b'{"message":"Not Found"}'

    def _internal(self) -> dict[str, Any]:
        if not self.steps:
            return {"last_gen_throughput": 0.0}
        return {"last_gen_throughput": 0.0, "avg_spec_accept_length": 1 + self.correct / self.steps}


class Answer:
    """One generation on its way out of one connection."""

    def __init__(self, server: FakeServer, connection: "Connection", made: Generation) -> None:
        self.server, self.connection, self.made = server, connection, made
        self.loop = asyncio.get_running_loop()
        self.arrival_s = time.perf_counter()
        self.chunk_s: list[float] = []
        self.open = True
        self.headed = False
        self._due_s = 0.0

    def prefill(self) -> None:
        fault, script = self.made.fault, self.server.script
        if fault is not None and fault.kind == "status":
            self.finish(f"fault {fault.kind}")
            self.connection.reply(int(fault.at), b'{"error":{"message":"scripted fault"}}')
            return
        wait_s = script.prefill_ms / 1e3 + (fault.at if fault is not None and fault.kind == "slow-headers" else 0.0)
        if self.made.route == "/generate" and self.made.stream and fault is None:
            self._head()
        self._due_s = self.loop.time() + wait_s
        if script.asap and fault is None:
            self._all_at_once()
        else:
            self.loop.call_at(self._due_s, self._step)

    def _head(self) -> None:
        self.headed = True
        self.connection.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    def _step(self) -> None:
        if not self.open:
            return
        self.made.advance()
        if self.made.misbehaves_now():
            self._misbehave()
            return
        if self.made.stream and self.made.chunk_due():
            self._send(self.made.chunk())
        if self.made.finished:
            self._done()
            return
        self._due_s += self.server.script.step_s()
        self.loop.call_at(self._due_s, self._step)

    def _all_at_once(self) -> None:
        """Cached by shape: where a client's speed is measured, the server must cost less than the client."""
        shape = (self.made.route, self.made.total, self.made.stream, self.made.number % _SHAPES)
        known = self.server.at_once.get(shape)
        if known is None:
            known = self.server.at_once[shape] = self.made, self._whole_stream()
        like, data = known
        self.made.repeat(like)
        self.chunk_s = [time.perf_counter()] * len(self.made.chunk_tokens)
        if self.made.stream:
            if not self.headed:
                self._head()
            self.connection.write(data)
        self._done()

    def _whole_stream(self) -> bytes:
        data = b""
        while not self.made.finished:
            self.made.advance()
            if self.made.stream and self.made.chunk_due():
                data += framed(self.made.chunk())
        return data

    def _send(self, data: bytes) -> None:
        if not self.headed:
            self._head()
        self.chunk_s.append(time.perf_counter())
        fault = self.made.fault
        if fault is not None and fault.kind == "fragments":
            half = len(data) // 2
            self.connection.write(framed(data[:half])[:-3])
            self.connection.write(framed(data[:half])[-3:] + framed(data[half:]))
        else:
            self.connection.write(framed(data))

    def _done(self) -> None:
        self.finish("ok")
        if self.made.stream:
            self.connection.write(b"0\r\n\r\n")
            self.connection.next()
        else:
            self.connection.reply(200, json.dumps(self.made.whole()).encode())

    def _misbehave(self) -> None:
        fault = self.made.fault
        assert fault is not None
        if not self.headed:
            self._head()
        if fault.kind == "stall":
            self.finish("fault stall")
            return
        if fault.kind in ("error", "abort"):
            said: dict[str, Any] = {"error": {"message": "scripted error", "code": 500}}
            if fault.kind == "abort":
                said = self._abort()
            self.connection.write(framed(event(said) + b"data: [DONE]\n\n") + b"0\r\n\r\n")
            self.finish(f"fault {fault.kind}")
            self.connection.next()
            return
        self.finish(f"fault {fault.kind}")
        self.connection.end(reset=fault.kind == "drop")

    def _abort(self) -> dict[str, Any]:
        if self.made.route == "/generate":
            meta = {**self.made.meta(self.made.sent), "finish_reason": {"type": "abort", "message": "scripted abort"}}
            return {"text": "", "output_ids": [], "meta_info": meta}
        return {"choices": [{"index": 0, "text": "", "delta": {}, "finish_reason": "abort"}]}

    def finish(self, status: str) -> None:
        if self.open:
            self.open = False
            self.server.end(self, status)


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Connection(asyncio.Protocol):
    """One keep-alive connection, one request at a time."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.buffer = b""
        self.answer: Answer | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.answer is not None:
            self.answer.finish("client gone")

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.answer is None:
            self._serve()

    def _serve(self) -> None:
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        lines = self.buffer[:end].decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        size = end + 4 + int(headers.get("content-length", 0))
        if len(self.buffer) < size:
            return
        body, self.buffer = self.buffer[end + 4 : size], self.buffer[size:]
        method, target, _ = lines[0].split(" ", 2)
        path = target.partition("?")[0]
        if path in get_args(Route):
            self._generate(cast(Route, path), body)
        else:
            self.reply(*self.server.answer_to(method, path))

    def _generate(self, route: Route, body: bytes) -> None:
        server, life = self.server, self.server.life
        server.requests += 1
        if life.die_after is not None and server.requests > life.die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            made = parse_generation(route, body, server.requests - 1, server.script)
        except (ValueError, TypeError) as error:
            self.reply(400, json.dumps({"error": {"message": str(error)}}).encode())
            return
        made.cached_tokens = made.prompt_tokens - 1 if made.prompt in server.seen else 0
        server.seen.add(made.prompt)
        if life.hang_after is None or server.requests <= life.hang_after:
            self.answer = Answer(server, self, made)
            server.begin(self.answer)

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def reply(self, status: int, body: bytes) -> None:
        self.write(b"HTTP/1.1 %d %b\r\ncontent-length: %d\r\n\r\n%b" % (status, b"OK", len(body), body))
        self.next()

    def next(self) -> None:
        self.answer = None
        if self.buffer:
            asyncio.get_running_loop().call_soon(self._serve)

    def end(self, *, reset: bool) -> None:
        self.answer = None
        if reset:
            no_linger = struct.pack("ii", 1, 0)  # closing then sends RST instead of FIN
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
            self.transport.abort()
        else:
            self.transport.close()
