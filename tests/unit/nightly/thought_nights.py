"""A bench of thought: nights whose true values are known, measured without a server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sweeper.analysis.nightly.night import Night
from sweeper.analysis.nightly.policy import Policy
from sweeper.analysis.nightly.record import ArmNight
from sweeper.core.run import RunData
from sweeper.errors import PreflightError
from sweeper.nightly.bench import plan_again
from sweeper.nightly.history import History
from sweeper.nightly.job import Ended, run_night
from sweeper.nightly.outputs import write_verdict
from sweeper.testing.model import Model, Story
from sweeper.testing.runs import model_run

FIRST = datetime(2026, 11, 1, 3, 0, tzinfo=UTC)
KNOWN = {"engine": "0.5.23", "driver": "570.1", "GPU": "NVIDIA H200", "prompts": "aa11", "draft": "d0"}
NAME = "kimi-k25-eagle3"


def history_of(values: Sequence[float], repeats: int = 1) -> tuple[Night, ...]:
    return tuple(Night(night_id=f"n{number:02}", value=value, repeats=repeats) for number, value in enumerate(values))


@dataclass
class ThoughtBench:
    """One night; `again_model` is what the second measurement finds (default: the same machine)."""

    seed: int
    model: Model = field(default_factory=Model)
    story: Story = field(default_factory=Story)
    again_model: Model | None = None
    known: Mapping[str, str] = field(default_factory=lambda: dict(KNOWN))
    arms: Mapping[str, ArmNight] = field(default_factory=dict)
    cannot: str = ""
    prompts: str | None = None
    asked: list[frozenset[str]] = field(default_factory=list)

    experiment: str = NAME

    def circumstances(self) -> Mapping[str, str]:
        return self.known

    def doctor(self) -> Mapping[str, ArmNight]:
        return self.arms

    def sweep(self, results_dir: Path) -> RunData:
        if self.cannot:
            raise PreflightError(self.cannot)
        return self._run(self.model, self.seed, results_dir, repeats=4)

    def again(self, trial_ids: frozenset[str], repeats: int, results_dir: Path) -> RunData:
        self.asked.append(trial_ids)
        run = self._run(self.again_model or self.model, self.seed + 1000, results_dir, repeats=repeats // 2)
        return replace(
            run,
            plan=plan_again(run.plan, trial_ids, repeats),
            measurements=tuple(one for one in run.measurements if one.trial_id in trial_ids),
            results=tuple(one for one in run.results if one.trial_id in trial_ids),
        )

    def _run(self, model: Model, seed: int, results_dir: Path, *, repeats: int) -> RunData:
        run = model_run(
            ("3-1-4",),
            concurrency=(1, 8),
            repeats=repeats,
            model=replace(model, seed=seed),
            story=self.story,
            path=results_dir / NAME / "run",
        )
        if self.prompts is None:
            return run
        return replace(
            run,
            measurements=tuple(
                replace(one, fingerprint=replace(one.fingerprint, prompts_sha256=self.prompts))
                for one in run.measurements
            ),
        )


@dataclass
class Nights:
    """A history that grows night by night."""

    history: History
    policy: Policy = field(default_factory=Policy)
    count: int = 0
    said: list[str] = field(default_factory=list)

    def quiet(self, nights: int, **bench: object) -> None:
        for _ in range(nights):
            assert self.night(**bench).verdict.state in ("fine", "unknown")

    def night(self, **bench: object) -> Ended:
        return self.on(ThoughtBench(seed=self.count + 1, **bench))  # type: ignore[arg-type]

    def on(self, bench: ThoughtBench) -> Ended:
        when = FIRST + timedelta(days=self.count)
        self.count += 1
        return run_night(
            lambda: bench,
            self.history,
            self.policy,
            experiment=NAME,
            say=self.said.append,
            publish=lambda history, nights, verdict: write_verdict(history, verdict),
            now=lambda: when,
        )
