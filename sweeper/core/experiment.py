"""The experiment file as a value: what the user asks for, before any planning.

Keys below `server.args` and `speculative` are SGLang's own flag names with `_` for `-`.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FlagValue = bool | int | float | str | list[Any] | dict[str, Any] | None
"""true: flag present; false or null: absent; list: several values; map: JSON."""


class Strict(BaseModel):
    """Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Engine(Strict):
    """Which engine runs, and how its process is started."""

    kind: Literal["sglang"] = "sglang"
    device: Literal["cuda", "cpu"] = "cuda"
    python: str | None = Field(None, description="Interpreter that has SGLang; default: the one running Sweeper.")
    command_prefix: list[str] = Field([], description="Put before the interpreter, e.g. a container runner.")
    version: str | None = Field(None, description="Plan for this engine version instead of the installed one.")
    ready_timeout_s: float = Field(1800, gt=0)


class Server(Strict):
    """The target and every knob that all arms share."""

    model_path: str
    args: dict[str, FlagValue] = {}
    env: dict[str, str] = {}
    target_config: Path | None = Field(
        None, description="config.json of the target, so that plan works without weights."
    )


class SpecPoint(Strict):
    """One arm of `speculative.configs`, written as a map instead of `3-1-4`."""

    name: str | None = None
    algorithm: str | None = None
    draft_model_path: str | None = None
    num_steps: int | None = Field(None, ge=1)
    eagle_topk: int | None = Field(None, ge=1)
    num_draft_tokens: int | Literal["auto"] | None = None
    aux_layer_ids: list[int] | None = None
    args: dict[str, FlagValue] = Field({}, description="Further speculative-* flags of this arm, without the prefix.")
    expect: str | None = Field(None, description="A failure class or doctor finding that belongs to the story.")


class SpecGrid(Strict):
    """Every combination of the lists becomes an arm, unless illegal, duplicate or excluded."""

    num_steps: list[int] = []
    eagle_topk: list[int] = [1]
    num_draft_tokens: list[int | Literal["auto"]] = ["auto"]
    aux_layer_ids: list[list[int]] = []


class Speculative(Strict):
    """What is swept. `configs` and `grid` unite."""

    algorithm: str = "EAGLE3"
    draft_model_path: str | None = None
    draft_config: Path | None = Field(None, description="config.json of the draft, so that plan works without weights.")
    configs: list[str | SpecPoint] = []
    grid: SpecGrid | None = None
    exclude: list[dict[str, Any]] = []
    args: dict[str, FlagValue] = Field({}, description="Further speculative-* flags of all arms, without the prefix.")


class Baseline(Strict):
    """Overrides of the automatic non-speculative baseline."""

    args: dict[str, FlagValue] = {}
    env: dict[str, str] = {}
    expect: str | None = None


class Arrival(Strict):
    """When requests are sent. `closed`: `concurrency` workers, each sends when its last answer ended."""

    kind: Literal["closed", "constant", "poisson", "burst"] = "closed"
    rate_rps: float | None = Field(None, gt=0, description="Requests per second of constant and poisson.")
    ramp_s: float = Field(0, ge=0)


class Workload(Strict):
    """The load that every arm gets, prompt for prompt."""

    prompts: str = Field("builtin:code", description="builtin:NAME, toy:NAME, random:LO:HI, or a path.")
    num_prompts: int = Field(64, ge=1)
    max_tokens: int = Field(512, ge=1)
    temperature: float = Field(0, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = None
    stop: list[str] = []
    ignore_eos: bool = False
    chat_template: Literal["auto", "none"] = "auto"
    chat_template_kwargs: dict[str, Any] = {}
    endpoint: Literal["generate", "completions", "chat"] = "generate"
    concurrency: list[Annotated[int, Field(ge=1)]] = [1, 8, 32]
    arrival: Arrival = Arrival()
    request_timeout_s: float = Field(600, gt=0)
    stall_timeout_s: float = Field(120, gt=0, description="No byte for this long is a hang.")
    seed: int = 1


class Run(Strict):
    """How the measurements are ordered and what happens when one fails."""

    starts: int = Field(2, ge=1)
    repeats: int = Field(4, ge=1)
    order: Literal["mirrored", "given"] = "mirrored"
    parallel: Literal["exclusive", "packed"] = "exclusive"
    doctor: Literal["error", "warn", "off"] = "error"
    on_failure: Literal["continue", "stop"] = "continue"
    budget_min: float | None = Field(None, gt=0)


class Experiment(Strict):
    """The whole file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")
    engine: Engine = Engine()
    server: Server
    speculative: Speculative = Speculative()
    baseline: Baseline = Baseline()
    workload: Workload = Workload()
    run: Run = Run()
    sweep: dict[str, list[Any]] = Field({}, description="Dotted path of any key above to a list of values.")
