"""The experiment file as a value: what the user asks for, before any planning.

Keys below `server.args` and `speculative` are SGLang's own flag names with `_` for `-`. The docstrings under the
fields are the descriptions in the JSON Schema (`sweeper schema`).
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FlagValue = bool | int | float | str | list[Any] | dict[str, Any] | None
"""true: flag present; false or null: absent; list: several values; map: JSON."""

MOST_PROMPTS = 1_000_000
MOST_CONCURRENT = 100_000
MOST_TOKENS = 10_000_000
SLOWEST_RATE_RPS = 0.001
LONGEST_RAMP_S = 86_400.0
LONGEST_WAIT_S = 604_800.0
LONGEST_BUDGET_MIN = 525_600.0
"""Beyond these a number is a slip of the pen that would never end or eat the memory."""


class Strict(BaseModel):
    """Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Engine(Strict):
    """Which engine runs, and how its process is started."""

    kind: Literal["sglang"] = "sglang"
    """The serving engine."""
    device: Literal["cuda", "cpu"] = "cuda"
    """`cuda`: NVIDIA GPUs. `cpu`: the same engine on any CPU, with Sweeper's stand-in for its native kernels."""
    python: str | None = None
    """Interpreter that has SGLang; default: the one running Sweeper."""
    command_prefix: list[str] = []
    """Words put before the interpreter, e.g. a container runner or `numactl`."""
    version: str | None = None
    """Plan for this engine version instead of the installed one."""
    ready_timeout_s: float = Field(1800, gt=0, le=LONGEST_WAIT_S)
    """Seconds from the start of the process to its first real answer; loading a large model takes many minutes."""


class Server(Strict):
    """The target and every knob that all arms share, the baseline included."""

    model_path: str
    """Folder or hub id of the target model; `toy:target` is the tiny model that ships with Sweeper."""
    args: dict[str, FlagValue] = {}
    """Any flag of `sglang.launch_server` under its own name: {tp_size: 8, mem_fraction_static: 0.85}. true: present,
    false or null: absent, list: several values, map: JSON."""
    env: dict[str, str] = {}
    """Environment variables of the server. SGLANG_* of your shell are not passed on; write here what you need."""
    target_config: Path | None = None
    """config.json of the target, so that `plan` works on a machine without the weights."""


class SpecPoint(Strict):
    """One arm of `speculative.configs`, written as a map instead of `3-1-4`."""

    name: str | None = Field(None, min_length=1, max_length=60)
    """Label of the arm. A named arm is never merged with another, so two names of one thing make an A/A test."""
    algorithm: str | None = None
    """Overrides `speculative.algorithm`."""
    draft_model_path: str | None = None
    """Overrides `speculative.draft_model_path`."""
    num_steps: int | None = Field(None, ge=1)
    """Length of the draft's chain (depth of its tree)."""
    eagle_topk: int | None = Field(None, ge=1)
    """Branches per draft step; 1 is a chain."""
    num_draft_tokens: int | Literal["auto"] | None = None
    """Tokens verified at once, the root included. `auto`: num_steps + 1, for chains only."""
    aux_layer_ids: list[int] | None = None
    """Target layers whose hidden states feed an EAGLE3 draft, as its config.json would name them; default: its own."""
    args: dict[str, FlagValue] = {}
    """Further speculative-* flags of this arm, without the prefix."""
    expect: str | None = None
    """A failure class or doctor finding that belongs to the story: then the arm is tried and the failure is fine."""


class SpecGrid(Strict):
    """Every combination of the lists becomes an arm, unless illegal, duplicate or excluded."""

    num_steps: list[Annotated[int, Field(ge=1)]] = []
    """Lengths of the draft's chain (depths of its tree)."""
    eagle_topk: list[Annotated[int, Field(ge=1)]] = [1]
    """Branches per draft step; 1 is a chain."""
    num_draft_tokens: list[int | Literal["auto"]] = ["auto"]
    """Tokens verified at once, the root included. `auto`: num_steps + 1, for chains only."""
    aux_layer_ids: list[list[int]] = []
    """Lists of target layers for an EAGLE3 draft; each gets a copy of the draft with its own config.json."""


class Speculative(Strict):
    """What is swept. `configs` and `grid` unite."""

    algorithm: str = "EAGLE3"
    """EAGLE3, EAGLE (NEXTN), STANDALONE, NGRAM, DFLASH, … as SGLang names them."""
    draft_model_path: str | None = None
    """Folder or hub id of the draft; `toy:draft` ships with Sweeper."""
    draft_config: Path | None = None
    """config.json of the draft, so that `plan` works on a machine without the weights."""
    configs: list[str | SpecPoint] = []
    """Arms: `3-1-4` is num_steps-eagle_topk-num_draft_tokens, `auto` leaves the three to the engine; or a map."""
    grid: SpecGrid | None = None
    """Lists whose combinations become arms."""
    exclude: list[dict[str, Any]] = []
    """Points to leave out: each map names keys and values that a point must all have; a list means any of them."""
    args: dict[str, FlagValue] = {}
    """Further speculative-* flags of all arms, without the prefix."""


