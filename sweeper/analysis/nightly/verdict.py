"""The whole night in one sentence: every series judged, what is missing, what failed, what changed, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from sweeper.analysis.nightly.attribution import Cause, attribute
from sweeper.analysis.nightly.course import accept, advance
from sweeper.analysis.nightly.decide import Finding, Tonight, decide
from sweeper.analysis.nightly.night import Night
from sweeper.analysis.nightly.policy import Policy, Quantity
from sweeper.analysis.nightly.record import Muted, NightRecord, SeriesName, Watched, Words

State = Literal["fine", "regressed", "improved", "unknown"]

Key = tuple[SeriesName, str]
"""Series and comparability."""

ORDER: tuple[Quantity, ...] = (
    "lossless",
    "agreement",
    "accept_length",
    "verify_step_ms",
    "baseline_step_ms",
    "output_tok_per_s",
    "speedup",
    "ttft_ms",
    "startup_s",
)
"""Causes before what they cause."""


SERIES_OF_THE_PROOF = 12
"""Watched in one job by benchmarks/nightly_power.py, whose alarms are counted per job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something known to have changed before a night."""

    night_id: str
    what: str
    before: str
    after: str

    @property
    def text(self) -> str:
        return f"{self.what} {self.before} → {self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One series tonight."""

    name: SeriesName
    trial_id: str
    finding: Finding
    muted: Muted | None = None
    changed_with: tuple[Mark, ...] = ()
    cause: Cause | None = None

    @property
    def alarms(self) -> bool:
        return self.finding.standing in ("regressed", "drifting") and self.muted is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    night_id: str
    experiment: str
    judged: tuple[Judged, ...] = ()
    failures: tuple[str, ...] = ()
    """Trials that failed unexpectedly: a regression."""
    absent: tuple[str, ...] = ()
    """Numbers that the last night had and this one has not."""
    new_levels: tuple[str, ...] = ()
    """Series that begin anew, and because of what."""
    marks: tuple[Mark, ...] = ()
    """Tonight's."""
    doctor: tuple[str, ...] = ()
    """What the doctor says of the drafts that it did not say on the last good night."""
    could_not_run: str = ""

    @property
    def alarms(self) -> tuple[Judged, ...]:
        return tuple(one for one in self.judged if one.alarms)

    @property
    def state(self) -> State:
        if self.alarms or self.failures:
            return "regressed"
        if any(one.finding.standing == "improved" for one in self.judged):
            return "improved"
        known = any(one.finding.standing != "learning" for one in self.judged)
        return "fine" if known and not self.absent and not self.could_not_run else "unknown"

    @property
    def suspicious(self) -> frozenset[str]:
        """Trials worth a second measurement tonight."""
        return frozenset(one.trial_id for one in self.judged if one.finding.suspicious and one.trial_id)


def judge_night(past: Sequence[NightRecord], tonight: NightRecord, words: Words, policy: Policy) -> Verdict:
    """`past`: oldest first; nights that could not run are in it, and shift nothing."""
    ran = [night for night in past if not night.could_not_run]
    last = ran[-1] if ran else None
    marks = marks_of([*ran, tonight])
    if tonight.could_not_run:
        return Verdict(night_id=tonight.night_id, experiment=tonight.experiment, could_not_run=tonight.could_not_run)
    courses, policy = courses_of(past, words), shared(policy, len(tonight.series))
    findings = {
        watched.name: (
            watched,
            decide(courses.get(_key(watched), ()), _tonight(tonight, watched), watched.name.quantity, policy),
        )
        for watched in tonight.series
        if watched.first
    }
    found = {name: finding for name, (_, finding) in findings.items()}
    nights = [night.night_id for night in [*ran, tonight]]
    judged = [
        Judged(
            name=name,
            trial_id=watched.trial_id,
            finding=finding,
            muted=_muted(name, tonight.night_id, words),
            changed_with=_near(finding, marks, nights),
            cause=attribute(name, found, tonight.trials) if finding.standing in ("regressed", "drifting") else None,
        )
        for name, (watched, finding) in findings.items()
    ]
    return Verdict(
        night_id=tonight.night_id,
        experiment=tonight.experiment,
        judged=tuple(sorted(judged, key=_rank)),
        failures=_failures(last, tonight),
        absent=_absent(last, tonight),
        new_levels=_new_levels(last, tonight),
        marks=tuple(mark for mark in marks if mark.night_id == tonight.night_id),
        doctor=_doctor(_last_good(ran), tonight),
    )


def shared(policy: Policy, series: int) -> Policy:
    """The chance of a false alarm is the job's: more series than the proof has share it."""
    return replace(policy, alpha=policy.alpha * min(1.0, SERIES_OF_THE_PROOF / max(1, series)))


def courses_of(past: Sequence[NightRecord], words: Words) -> dict[Key, tuple[Night, ...]]:
    """Every series' nights as the next decision gets them."""
    courses: dict[Key, tuple[Night, ...]] = {}
    for record in past:
        keys = {watched.name: _key(watched) for watched in record.series}
        for name, finding in record.findings:
            courses[keys[name]] = advance(courses.get(keys[name], ()), finding)
        for word in words.accepted:
            if word.after != record.night_id:
                continue
            for key, course in courses.items():
                if word.pattern in key[0].text:
                    courses[key] = accept(course, word.since)
    return courses


