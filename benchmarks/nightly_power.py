"""How often the nightly job cries wolf, and how soon it sees what is true.

    python benchmarks/nightly_power.py [--histories 200] [--seed 1] [--workers 2] [--quick]

Prints the tables of docs/nightly.md. The decision is the shipped one with its default policy; only the nights are
drawn: one value of noise per series and night, one per repeat; disturbed nights (the sweep's repeats 3-10 % off until
it is over), slow first repeats after a server start, nights that fail. A suspicious series is measured again on the
same night, twelve repeats with the noise of that night.
"""

import argparse
import math
import multiprocessing
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sweeper.analysis.nightly.course import advance
from sweeper.analysis.nightly.decide import Finding, Tonight, decide
from sweeper.analysis.nightly.night import Night
from sweeper.analysis.nightly.policy import DEFAULT_POLICY

LEVEL = 100.0
BEFORE = 60
"""Nights of history before a step begins."""
AFTER = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Noise as standard deviations of the logarithm; None for repeats: drawn for each series between 1 and 3 %."""

    repeat_noise: float | None = None
    night_noise: float = 0.005
    repeats: int = 8
    starts: int = 2
    series: int = 12
    disturbed: float = 0.02
    """Share of nights on which the whole job is disturbed while the sweep runs."""
    lasting: float = 0.0
    """Share of nights whose disturbance lasts until the second measurement too."""
    slow_first: float = 0.05
    """Share of server starts whose first repeat is slow."""
    failed: float = 0.01
    """Share of nights without numbers."""


@dataclass(frozen=True, slots=True)
class Weather:
    """What a night does to all series of the job."""

    failed: bool
    first: float
    again: float


def weather(setting: Setting, rng: random.Random) -> Weather:
    blow = math.log1p(-rng.uniform(0.03, 0.10))
    lasts = rng.random() < setting.lasting
    disturbed = lasts or rng.random() < setting.disturbed
    return Weather(rng.random() < setting.failed, blow if disturbed else 0.0, blow if lasts else 0.0)


class Job:
    """One series of a job, night by night."""

    def __init__(self, setting: Setting, rng: random.Random) -> None:
        self.setting = setting
        self.rng = rng
        self.repeat_noise = rng.uniform(0.01, 0.03) if setting.repeat_noise is None else setting.repeat_noise
        self.past: tuple[Night, ...] = ()
        self.again = 0
        """Second measurements made."""

    def night(self, number: int, weather: Weather, change: float) -> Finding:
        """`change`: of the true level, in logarithms."""
        rng, setting = self.rng, self.setting
        center = change + rng.gauss(0, setting.night_noise)
        first = self._repeats(center + weather.first, setting.repeats)
        tonight = Tonight(night_id=str(number), first=first)
        finding = decide(self.past, tonight, "output_tok_per_s")
        if finding.suspicious:
            self.again += 1
            again = self._repeats(center + weather.again, DEFAULT_POLICY.confirm_repeats)
            finding = decide(self.past, replace(tonight, again=again), "output_tok_per_s")
        self.past = advance(self.past, finding)
        return finding

    def _repeats(self, center: float, count: int) -> tuple[float, ...]:
        rng, per_start = self.rng, max(1, count // self.setting.starts)
        made = []
        for number in range(count):
            slow = number % per_start == 0 and rng.random() < self.setting.slow_first
            made.append(center + rng.gauss(0, self.repeat_noise) - (rng.uniform(0.02, 0.06) if slow else 0))
        return tuple(LEVEL * math.exp(value) for value in made)


@dataclass(frozen=True, slots=True, kw_only=True)
class Year:
    """A job in which nothing ever changed."""

    alarms: int
    """Alarms that began: a new regression or drift of some series on a night without one before it."""
    nights: int
    """Nights with exit code 1."""
    again: float
    """Trials measured a second time, per night."""


def quiet_year(setting: Setting, seed: int, nights: int = 365) -> Year:
    rng = random.Random(seed)
    jobs = [Job(setting, rng) for _ in range(setting.series)]
    alarms, red, before = 0, 0, False
    for number in range(nights):
        sky = weather(setting, rng)
        if sky.failed:
            continue
        worse = [job.night(number, sky, 0.0).night.flagged for job in jobs]
        red += any(worse)
        alarms += any(worse) and not before
        before = any(worse)
    return Year(alarms=alarms, nights=red, again=sum(job.again for job in jobs) / nights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What became of one change that began on night `BEFORE`."""

    alarms: tuple[bool, ...]
    """Night by night from its first night on."""
    standing: str
    off_nights: int | None
    """Found date minus true date, on the last night; None: not found."""


