"""One night, from begin to verdict."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from sweeper.analysis.nightly.extract import night_record
from sweeper.analysis.nightly.policy import Policy
from sweeper.analysis.nightly.record import NightRecord
from sweeper.analysis.nightly.sentence import sentence
from sweeper.analysis.nightly.verdict import Verdict, judge_night
from sweeper.core.run import RunData
from sweeper.errors import ConfigError, ServerError, SweeperError
from sweeper.nightly.agreement import agreement_of
from sweeper.nightly.bench import Bench, with_baselines
from sweeper.nightly.history import AGAIN, RUNS, History
from sweeper.nightly.outputs import write_outputs

Publish = Callable[[History, Sequence[NightRecord], Verdict], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A night that is over."""

    verdict: Verdict
    sentence: str
    folder: Path

    @property
    def exit_code(self) -> int:
        """0 fine, improved or unknown; 1 regression; 2 could not run."""
        if self.verdict.could_not_run:
            return 2
        return 1 if self.verdict.state == "regressed" else 0


def run_night(  # noqa: PLR0913  a bench, a history, and what tests put in their place
    make_bench: Callable[[], Bench],
    history: History,
    policy: Policy,
    *,
    experiment: str,
    say: Callable[[str], None],
    publish: Publish = write_outputs,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Ended:
    """Call with the history locked. Interrupted and bugs pass through: the night stays open and the next call goes on.

    `experiment`: its name, for the history; `make_bench` raises SweeperError where the experiment cannot run.
    """
    past = history.nights()
    if past and past[-1].experiment != experiment:
        raise ConfigError(
            f"{history.root}: the history of experiment {past[-1].experiment}, not of {experiment}; "
            "give each experiment a history of its own"
        )
    night = history.begin(experiment, now())
    folder = history.folder(night.night_id)
    try:
        record, verdict = _measure(make_bench(), history, policy, night.night_id, folder, past, say)
    except SweeperError as error:
        if isinstance(error, ServerError):
            raise
        record = NightRecord(night_id=night.night_id, experiment=experiment, circumstances={}, could_not_run=str(error))
        verdict = judge_night(past, record, history.words(), policy)
    history.finish(record)
    publish(history, (*past, record), verdict)
    return Ended(verdict=verdict, sentence=sentence(verdict), folder=folder)


def _measure(  # noqa: PLR0913  the parts of one night
    bench: Bench,
    history: History,
    policy: Policy,
    night_id: str,
    folder: Path,
    past: tuple[NightRecord, ...],
    say: Callable[[str], None],
) -> tuple[NightRecord, Verdict]:
    words, known, doctor = history.words(), bench.circumstances(), bench.doctor()
    run = bench.sweep(folder / RUNS)
    same = agreement_of(run)
    record = night_record(night_id, run, circumstances=known, arms=doctor, agreement=same)
    verdict = judge_night(past, record, words, policy)
    if verdict.suspicious and policy.confirm_repeats:
        again = _again(bench, run, verdict, policy, folder, say)
        if again is not None:
            record = night_record(night_id, run, again, circumstances=known, arms=doctor, agreement=same)
            verdict = judge_night(past, record, words, policy)
    findings = tuple((one.name, one.finding) for one in verdict.judged)
    return replace(record, findings=findings), verdict


def _again(
    bench: Bench, run: RunData, verdict: Verdict, policy: Policy, folder: Path, say: Callable[[str], None]
) -> RunData | None:
    """None: it failed, and the verdict stands as unconfirmed."""
    wanted = verdict.suspicious
    suspicious = [one for one in verdict.judged if one.finding.suspicious]
    compared = {one.trial_id for one in suspicious if one.name.quantity in ("speedup", "lossless")}
    wanted |= with_baselines(run.plan, frozenset(compared))
    say(f"{len(wanted)} suspicious trials of {len(run.plan.trials)} are measured again")
    try:
        return bench.again(wanted, policy.confirm_repeats, folder / AGAIN)
    except SweeperError as error:
        say(f"the second measurement failed: {error}")
        return None