def marks_of(nights: Sequence[NightRecord]) -> tuple[Mark, ...]:
    """What changed between each night and the one before it that ran."""
    return tuple(
        Mark(night_id=after.night_id, what=what, before=before.circumstances[what], after=value)
        for before, after in pairwise(nights)
        for what, value in after.circumstances.items()
        if what in before.circumstances and before.circumstances[what] != value
    )


def _key(watched: Watched) -> Key:
    return watched.name, watched.comparability


def _tonight(record: NightRecord, watched: Watched) -> Tonight:
    return Tonight(night_id=record.night_id, first=watched.first, again=watched.again)


def _rank(one: Judged) -> tuple[bool, int, float]:
    """Alarms first, causes before effects, then the largest change."""
    change = abs(one.finding.change or 0.0)
    return not one.alarms, ORDER.index(one.name.quantity), -change


def _muted(name: SeriesName, night_id: str, words: Words) -> Muted | None:
    tonight = night_id.replace("-", "")[:8]
    return next(
        (mute for mute in words.muted if mute.pattern in name.text and tonight <= mute.until.replace("-", "")[:8]), None
    )


def _near(finding: Finding, marks: Sequence[Mark], nights: Sequence[str]) -> tuple[Mark, ...]:
    """Marks within one night of the change; a drift has no night of its own."""
    if finding.since is None or finding.standing == "drifting" or finding.since not in nights:
        return ()
    position = nights.index(finding.since)
    near = nights[max(0, position - 1) : position + 2]
    exact = tuple(mark for mark in marks if mark.night_id == finding.since)
    return exact or tuple(mark for mark in marks if mark.night_id in near)


def _failures(last: NightRecord | None, tonight: NightRecord) -> tuple[str, ...]:
    before = {trial.trial_id: trial for trial in last.trials} if last else {}
    found = []
    for trial in tonight.trials:
        by_doctor = trial.state == "skipped" and trial.reason.startswith("doctor")
        if trial.expected or not (trial.state == "failed" or by_doctor):
            continue
        old = before.get(trial.trial_id)
        again = " (as on the night before)" if old is not None and old.state == trial.state else ""
        place = SeriesName(quantity="output_tok_per_s", arm=trial.arm, load=trial.load).place
        found.append(f"{place}: {trial.reason}{again}")
    return tuple(found)


def _absent(last: NightRecord | None, tonight: NightRecord) -> tuple[str, ...]:
    """A trial that failed explains its own absence."""
    if last is None:
        return ()
    ended = {trial.trial_id: trial for trial in tonight.trials}
    have = {watched.name for watched in tonight.series if watched.first}
    missing = []
    for watched in last.series:
        trial = ended.get(watched.trial_id)
        failed = trial is not None and trial.state == "failed"
        skipped = trial is not None and trial.state == "skipped"
        judged_better = watched.name.quantity == "agreement" and replace(watched.name, quantity="lossless") in have
        if (
            not watched.first
            or watched.name in have
            or judged_better
            or failed
            or (skipped and trial is not None and trial.expected)
        ):
            continue
        why = f": {trial.reason}" if skipped and trial is not None else ""
        missing.append(f"{watched.name.text} is absent tonight{why}")
    return tuple(missing)


def _new_levels(last: NightRecord | None, tonight: NightRecord) -> tuple[str, ...]:
    before = {watched.name: watched.comparability for watched in last.series} if last else {}
    changed = [
        watched.name
        for watched in tonight.series
        if watched.first and before.get(watched.name, watched.comparability) != watched.comparability
    ]
    if not changed or last is None:
        return ()
    reasons = [
        f"{what} {last.circumstances.get(what)} → {value}"
        for what, value in tonight.circumstances.items()
        if what in ("prompts", "GPU", "device") and last.circumstances.get(what) != value
    ] or ["the configuration of its trial"]
    count = f"{len(changed)} series" if len(changed) > 1 else changed[0].text
    return (f"{count} begin{'' if len(changed) > 1 else 's'} anew: changed with {', '.join(reasons)}",)


def _last_good(ran: Sequence[NightRecord]) -> NightRecord | None:
    """The last night without an open regression; a cause is what is different from then."""
    good = (night for night in reversed(ran) if not any(finding.night.flagged for _, finding in night.findings))
    return next(good, None)


def _doctor(last: NightRecord | None, tonight: NightRecord) -> tuple[str, ...]:
    before: Mapping[str, object] = last.arms if last else {}
    found = []
    for label, arm in tonight.arms.items():
        old = last.arms.get(label) if last and label in before else None
        known = old.findings if old else ()
        found += [f"{label}: {sentence}" for sentence in arm.findings if sentence not in known]
        if old and old.captured_layers != arm.captured_layers:
            layers, were = _layers(arm.captured_layers), _layers(old.captured_layers)
            found.append(f"{label}: the engine captures layers {layers}, on the last good night {were}")
    return tuple(dict.fromkeys(found))


def _layers(layers: tuple[int, ...] | None) -> str:
    return ", ".join(map(str, layers)) if layers else "none"
