"""`sweeper bench`: load on a running server, with the same engine of numbers as `sweeper run`."""

import asyncio
import errno
import json
import os
import random
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import click

from sweeper.cli.numbers import Finite
from sweeper.core.experiment import (
    LONGEST_RAMP_S,
    MOST_CONCURRENT,
    MOST_PROMPTS,
    MOST_TOKENS,
    SLOWEST_RATE_RPS,
    Workload,
)
from sweeper.core.plain import plain, sendable
from sweeper.core.sample import PromptSet, SpecCounters
from sweeper.core.trial import LoadPoint
from sweeper.engine.counters import counted_between, prometheus_counters
from sweeper.errors import ConfigError, PreflightError
from sweeper.execution.loadgen import ClientKind, Load, LoadTarget
from sweeper.execution.shards import drive_blocking, shard_count

LONGEST_WAIT_S = 7 * 86_400.0


class Bounds(click.ParamType[tuple[int, int]]):
    """LO:HI, or one number for both."""

    name = "LO:HI"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", str(value))
        low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= low <= high <= MOST_TOKENS:
            self.fail(f"{value!r} is not LO:HI with 1 ≤ LO ≤ HI ≤ {MOST_TOKENS}", param, ctx)
        return low, high


class Sendable(click.ParamType[str]):
    """Text that a request can hold."""

    name = "TEXT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not sendable(str(value)):
            self.fail(f"{value!r} is not UTF-8 text", param, ctx)
        return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line said. Names are those of the options."""

    url: str
    endpoint: Literal["generate", "completions", "chat"]
    num_prompts: int
    concurrency: int
    request_rate: float | None
    arrival: Literal["closed", "constant", "poisson", "burst"] | None
    ramp_s: float
    prompts: str | None
    input_tokens: tuple[int, int]
    output_tokens: tuple[int, int] | None
    max_tokens: int
    tokenizer: Path | None
    chat_template: Literal["auto", "none"]
    chat_template_kwargs: str
    model: str | None
    temperature: float
    top_p: float | None
    top_k: int | None
    stop: tuple[str, ...]
    ignore_eos: bool
    seed: int
    warmup: int
    client: ClientKind
    shards: int | None
    request_timeout_s: float
    stall_timeout_s: float
    give_up_late_s: float
    out: Path | None
    as_json: bool


@click.command()
@click.argument("url")
@click.option(
    "--endpoint", type=click.Choice(["generate", "completions", "chat"]), default="generate", show_default=True
)
@click.option("--num-prompts", type=click.IntRange(1, MOST_PROMPTS), default=64, show_default=True)
@click.option(
    "--concurrency",
    type=click.IntRange(1, MOST_CONCURRENT),
    default=8,
    show_default=True,
    help="Most requests in flight.",
)
@click.option("--request-rate", type=Finite(SLOWEST_RATE_RPS), help="Requests a second; an open loop.")
@click.option("--arrival", type=click.Choice(["closed", "constant", "poisson", "burst"]), help="[poisson with a rate]")
@click.option("--ramp-s", type=Finite(0, LONGEST_RAMP_S), default=0.0, help="Seconds until the full load.")
@click.option("--prompts", help="builtin:NAME, toy:NAME, random:LO:HI or a file.")
@click.option("--input-tokens", type=Bounds(), default="32:128", show_default=True, help="Words of random prompts.")
@click.option("--output-tokens", type=Bounds(), help="max_tokens of each request, drawn evenly.")
@click.option("--max-tokens", type=click.IntRange(1, MOST_TOKENS), default=256, show_default=True)
@click.option(
    "--tokenizer",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder whose chat template is applied.",
)
@click.option("--chat-template", type=click.Choice(["auto", "none"]), default="auto", show_default=True)
@click.option("--chat-template-kwargs", default="{}", help='JSON, e.g. {"enable_thinking": false}.')
@click.option("--model", type=Sendable(), help="Name for the OpenAI routes; asked from the server when not given.")
@click.option("--temperature", type=Finite(0), default=0.0, show_default=True)
@click.option("--top-p", type=Finite(0, 1, min_open=True))
@click.option("--top-k", type=int)
@click.option("--stop", type=Sendable(), multiple=True)
@click.option("--ignore-eos", is_flag=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--warmup", type=click.IntRange(0, MOST_PROMPTS), default=0, help="Requests before, not measured.")
@click.option("--client", type=click.Choice(["lean", "httpx"]), default="lean", help="httpx: behind a proxy.")
@click.option("--shards", type=click.IntRange(1, 256), help="Processes; by default one up to 1,024 connections.")
@click.option("--request-timeout-s", type=Finite(0, LONGEST_WAIT_S, min_open=True), default=600.0, show_default=True)
@click.option("--stall-timeout-s", type=Finite(0, LONGEST_WAIT_S, min_open=True), default=30.0, show_default=True)
@click.option(
    "--give-up-late-s", type=Finite(0, LONGEST_WAIT_S, min_open=True), default=30.0, help="Open loop: stop when late."
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the report here.")
@click.option("--json", "as_json", is_flag=True, help="Print the report.")
def command(**given: Any) -> int:
    """Drive load at the server at URL and report what it did.

    Works with SGLang and with any OpenAI-compatible server. The key of a protected one is taken from the variable
    SWEEPER_API_KEY. Exit code 1: a request failed.
    """
    options = Options(**given)
    _check_writable(options.out)
    load = _load(options)
    report = _measured(options, load)
    if options.out is not None:
        _write(options.out, report)
    if options.as_json:
        click.echo(json.dumps(report))
    else:
        click.echo(plain(_told(report)))
    return 0 if report["completed"] == report["requests"] else 1


def _load(options: Options) -> Load:
    workload = Workload(
        prompts=options.prompts or "random:{}:{}".format(*options.input_tokens),
        num_prompts=options.num_prompts,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        stop=list(options.stop),
        ignore_eos=options.ignore_eos,
        chat_template=options.chat_template,
        chat_template_kwargs=_json_object(options.chat_template_kwargs),
        endpoint=options.endpoint,
        concurrency=[options.concurrency],
        request_timeout_s=options.request_timeout_s,
        stall_timeout_s=options.stall_timeout_s,
        seed=options.seed,
    )
    arrival = options.arrival or ("poisson" if options.request_rate else "closed")
    if arrival in ("constant", "poisson") and not options.request_rate:
        raise ConfigError(f"--arrival {arrival} needs --request-rate")
    if arrival == "closed" and options.request_rate:
        raise ConfigError("--request-rate has no meaning in a closed loop; leave out --arrival closed")
    return Load(
        target=LoadTarget(base_url=_base_url(options.url), model=_model(options), api_key=_api_key()),
        prompts=_prompts(options, workload),
        workload=workload,
        point=LoadPoint(
            concurrency=options.concurrency, arrival=arrival, rate_rps=options.request_rate, ramp_s=options.ramp_s
        ),
        client=options.client,
        give_up_late_s=options.give_up_late_s,
    )


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"--chat-template-kwargs {text!r}: write a JSON object")
    return value


def _base_url(url: str) -> str:
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        named = (parts.hostname or "").encode("idna") and parts.port != 0  # both raise ValueError of what is no name
    except ValueError:
        named = False
    if not named or parts.scheme not in ("http", "https") or not url.isprintable() or " " in url:
        raise ConfigError(f"{url!r} is no URL of a server; write http://HOST:PORT")
    return parts.geturl().rstrip("/")


def _api_key() -> str | None:
    return os.environ.get("SWEEPER_API_KEY") or None


def _model(options: Options) -> str:
    """The OpenAI routes want a name; the server knows its own."""
    if options.model or options.endpoint == "generate":
        return options.model or "default"
    listed = asyncio.run(_ask(_base_url(options.url), "/v1/models")) or {}
    names = [model.get("id") for model in listed.get("data", []) if isinstance(model, dict)]
    if not names:
        raise PreflightError(f"{options.url} lists no model at /v1/models; name it with --model")
    return str(names[0])


async def _ask(base_url: str, path: str) -> dict[str, Any] | None:
    """One control call; None when the server does not know it."""
    from sweeper.effects.http import ControlClient

    async with ControlClient(base_url, api_key=_api_key()) as client:
        try:
            return await client.get_json(path, timeout_s=10.0)
        except OSError:
            return None


def _prompts(options: Options, workload: Workload) -> PromptSet:
    from sweeper.effects.prompts import load_prompts

    prompts = load_prompts(workload, tokenizer_dir=options.tokenizer)
    if options.output_tokens is None:
        return prompts
    draw = random.Random(options.seed)  # noqa: S311
    low, high = options.output_tokens
    limited = tuple(replace(prompt, max_tokens=draw.randint(low, high)) for prompt in prompts.prompts)
    return replace(prompts, prompts=limited)


def _measured(options: Options, load: Load) -> dict[str, Any]:
    shards = options.shards or shard_count(options.concurrency)
    try:
        flush = _warm_up(options, load)
        before = asyncio.run(_draft_counters(load.target.base_url))
        outcome = drive_blocking(replace(load, num_prompts=options.num_prompts), shards=shards)
    except OSError as error:
        remedy = "raise `ulimit -n`" if error.errno == errno.EMFILE else "is the server running there?"
        raise PreflightError(f"cannot reach {load.target.base_url}: {error}; {remedy}") from None
    from sweeper.present.bench_report import bench_report

    info = asyncio.run(_ask(load.target.base_url, "/server_info"))
    counted = counted_between(before, asyncio.run(_draft_counters(load.target.base_url)))
    return bench_report(replace(outcome, flush=flush), load.prompts, load.workload, load.point, info, counted)


async def _draft_counters(base_url: str) -> SpecCounters | None:
    """Lifetime counters of a server that tells none with its answers."""
    from sweeper.effects.http import ControlClient

    async with ControlClient(base_url, api_key=_api_key()) as client:
        try:
            status, text = await client.get("/metrics")
        except OSError:
            return None
    return prometheus_counters(text) if status == 200 else None


def _warm_up(options: Options, load: Load) -> str:
    """The warm-up sends the same prompts: without a flush the load would find them all in the prefix cache."""
    if not options.warmup:
        return "not asked"
    drive_blocking(replace(load, num_prompts=options.warmup, point=LoadPoint(concurrency=options.concurrency)))
    return asyncio.run(_flush(load.target.base_url))


async def _flush(base_url: str) -> str:
    from sweeper.effects.http import ControlClient

    async with ControlClient(base_url, api_key=_api_key()) as client:
        try:
            status, text = await client.post("/flush_cache", timeout_s=10.0)
        except OSError as error:
            return f"not flushed: {error}"
    return "flushed" if status == 200 else f"not flushed: HTTP {status}: {client.quoted(text)}"


def _check_writable(path: Path | None) -> None:
    """Before the load, not after it."""
    if path is not None and not (path.parent.is_dir() and os.access(path if path.exists() else path.parent, os.W_OK)):
        raise PreflightError(f"cannot write {path}: the folder is not there or not writable")


def _write(path: Path, report: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise PreflightError(f"cannot write {path}: {error}") from None


def _told(report: dict[str, Any]) -> str:
    from sweeper.present.bench_report import bench_text

    return bench_text(report)
