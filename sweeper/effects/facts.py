"""Everything the planner has to know of this machine: engine, flags, config files of the models, GPUs."""

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.core.experiment import Experiment, SpecPoint
from sweeper.effects.engine_flags import SHIPPED, installed_version, shipped_table, table_of
from sweeper.effects.gpu import GpuReader, NvmlGpus
from sweeper.effects.hub import TOY, local_checkpoint, read_config, weight_bytes
from sweeper.effects.prompts import mean_turns
from sweeper.effects.suites import SUITES
from sweeper.engine.flags import FlagTable
from sweeper.engine.version import release
from sweeper.errors import ConfigError, PreflightError
from sweeper.planning.config import Document, check_flags, parse_document
from sweeper.planning.facts import Facts
from sweeper.planning.marks import Key


@dataclass(frozen=True, slots=True)
class Loaded:
    """An experiment file, read and looked into."""

    document: Document
    facts: Facts

    @property
    def experiment(self) -> Experiment:
        return self.document.experiment


def load_experiment(path: Path, *, version: str | None = None) -> Loaded:
    """Read, validate and look up one experiment file; raises ConfigError with file:line for anything wrong in it."""
    document = parse_document(read_text(path), path, place=beside(path.parent))
    _check_prompts(document)
    facts = gather_facts(document.experiment, version=version, document=document)
    check_flags(document, facts.flags, version=facts.engine_version)
    return Loaded(document, facts)


def _check_prompts(document: Document) -> None:
    kind, _, name = document.experiment.workload.prompts.partition(":")
    if kind == "builtin" and name not in SUITES:
        near = difflib.get_close_matches(name, SUITES, n=1)
        hint = f"did you mean builtin:{near[0]}?" if near else f"there are {', '.join(SUITES)}"
        raise document.error("workload.prompts", f"no built-in suite {name!r}; {hint}")


def beside(folder: Path) -> Callable[[str], str]:
    """Relative paths that exist in `folder` become absolute; what does not exist there may be a hub id."""

    def place(written: str) -> str:
        try:
            if written.startswith("~"):
                return str(Path(written).expanduser())
            if written.startswith(("toy:", "builtin:", "random:", "/")) or not (folder / written).exists():
                return written
            return str((folder / written).resolve())
        except (OSError, RuntimeError):  # longer than any file name; `~nobody`
            return written

    return place


def read_text(path: Path) -> str:
    """The text of an experiment file; ConfigError when there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; see experiments/ for examples") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: a folder, not an experiment file; name the .yaml in it") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}:1: not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None


def gather_facts(
    experiment: Experiment,
    *,
    version: str | None = None,
    document: Document | None = None,
    gpus: GpuReader | None = None,
) -> Facts:
    """Look up what `make_plan` needs. `version` plans for another engine release than the one installed."""
    engine = experiment.engine
    installed = None if engine.command_prefix else installed_version(engine.python)
    wanted = version or engine.version or installed or SHIPPED
    release(wanted)
    flags, remarks = _flags(experiment, wanted, installed)
    models = _Models(document)
    for written, key in _targets(experiment).items():
        models.look(written, key, experiment.server.target_config, ("server", "target_config"))
    for written, key in _drafts(experiment).items():
        models.look(written, key, experiment.speculative.draft_config, ("speculative", "draft_config"))
    return Facts(
        flags=flags,
        engine_version=wanted,
        engine_installed=installed,
        paths=models.paths,
        configs=models.configs,
        weight_bytes=models.weights,
        turns=mean_turns(experiment.workload),
        gpu_count=_gpu_count(gpus or NvmlGpus()) if engine.device == "cuda" else None,
        missing=tuple(models.missing),
        unchecked=tuple(remarks),
    )


def _targets(experiment: Experiment) -> dict[str, Key]:
    """Every target the experiment names, as written, and where it stands first."""
    named = _swept(experiment, "server.model_path") or [(experiment.server.model_path, ("server", "model_path"))]
    return _first(named)


def _drafts(experiment: Experiment) -> dict[str, Key]:
    """Every draft the experiment names, as written, and where it stands first."""
    section = experiment.speculative
    base: tuple[object, Key] = (section.draft_model_path, ("speculative", "draft_model_path"))
    points: list[tuple[object, Key]] = [
        (arm.draft_model_path, ("speculative", "configs", number, "draft_model_path"))
        for number, arm in enumerate(section.configs)
        if isinstance(arm, SpecPoint)
    ]
    return _first([*(_swept(experiment, "speculative.draft_model_path") or [base]), *points])


def _swept(experiment: Experiment, axis: str) -> list[tuple[object, Key]]:
    return [(value, ("sweep", axis, number)) for number, value in enumerate(experiment.sweep.get(axis, []))]


def _first(named: Iterable[tuple[object, Key]]) -> dict[str, Key]:
    found: dict[str, Key] = {}
    for value, key in named:
        if value is not None:
            found.setdefault(str(value), key)
    return found


class _Models:
    def __init__(self, document: Document | None) -> None:
        self.document = document
        self.paths: dict[str, str] = {}
        self.configs: dict[str, Mapping[str, Any]] = {}
        self.weights: dict[str, int] = {}
        self.missing: list[str] = []

    def look(self, written: str, key: Key, stand_in: Path | None, stand_in_key: Key) -> None:
        try:
            folder = local_checkpoint(written)
            self.configs[written] = read_config(folder / "config.json")
        except PreflightError as error:
            self.missing.append(str(self._error(key, str(error))))
            if stand_in is not None:
                self.configs[written] = self._stand_in(stand_in, stand_in_key)
            return
        located = str(folder) if written.startswith((TOY, "~")) else written
        self.paths[written] = located
        self.weights[written] = self.weights[located] = weight_bytes(folder)

    def _stand_in(self, path: Path, key: Key) -> Mapping[str, Any]:
        try:
            return read_config(path)
        except PreflightError as error:
            raise self._error(key, str(error)) from None

    def _error(self, key: Key, what: str) -> ConfigError:
        if self.document is not None:
            return self.document.marked.error(key, what)
        return ConfigError(f"{'.'.join(map(str, key))}: {what}")


def _flags(experiment: Experiment, wanted: str, installed: str | None) -> tuple[FlagTable, list[str]]:
    engine = experiment.engine
    remarks = []
    if engine.command_prefix:
        remarks.append(f"the engine behind engine.command_prefix was not asked: planned for SGLang {wanted}")
    elif installed is None:
        where = engine.python or "this interpreter"
        remarks.append(f"SGLang is not installed in {where}: planned for {wanted}")
    elif installed != wanted:
        remarks.append(f"SGLang {installed} is installed, planned for {wanted}")
    if wanted != SHIPPED:
        remarks.append(f"the engine's silent rules were read in {SHIPPED}: {wanted} may differ")
    asked = wanted in (installed, SHIPPED)
    table = table_of(wanted, engine.python, engine.command_prefix) if asked else None
    if table is None:
        remarks.append(f"no flag table of SGLang {wanted} here: flags are checked against {SHIPPED}")
        table = shipped_table()
    return table, remarks


def _gpu_count(reader: GpuReader) -> int | None:
    """What servers started here may use. An empty variable says nothing of them: Ray gives it to what drives a run."""
    inventory = reader.read()
    if inventory.problem is not None:
        return None
    given = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    return min(len(given) or len(inventory.gpus), len(inventory.gpus))
