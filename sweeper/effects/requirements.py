"""What an experiment needs and this machine does not have: found before anything starts."""

from collections.abc import Iterator
from importlib.util import find_spec

from sweeper.core.experiment import Experiment
from sweeper.effects.prompts import require_source
from sweeper.errors import ConfigError, PreflightError
from sweeper.planning.config import Document
from sweeper.planning.facts import Facts


def require(document: Document, facts: Facts, *, cluster: bool = False) -> None:
    """Raise PreflightError, a line per unmet requirement, when this machine cannot run the experiment.

    `cluster`: the servers start on other nodes too, so that this one needs no GPU.
    """
    problems = list(unmet(document, facts, cluster=cluster))
    if problems:
        raise PreflightError("\n".join(problems))


def require_torch(what: str) -> None:
    """Raise PreflightError when PyTorch, an extra of this package, is not installed; `what` needs it."""
    if find_spec("torch") is None or find_spec("safetensors") is None:
        raise PreflightError(f"{what} needs PyTorch; install it with pip install 'sweeper[torch]'")


def unmet(document: Document, facts: Facts, *, cluster: bool = False) -> Iterator[str]:
    """Lines `file:line: key: what; remedy`: models, engine, prompts, GPUs."""
    yield from facts.missing
    for key, what in _unmet(document.experiment, facts, cluster=cluster):
        yield str(document.error(key, what))


def _unmet(experiment: Experiment, facts: Facts, *, cluster: bool) -> Iterator[tuple[str, str]]:
    engine = experiment.engine
    if facts.engine_installed is None and not engine.command_prefix:
        where = engine.python or "the interpreter running Sweeper"
        remedy = f"install sglang=={facts.flags.version} there, or set engine.python"
        yield "engine.python", f"SGLang is not installed in {where}; {remedy}"
    elif engine.version is not None and facts.engine_installed not in (None, engine.version):
        installed = facts.engine_installed
        yield "engine.version", f"{engine.version} is asked for, installed is {installed}; remove the key or install it"
    try:
        require_source(experiment.workload.prompts)
    except ConfigError as error:
        yield "workload.prompts", str(error).removeprefix("prompts ")
    if engine.device == "cuda" and not facts.gpu_count and not cluster:
        yield "engine.device", "cuda, but no NVIDIA GPU is visible here; run on a GPU node, or set device: cpu"


def too_few_gpus(needed: int, facts: Facts) -> str | None:
    """Why the largest server of a plan does not fit on this node; None: it does."""
    if facts.gpu_count is None or needed <= facts.gpu_count:
        return None
    return f"a server needs {needed} GPUs, {facts.gpu_count} can be used here; lower tp_size, or join a larger cluster"
