"""From an experiment file to a finished run: preflight, what to resume, the pool, the controller."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sweeper.core.events import Display, RunEnded
from sweeper.core.experiment import Experiment, Workload
from sweeper.core.redaction import redact_value
from sweeper.core.result import Fingerprint
from sweeper.core.run import RunData
from sweeper.core.sample import PromptSet
from sweeper.core.trial import Plan
from sweeper.effects.environment import describe_environment
from sweeper.effects.facts import load_experiment
from sweeper.effects.fingerprint import engine_fingerprint
from sweeper.effects.gpu import NvmlGpus
from sweeper.effects.hub import local_checkpoint
from sweeper.effects.prompts import STEADY_ONLY, load_prompts
from sweeper.effects.requirements import require
from sweeper.errors import ConfigError, PreflightError, StoreError
from sweeper.execution.accounts import Accounts
from sweeper.execution.answers import Answers
from sweeper.execution.controller import Controller, Policy, Work
from sweeper.execution.examination import examine_plan
from sweeper.execution.pool import Pool
from sweeper.execution.resume import Resumption, resume
from sweeper.execution.selection import select
from sweeper.planning.config import Document
from sweeper.planning.plan import make_plan
from sweeper.store.disk import Disk
from sweeper.store.reader import find_runs, half_written, read_plan, read_run, unreadable
from sweeper.store.writer import RunWriter, utc_now


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line may say beside the experiment."""

    results_dir: Path
    fresh: bool = False
    retry_failed: bool = False
    accept_drift: bool = False
    only: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An experiment that can run here; nothing was started."""

    experiment: Experiment
    plan: Plan
    prompts: PromptSet
    fingerprint: Fingerprint
    skips: tuple[tuple[str, str, str], ...]
    warnings: tuple[str, ...] = ()
    """What is to be known of the prompts, and what the doctor found and did not refuse."""

    @property
    def greedy(self) -> bool:
        """Then answers are held against the baseline's."""
        return self.experiment.workload.temperature == 0

    @property
    def policy(self) -> Policy:
        run = self.experiment.run
        budget_s = run.budget_min * 60 if run.budget_min is not None else None
        return Policy(stop_on_failure=run.on_failure == "stop", budget_s=budget_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A run folder and what is left to do in it."""

    writer: RunWriter
    accounts: Accounts
    notes: tuple[str, ...]
    resumed: int
    answers: Answers | None = None


def prepare(path: Path, *, cluster: bool = False) -> Prepared:
    """Raises ConfigError or PreflightError, one line, when the experiment cannot run from this machine.

    `cluster`: on the nodes of a Ray that is joined.
    """
    loaded = load_experiment(path)
    experiment = loaded.experiment
    plan = make_plan(experiment, loaded.facts)
    require(loaded.document, loaded.facts, cluster=cluster)
    prompts = prompts_of(loaded.document)
    examined = examine_plan(plan, experiment.run.doctor)
    return Prepared(
        experiment=experiment,
        plan=plan,
        prompts=prompts,
        fingerprint=_fingerprint(experiment, prompts),
        skips=examined.skips,
        warnings=(*prompt_warnings(prompts, experiment.workload), *examined.warnings),
    )


def prompts_of(document: Document) -> PromptSet:
    """What is sent. Raises ConfigError with the line that names the prompts when they cannot be made."""
    experiment = document.experiment
    try:
        return load_prompts(experiment.workload, tokenizer_dir=local_checkpoint(experiment.server.model_path))
    except (ConfigError, PreflightError) as error:
        raise document.error("workload.prompts", str(error).removeprefix("prompts ")) from error


def finished_run(prepared: Prepared, options: Options) -> RunData | None:
    """The latest run of this plan, when nothing is left to do in it."""
    path = None if options.fresh else _latest(prepared.plan, options.results_dir)
    if path is None:
        return None
    run = read_run(path)
    before = _resumption(run, prepared, options)
    accounts = _accounts(prepared, _selected(prepared, options), before)
    done = not accounts.pending() and not accounts.settle() and not before.aside
    return run if done else None


def open_run(
    prepared: Prepared, options: Options, *, disk: Disk | None = None, now: Callable[[], datetime] = utc_now
) -> Opened:
    """The latest run of this plan, cleared of what is half-written or of something else; or a new one."""
    selected = _selected(prepared, options)
    path = None if options.fresh else _latest(prepared.plan, options.results_dir)
    if path is None:
        writer = RunWriter.create(
            options.results_dir,
            prepared.plan,
            experiment=redact_value(prepared.experiment.model_dump(mode="json", exclude_unset=True)),
            environment=_environment(prepared),
            disk=disk,
            now=now,
        )
        answers = Answers(prepared.plan, writer) if prepared.greedy else None
        return Opened(writer=writer, accounts=_accounts(prepared, selected), notes=(), resumed=0, answers=answers)
    writer = RunWriter(path, disk=disk, now=now)
    try:
        before = _resumption(read_run(path), prepared, options)
        moved = writer.set_aside(before.aside)
        writer.write_environment(_environment(prepared))
        answers = Answers(prepared.plan, writer) if prepared.greedy else None
        if answers is not None:
            answers.take_up(read_run(path))
    except BaseException:
        writer.close()
        raise
    return Opened(
        writer=writer,
        accounts=_accounts(prepared, selected, before),
        notes=(*before.notes, *moved),
        resumed=len(before.kept),
        answers=answers,
    )


async def run_session(
    prepared: Prepared,
    opened: Opened,
    pool: Pool,
    display: Display,
    *,
    on_controller: Callable[[Controller], None] = lambda controller: None,
) -> RunEnded:
    """Runs what is left; closes pool and writer. `on_controller` gets what `interrupt()` can be called on."""
    work = Work(
        plan=prepared.plan,
        workload=prepared.experiment.workload,
        prompts=prepared.prompts,
        policy=prepared.policy,
        skips=prepared.skips,
        resumed=opened.resumed,
        notes=(*opened.notes, *prepared.warnings),
        answers=opened.answers,
    )
    controller = Controller(work, accounts=opened.accounts, pool=pool, writer=opened.writer, display=display)
    on_controller(controller)
    try:
        return await controller.run()
    finally:
        await pool.close()
        opened.writer.close()


def _fingerprint(experiment: Experiment, prompts: PromptSet) -> Fingerprint:
    """Of this machine; on another node of a cluster the GPUs may differ, so they are compared only where known."""
    gpus = NvmlGpus().read() if experiment.engine.device == "cuda" else None
    names = tuple(sorted({gpu.name for gpu in gpus.gpus})) if gpus else ()
    return Fingerprint(
        engine=engine_fingerprint(experiment.engine.python),
        prompts_sha256=prompts.sha256,
        gpu=names,
        driver=gpus.driver if gpus else None,
        device=experiment.engine.device,
    )


def _environment(prepared: Prepared) -> Mapping[str, Any]:
    workload, prompts = prepared.experiment.workload, prepared.prompts
    said = {
        "source": redact_value(prompts.source),
        "chat_template": prompts.template,
        "template_arguments": redact_value(dict(workload.chat_template_kwargs)),
        "warnings": list(prompt_warnings(prompts, workload)),
    }
    return {**describe_environment(python=prepared.experiment.engine.python), "prompts": said}


def prompt_warnings(prompts: PromptSet, workload: Workload) -> tuple[str, ...]:
    """Without what the plan said already: that so few prompts leave only the steady window."""
    few = workload.num_prompts < 8 * max(workload.concurrency)
    return tuple(words for words in prompts.warnings if not (few and words.endswith(STEADY_ONLY)))


def _selected(prepared: Prepared, options: Options) -> frozenset[str] | None:
    return None if options.only is None else select(prepared.plan, options.only)


def _accounts(prepared: Prepared, selected: frozenset[str] | None, before: Resumption | None = None) -> Accounts:
    return Accounts(
        prepared.plan,
        kept=before.kept if before else (),
        results=before.results if before else (),
        selected=selected,
        recorded=(before.recorded if before else ()) if prepared.greedy else None,
    )


def _resumption(run: RunData, prepared: Prepared, options: Options) -> Resumption:
    return resume(
        run,
        prepared.fingerprint,
        broken=(*half_written(run.path), *unreadable(run.path)),
        retry_failed=options.retry_failed,
        accept_drift=options.accept_drift,
    )


def _latest(plan: Plan, results_dir: Path) -> Path | None:
    """The newest run folder of this very plan."""
    for path in reversed(find_runs(results_dir / plan.experiment)):
        try:
            if read_plan(path).plan_id == plan.plan_id:
                return path
        except StoreError:
            continue
    return None