class Baseline(Strict):
    """Overrides of the automatic non-speculative baseline. It is matched in every other knob."""

    args: dict[str, FlagValue] = {}
    """Flags that only the baseline gets; what differs from the arms is said in the plan and the report."""
    env: dict[str, str] = {}
    """Environment variables that only the baseline gets."""
    expect: str | None = None
    """A failure class that belongs to the story."""


class Arrival(Strict):
    """When requests are sent."""

    kind: Literal["closed", "constant", "poisson", "burst"] = "closed"
    """`closed`: `concurrency` workers, each sends when its last answer ended. The others are open loops."""
    rate_rps: float | None = Field(None, ge=SLOWEST_RATE_RPS, allow_inf_nan=False)
    """Requests per second of constant and poisson."""
    ramp_s: float = Field(0, ge=0, le=LONGEST_RAMP_S)
    """Seconds over which the load rises to its full level."""


GREEDY_TOP_P = 0.01
"""Below it only the likeliest token is left."""


def greedy_by(*, top_p: float | None, top_k: int | None) -> str | None:
    """What makes sampling greedy at any temperature, in words; None: nothing does."""
    if top_k == 1:
        return "top_k 1"
    return f"top_p {top_p:g}" if top_p is not None and top_p < GREEDY_TOP_P else None


class Workload(Strict):
    """The load that every arm gets, prompt for prompt."""

    prompts: str = "builtin:code"
    """builtin:NAME, toy:NAME, random:LO:HI, or a path (relative to this file)."""
    num_prompts: int = Field(64, ge=1, le=MOST_PROMPTS)
    """Requests per measurement. At least 8 × concurrency gives a steady window."""
    max_tokens: int = Field(512, ge=1, le=MOST_TOKENS)
    """Longest answer in tokens."""
    temperature: float = Field(0, ge=0, allow_inf_nan=False)
    """0 is greedy: outputs can then be compared with the baseline's."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Nucleus sampling."""
    top_k: int | None = None
    """Sampling from the k likeliest tokens."""
    stop: list[str] = []
    """Strings that end an answer."""
    ignore_eos: bool = False
    """true: every answer has exactly `max_tokens`; acceptance after the natural end is not representative."""
    chat_template: Literal["auto", "none"] = "auto"
    """`auto`: the tokenizer's own template, if it has one."""
    chat_template_kwargs: dict[str, Any] = {}
    """Arguments of the chat template, e.g. {enable_thinking: false}."""
    endpoint: Literal["generate", "completions", "chat"] = "generate"
    """SGLang's own route, or the OpenAI-compatible ones."""
    concurrency: list[Annotated[int, Field(ge=1, le=MOST_CONCURRENT)]] = Field([1, 8, 32], min_length=1)
    """Load points: every arm is measured at each."""
    arrival: Arrival = Arrival()
    """When requests are sent; default: a closed loop."""
    request_timeout_s: float = Field(600, gt=0, le=LONGEST_WAIT_S)
    """Seconds after which a request counts as failed."""
    stall_timeout_s: float = Field(120, gt=0, le=LONGEST_WAIT_S)
    """No byte for this many seconds is a hang."""
    seed: int = 1
    """Of the choice and order of prompts and of random arrivals."""


class Run(Strict):
    """How the measurements are ordered and what happens when one fails."""

    starts: int = Field(2, ge=1, le=1_000)
    """Server starts per arm. With 1, start-to-start noise is unseen and every claim says so."""
    repeats: int = Field(4, ge=1, le=1_000)
    """Measurements per start and load point."""
    order: Literal["mirrored", "given"] = "mirrored"
    """`mirrored`: A B C … C B A over the starts, so that drift cancels; with one start the baseline runs twice."""
    parallel: Literal["exclusive", "packed"] = "exclusive"
    """`packed`: groups run side by side on free GPUs; they then share the host's memory bandwidth, power and PCIe."""
    doctor: Literal["error", "warn", "off"] = "error"
    """What a doctor error about the draft does: skip the arm, warn, or not look."""
    on_failure: Literal["continue", "stop"] = "continue"
    """After a failed trial."""
    lossy: Literal["bar", "rank"] = "bar"
    """What becomes of an arm whose greedy answers are truly not the baseline's: it may not win, or it may, with the
    warning beside it."""
    budget_min: float | None = Field(None, gt=0, le=LONGEST_BUDGET_MIN)
    """Minutes after which no further server is started; what is left is `skipped: budget`."""


class Experiment(Strict):
    """A Sweeper experiment: which configurations of one model are compared, under which load."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")
    """Names the results folder: letters, digits, `.`, `_`, `-`."""
    engine: Engine = Engine()
    server: Server
    speculative: Speculative = Speculative()
    baseline: Baseline = Baseline()
    workload: Workload = Workload()
    run: Run = Run()
    sweep: dict[str, list[Any]] = {}
    """Further axes: dotted path of a key in server, speculative, baseline or engine to a list of its values, e.g.
    {server.args.attention_backend: [fa3, triton]}."""
