"""`sweeper run`: measure every configuration of an experiment; what was cut goes on where it stood."""

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from sweeper.core.events import RunEnded
from sweeper.core.plain import plain, sendable
from sweeper.core.redaction import redact_urls
from sweeper.core.result import Failed, Skipped
from sweeper.core.run import RunData
from sweeper.errors import ConfigError, SweeperError


@click.command()
@click.argument("experiment", type=click.Path(path_type=Path))
@click.option("--fresh", is_flag=True, help="Start a new run even when one of the same plan can be resumed.")
@click.option(
    "--out", "results_dir", type=click.Path(path_type=Path), default=Path("results"), help="Results folder [results]."
)
@click.option("--ray-address", metavar="ADDRESS", help="Join this Ray cluster instead of starting a Ray here.")
@click.option("--retry-failed", is_flag=True, help="Run failed and skipped trials of the resumed run again.")
@click.option("--only", metavar="'steps=3,topk=1'", help="Run only the matching trials and their baselines.")
@click.option("--accept-drift", is_flag=True, help="Keep measurements of another engine, driver or prompts.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def command(experiment: Path, ray_address: str | None, as_json: bool, **options: Any) -> int:
    """Measure every configuration of EXPERIMENT.

    The latest run of the same plan is resumed; when it is complete, it is printed. Ctrl-C once stops in order, twice at
    once; either way the next call goes on.
    """
    from sweeper.execution import selection, session

    chosen = session.Options(**options)
    for path in (experiment, chosen.results_dir):
        if not sendable(str(path.absolute())):
            raise ConfigError(f"{path}: its path is no UTF-8 text, which Ray cannot pass on; rename it")
    cluster = ray_address or os.environ.get("RAY_ADDRESS")
    prepared = session.prepare(experiment, cluster=bool(cluster))
    if chosen.only is not None:
        selection.select(prepared.plan, chosen.only)  # a slip in it is told before Ray is started
    if (complete := session.finished_run(prepared, chosen)) is not None:
        return _code(_show(complete.path, as_json=as_json, state="complete"))
    ended, path, abandoned = _measure(prepared, chosen, cluster)
    code = _told(ended, path, as_json=as_json)
    if abandoned:
        sys.stdout.flush()
        os._exit(code)
    return code


def _told(ended: RunEnded, path: Path, *, as_json: bool) -> int:
    if ended.interrupted:
        _say(f"interrupted; {path} keeps what was measured, the same command goes on")
        if as_json:
            click.echo(json.dumps(_document(path, "interrupted"), indent=2))
        return 130
    return _code(_show(path, as_json=as_json, state="finished"))


def _code(run: RunData) -> int:
    """The same whenever this run is looked at."""
    return 1 if _went_wrong(run) or _nothing_ranked(run) else 0


def _measure(prepared: Any, options: Any, ray_address: str | None) -> tuple[RunEnded, Path, bool]:
    from sweeper.execution import session
    from sweeper.execution.emergency import stop_on_signals
    from sweeper.execution.ray_pool import RayPool
    from sweeper.execution.tools import real_tools
    from sweeper.present.progress import make_display

    experiment = prepared.experiment
    _say(redact_urls(f"joining Ray at {ray_address}") if ray_address else "starting Ray")
    pool = RayPool(
        real_tools,
        device=experiment.engine.device,
        exclusive=experiment.run.parallel == "exclusive",
        address=ray_address,
    )
    opened = session.open_run(prepared, options)
    _say(_where_to_watch(opened.writer.path))
    display = make_display(prepared.plan, sys.stderr)
    try:
        work = session.run_session(prepared, opened, pool, display, on_controller=stop_on_signals)
        return asyncio.run(work), opened.writer.path, pool.abandoned
    except SweeperError as error:
        if not pool.abandoned:
            raise
        _say(redact_urls(f"sweeper: {error}"))
        os._exit(error.exit_code)
    finally:
        display.close()


def _where_to_watch(run_dir: Path) -> str:
    from sweeper.cli.dashboard import DEFAULT_PORT
    from sweeper.present.dashboard.shelf import RunKey

    url = RunKey(experiment=run_dir.parent.name, run_id=run_dir.name).url
    results = shlex.quote(str(run_dir.parents[1]))
    return f"watch it: `sweeper dashboard {results}`, then http://127.0.0.1:{DEFAULT_PORT}{url}"


def _show(path: Path, *, as_json: bool, state: str) -> RunData:
    """Prints what came out and writes the report."""
    from sweeper.present.report import write_report
    from sweeper.present.terminal import print_run
    from sweeper.store.reader import read_run

    run = read_run(path)
    try:
        if as_json:
            click.echo(json.dumps(_document(path, state), indent=2))
        else:
            print_run(run)
    finally:  # a full disk keeps nobody from reading what was measured, nor a lost terminal the report from being
        report = write_report(path)
    if not as_json:
        _say(f"report: {report}")
    return run


def _document(path: Path, state: str) -> dict[str, Any]:
    from sweeper.store.codec import to_plain
    from sweeper.store.reader import read_run

    run = read_run(path)
    return {
        "run_dir": str(path),
        "run_id": run.run_id,
        "plan_id": run.plan.plan_id,
        "state": state,
        "measurements": len(run.measurements),
        "results": [to_plain(result) for result in run.results],
        "problems": list(run.problems),
    }


def _went_wrong(run: RunData) -> bool:
    """A trial failed, or was refused by the doctor, and its arm had not said so beforehand."""
    return any(
        not one.expected and (isinstance(one, Failed) or one.reason.startswith("doctor"))
        for one in run.results
        if isinstance(one, Failed | Skipped)
    )


def _nothing_ranked(run: RunData) -> bool:
    """Not one number of this run may be used, whatever its trials are called."""
    from sweeper.analysis.points import excluded
    from sweeper.analysis.simulated import countable

    return all(excluded(measurement) for measurement in countable(run).measurements)


def _say(text: str) -> None:
    click.echo(plain(text), err=True)
