"""What an experiment needs and this machine does not have: found before anything starts."""

from collections.abc import Iterator
from importlib.util import find_spec

from sweeper.core.experiment import Experiment
from sweeper.effects.prompts import require_source
from sweeper.errors import ConfigError, PreflightError
from sweeper.planning.facts import Facts


def require(experiment: Experiment, facts: Facts) -> None:
    """Raise PreflightError, a line per unmet requirement, when this machine cannot run the experiment."""
    problems = list(unmet(experiment, facts))
    if problems:
        raise PreflightError("\n".join(problems))


def require_torch(what: str) -> None:
    """Raise PreflightError when PyTorch, an extra of this package, is not installed; `what` needs it."""
    if find_spec("torch") is None or find_spec("safetensors") is None:
        raise PreflightError(f"{what} needs PyTorch; install it with pip install 'sweeper[torch]'")


def unmet(experiment: Experiment, facts: Facts) -> Iterator[str]:
    """Sentences with their remedy: engine, models, prompts, GPUs."""
    yield from facts.missing
    engine = experiment.engine
    if facts.engine_installed is None and not engine.command_prefix:
        where = engine.python or "the interpreter running Sweeper"
        yield f"SGLang is not installed in {where}; install sglang=={facts.flags.version} there, or set engine.python"
    elif engine.version is not None and facts.engine_installed not in (None, engine.version):
        installed = facts.engine_installed
        yield f"engine.version is {engine.version}, installed is SGLang {installed}; remove the key or install it"
    try:
        require_source(experiment.workload.prompts)
    except ConfigError as error:
        yield f"workload.{error}"
    if engine.device == "cuda" and not facts.gpu_count:
        yield "engine.device is cuda, but no NVIDIA GPU is visible here; run on a GPU node, or set device: cpu"


def too_few_gpus(needed: int, facts: Facts) -> str | None:
    """Why the largest server of a plan does not fit on this node; None: it does."""
    if facts.gpu_count is None or needed <= facts.gpu_count:
        return None
    return (
        f"a server needs {needed} GPUs, this node has {facts.gpu_count}; lower tp_size, or join a cluster that has them"
    )
