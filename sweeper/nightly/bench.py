"""What a night measures with: a sweep, and a second measurement of a few of its trials."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from sweeper.analysis.nightly.record import ArmNight
from sweeper.core.run import RunData
from sweeper.core.trial import LaunchGroup, Plan, ServerStart
from sweeper.execution.emergency import stop_on_signals
from sweeper.execution.session import Options, Prepared, finished_run, open_run, prepare, run_session
from sweeper.nightly.circumstances import circumstances
from sweeper.nightly.doctor import doctor_of
from sweeper.store.reader import read_run


class Interrupted(Exception):
    """Ctrl-C or SIGTERM; what was measured is kept."""


class Bench(Protocol):
    """Measures; raises SweeperError when it cannot, Interrupted when it was told to stop."""

    @property
    def experiment(self) -> str: ...

    def circumstances(self) -> Mapping[str, str]: ...

    def doctor(self) -> Mapping[str, ArmNight]:
        """Arm label → what the doctor says of it."""
        ...

    def sweep(self, results_dir: Path) -> RunData:
        """Goes on with what stands in `results_dir`."""
        ...

    def again(self, trial_ids: frozenset[str], repeats: int, results_dir: Path) -> RunData: ...


class SessionBench:
    """The real one: the sessions of `sweeper run`."""

    def __init__(self, path: Path, *, ray_address: str | None = None) -> None:
        self._prepared = prepare(path, cluster=ray_address is not None)
        self._ray_address = ray_address

    @property
    def experiment(self) -> str:
        return self._prepared.plan.experiment

    @property
    def plan(self) -> Plan:
        return self._prepared.plan

    @property
    def sweep_axes(self) -> Mapping[str, Sequence[Any]]:
        """The experiment's `sweep`."""
        return self._prepared.experiment.sweep

    def circumstances(self) -> Mapping[str, str]:
        return circumstances(self._prepared.plan, self._prepared.fingerprint)

    def doctor(self) -> Mapping[str, ArmNight]:
        return doctor_of(self._prepared.plan)

    def sweep(self, results_dir: Path) -> RunData:
        return self._run(self._prepared, results_dir)

    def again(self, trial_ids: frozenset[str], repeats: int, results_dir: Path) -> RunData:
        return self._run(replace(self._prepared, plan=plan_again(self._prepared.plan, trial_ids, repeats)), results_dir)

    def _run(self, prepared: Prepared, results_dir: Path) -> RunData:
        from sweeper.execution.ray_pool import RayPool
        from sweeper.execution.tools import real_tools
        from sweeper.present.progress import make_display

        options = Options(results_dir=results_dir)
        if (complete := finished_run(prepared, options)) is not None:
            return complete
        pool = RayPool(
            real_tools,
            device=prepared.experiment.engine.device,
            exclusive=prepared.experiment.run.parallel == "exclusive",
            address=self._ray_address,
        )
        opened = open_run(prepared, options)
        display = make_display(prepared.plan, sys.stderr)
        try:
            ended = asyncio.run(run_session(prepared, opened, pool, display, on_controller=stop_on_signals))
        finally:
            display.close()
        if ended.interrupted:
            raise Interrupted
        return read_run(opened.writer.path)


def plan_again(plan: Plan, trial_ids: frozenset[str], repeats: int) -> Plan:
    """Only these trials, over two server starts, so that one unlucky start cannot confirm itself."""
    trials = tuple(trial for trial in plan.trials if trial.trial_id in trial_ids)
    groups = tuple(
        LaunchGroup(group_id=group.group_id, arm_id=group.arm_id, gpus=group.gpus, trial_ids=kept)
        for group in plan.launch_groups
        if (kept := tuple(trial for trial in group.trial_ids if trial in trial_ids))
    )
    first = [ServerStart(group_id=group.group_id, start=0) for group in groups]
    second = [ServerStart(group_id=group.group_id, start=1) for group in reversed(groups)]
    return replace(
        plan,
        trials=trials,
        launch_groups=groups,
        schedule=tuple([*first, *second] if repeats > 1 else first),
        repeats=max(1, repeats // 2),
        estimate_s=None,
    )


def with_baselines(plan: Plan, trial_ids: frozenset[str]) -> frozenset[str]:
    """A speedup needs both sides, measured in the same hour."""
    chosen = [trial for trial in plan.trials if trial.trial_id in trial_ids]
    wanted = {(plan.arm(trial.arm_id).baseline_id, trial.load) for trial in chosen}
    return trial_ids | {trial.trial_id for trial in plan.trials if (trial.arm_id, trial.load) in wanted}
