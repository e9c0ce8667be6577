"""A run made of thought, written to disk in the real layout by the real writer."""

from pathlib import Path

from sweeper.core.events import Measured, Notice, ReferenceRecorded, ServerReady, StartEnded, TrialEnded
from sweeper.core.run import RunData
from sweeper.core.sample import Sample
from sweeper.store.disk import Disk
from sweeper.store.writer import RunWriter


def store_run(run: RunData, results_dir: Path, *, samples: tuple[Sample, ...] = (), disk: Disk | None = None) -> Path:
    """Write `run` below `results_dir` and return its folder; its id and journal times are the writer's own.

    `samples`: the requests of every measurement; `disk`: thousands are quick on one that waits for no device."""
    writer = RunWriter.create(results_dir, run.plan, experiment=run.experiment, environment=run.environment, disk=disk)
    try:
        writer.record(Notice(message="a run made of thought"))
        for record in run.starts:
            if record.failure is None:
                writer.record(ServerReady(record=record, server_info={}))
            writer.record(StartEnded(group_id=record.group_id, start=record.start, record=record))
        for measurement in run.measurements:
            writer.record(Measured(measurement=measurement, samples=samples))
        for reference in run.references:
            writer.record(ReferenceRecorded(reference=reference))
        for judged in run.losslessness:
            writer.write_losslessness(judged)
        for result in run.results:
            writer.record(TrialEnded(result=result))
    finally:
        writer.close()
    return writer.path