def one_change(setting: Setting, seed: int, course: Callable[[int], float], after: int = AFTER) -> Seen:
    """`course`: nights since the beginning (0 is the first) → change of the level in logarithms."""
    rng = random.Random(seed)
    job = Job(setting, rng)
    alarms, last = [], None
    for number in range(BEFORE + after):
        sky = weather(setting, rng)
        if sky.failed and number != BEFORE:
            alarms += [alarms[-1]] if number > BEFORE else []
            continue
        last = job.night(number, sky, course(number - BEFORE) if number >= BEFORE else 0.0)
        if number >= BEFORE:
            alarms.append(last.night.flagged)
    assert last is not None
    off = int(last.since) - BEFORE if last.since and last.night.flagged else None
    return Seen(alarms=tuple(alarms), standing=last.standing, off_nights=off)


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    first_night: float
    two_nights: float
    week: float
    dated: float
    """Found within one night of the truth, among those found."""


def step_power(setting: Setting, size: float, *, runs: int, seed: int, workers: int) -> Power:
    seen = _map(_step, [(setting, seed + number, size) for number in range(runs)], workers)
    found = [one.off_nights for one in seen if one.off_nights is not None]
    return Power(
        first_night=_share(one.alarms[0] for one in seen),
        two_nights=_share(any(one.alarms[:2]) for one in seen),
        week=_share(any(one.alarms[:7]) for one in seen),
        dated=_share(abs(off) <= 1 for off in found) if found else 0.0,
    )


def night_sigma(setting: Setting, repeat_noise: float) -> float:
    """Standard deviation of a night's value."""
    return math.sqrt(setting.night_noise**2 + repeat_noise**2 / setting.repeats)


def drift_power(setting: Setting, *, runs: int, seed: int, workers: int) -> tuple[float, float]:
    """(called a drift after 30 nights, called any regression by then) for 5 % lost in equal parts over 30 nights."""
    seen = _map(_drift, [(setting, seed + number) for number in range(runs)], workers)
    return _share(one.standing == "drifting" for one in seen), _share(any(one.alarms) for one in seen)


def _step(job: tuple[Setting, int, float]) -> Seen:
    setting, seed, size = job
    return one_change(setting, seed, lambda night: math.log1p(-size))


def _drift(job: tuple[Setting, int]) -> Seen:
    setting, seed = job
    return one_change(setting, seed, lambda night: math.log1p(-0.05 * (night + 1) / 30), after=30)


def _year(job: tuple[Setting, int]) -> Year:
    return quiet_year(*job)


def _share(values: object) -> float:
    known = [bool(value) for value in values]  # type: ignore[attr-defined]
    return sum(known) / len(known)


def _map(function, jobs, workers):  # type: ignore[no-untyped-def]
    if workers == 1:
        return [function(job) for job in jobs]
    with multiprocessing.Pool(workers) as pool:
        return pool.map(function, jobs, chunksize=max(1, len(jobs) // (8 * workers)))


QUIET: Sequence[tuple[str, Setting]] = (
    ("repeats 1-3 %, night 0.5 %", Setting()),
    ("night 1 %", Setting(night_noise=0.01)),
    ("night 2 %", Setting(night_noise=0.02)),
    ("4 repeats a night", Setting(repeats=4)),
    ("one disturbance a year outlasts the night", Setting(lasting=1 / 365)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=200, help="years, each of 365 nights and 12 series")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="the first row of each table only")
    options = parser.parse_args()
    rows = QUIET[:1] if options.quick else QUIET
    steps = max(200, 10 * options.histories)
    print("| noise | alarms a year and job | red nights a year | second measurements a night |")
    print("|---|---|---|---|")
    for name, setting in rows:
        histories = options.histories if setting == Setting() else max(20, options.histories // 4)
        jobs = [(setting, options.seed * 100_003 + number) for number in range(histories)]
        years = _map(_year, jobs, options.workers)
        mean = [sum(getattr(year, part) for year in years) / len(years) for part in ("alarms", "nights", "again")]
        print(f"| {name} | {mean[0]:.2f} | {mean[1]:.2f} | {mean[2]:.2f} |", flush=True)
    print("\n| noise | step | first night | two nights | a week | dated ±1 night |\n|---|---|---|---|---|---|")
    for name, setting in rows[:4]:
        for size in (0.05, 0.03):
            power = step_power(setting, size, runs=steps, seed=options.seed * 7_919, workers=options.workers)
            cells = (power.first_night, power.two_nights, power.week, power.dated)
            print(f"| {name} | {size:.0%} | " + " | ".join(f"{cell:.1%}" for cell in cells) + " |", flush=True)
    print("\n| repeats | three night-sigmas | dated ±1 night |\n|---|---|---|")
    for repeat_noise in (0.01, 0.02, 0.03):
        setting = Setting(repeat_noise=repeat_noise)
        size = 3 * night_sigma(setting, repeat_noise)
        power = step_power(setting, size, runs=steps, seed=options.seed * 104_729, workers=options.workers)
        print(f"| {repeat_noise:.0%} | {size:.1%} | {power.dated:.1%} |", flush=True)
    drift, found = drift_power(Setting(), runs=steps // 2, seed=options.seed * 15_485, workers=options.workers)
    print(f"\n5 % over 30 nights: called a drift on the last night {drift:.1%}, found by then {found:.1%}")


if __name__ == "__main__":
    main()
