"""Requested points → arms: engine rules applied, illegal ones explained, duplicates merged, baselines matched."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sweeper.core.experiment import Experiment, greedy_by
from sweeper.core.trial import Arm, Illegal, Merged, ServerConfig, SpecConfig, content_id, without_defaults
from sweeper.engine.flags import FlagTable, size_of
from sweeper.engine.request import Request
from sweeper.engine.rules import resolve
from sweeper.planning.axes import Axes, ServerSide, server_sides, shown_axes, speculative_sides
from sweeper.planning.capture import Feed, feed
from sweeper.planning.facts import Facts
from sweeper.planning.labels import Unique, asked_label, axes_text, point_label
from sweeper.planning.matching import Pins, Situation, pins
from sweeper.planning.points import Point, excluded, requested_points

ASKED_AGAIN = "asked for more than once"


@dataclass(slots=True)
class Expansion:
    """Everything `expand` found, in the order of the file."""

    arms: list[Arm] = field(default_factory=list)
    illegal: list[Illegal] = field(default_factory=list)
    merged: list[Merged] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Candidate:
    point: Point
    label: str
    asked: str
    server: ServerConfig
    """Requested, paths as written."""
    effective: SpecConfig
    feed: Feed
    axes: Axes
    notes: tuple[str, ...]


def expand(experiment: Experiment, facts: Facts) -> Expansion:
    """All arms of an experiment; the first of each block is the baseline that its arms are compared with."""
    return _Expander(experiment, facts).run()


class _Expander:
    def __init__(self, experiment: Experiment, facts: Facts) -> None:
        self.experiment = experiment
        self.facts = facts
        self.found = Expansion()
        self.unique = Unique()
        self.shown = shown_axes(experiment)
        self.excluded = 0
        self.known: dict[str, str] = {}
        wanted = "speculative" in experiment.model_fields_set or any(a.startswith("speculative.") for a in self.shown)
        self.sections = [
            (axes, section, list(requested_points(section)))
            for axes, section in speculative_sides(experiment)
            if wanted
        ]
        points = [point for _, _, section_points in self.sections for point in section_points]
        self.algorithms = {_algorithm(point) for point in points}
        nameless = {_algorithm(point) for point in points if point.name is None}
        self.say_algorithm = len(nameless) > 1
        self.trees = any((point.spec.eagle_topk or 1) > 1 for point in points)

    def run(self) -> Expansion:
        for side in server_sides(self.experiment):
            self._block(side)
        if self.excluded:
            self.found.notes.append(f"{self.excluded} points left out by speculative.exclude")
        self.found.notes = list(dict.fromkeys(self.found.notes))
        self.found.warnings = list(dict.fromkeys(self.found.warnings))
        return self.found

    def _block(self, side: ServerSide) -> None:
        args = normalised(side.server.args, self.facts.flags)
        pinned = self._pins(side, args)
        args = {name: value for name, value in {**args, **pinned.args}.items() if value is not None}
        shared = ServerConfig(
            model_path=side.server.model_path,
            device=side.engine.device,
            args=args,
            env=side.server.env,
            spec=None,
            python=side.engine.python,
            command_prefix=tuple(side.engine.command_prefix),
            ready_timeout_s=side.engine.ready_timeout_s,
        )
        baseline_id = self._baseline(side, shared)
        kept: dict[str, list[_Candidate]] = {}
        for candidate in self._candidates(side, shared):
            kept.setdefault(_merge_key(candidate, len(kept)), []).append(candidate)
        for same in kept.values():
            self._arm(same, baseline_id)

    def _pins(self, side: ServerSide, args: Mapping[str, Any]) -> Pins:
        situation = Situation(
            args=args,
            device=side.engine.device,
            algorithms=self.algorithms,
            trees=self.trees,
            concurrency=max(self.experiment.workload.concurrency),
            flags=self.facts.flags,
            target=self.facts.config(side.server.model_path),
        )
        found = pins(situation)
        self.found.notes += [*found.notes, *_deprecated(args, self.facts.flags)]
        self.found.warnings += found.warnings
        return found

    def _baseline(self, side: ServerSide, shared: ServerConfig) -> str:
        overrides = normalised(side.baseline.args, self.facts.flags)
        if changed := sorted({*overrides, *side.baseline.env}):
            self.found.warnings.append(
                f"the baseline differs from its arms in {', '.join(changed)}: speedups are not of speculation alone"
            )
        server = replace(shared, args={**shared.args, **overrides}, env={**shared.env, **side.baseline.env})
        arm_id = _identity(server, None)
        if arm_id not in self.known:
            label = self.unique("baseline" + axes_text(side.axes, [a for a in self.shown if a in side.axes]))
            self.known[arm_id] = label
            self.found.arms.append(
                Arm(
                    arm_id=arm_id,
                    label=label,
                    server=self._located(server),
                    baseline_id=arm_id,
                    axes=side.axes,
                    expect=side.baseline.expect,
                )
            )
        return arm_id

    def _candidates(self, side: ServerSide, shared: ServerConfig) -> Iterator[_Candidate]:
        target = self.facts.config(side.server.model_path)
        for axes, section, points in self.sections:
            every = {**side.axes, **axes}
            suffix = axes_text(every, self.shown)
            drafts = len({point.spec.draft_model_path for point in points if point.name is None}) > 1
            for point in points:
                if excluded(point, every, section.exclude):
                    self.excluded += 1
                    continue
                candidate, problem = self._judged(point, shared, target, every, suffix, drafts)
                if problem is None or point.expect is not None:
                    yield candidate if problem is None else replace(candidate, notes=(*candidate.notes, problem))
                else:
                    self.found.illegal.append(Illegal(label=candidate.asked, reason=problem))

    def _judged(
        self,
        point: Point,
        shared: ServerConfig,
        target: Mapping[str, Any] | None,
        axes: Axes,
        suffix: str,
        say_draft: bool,
    ) -> tuple[_Candidate, str | None]:
        draft = self.facts.config(point.spec.draft_model_path)
        request = Request(
            spec=point.spec, args=shared.args, env=shared.env, device=shared.device, target=target, draft=draft
        )
        resolution = resolve(request)
        fed = feed(resolution.spec, target=target, draft=draft, version=self.facts.engine_version)
        candidate = _Candidate(
            point=point,
            label=point_label(point, resolution.spec, say_algorithm=self.say_algorithm, say_draft=say_draft) + suffix,
            asked=asked_label(point) + suffix,
            server=replace(shared, spec=point.spec),
            effective=resolution.spec,
            feed=fed,
            axes=axes,
            notes=(*resolution.notes, *fed.notes, *self._sampling_notes(shared)),
        )
        return candidate, point.problem or resolution.illegal or fed.illegal

    def _sampling_notes(self, server: ServerConfig) -> Iterator[str]:
        """sglang 0.5.23, srt/speculative/eagle_utils.py:500: on a CPU the verification is greedy, whatever is asked."""
        workload = self.experiment.workload
        temperature = workload.temperature
        sampled = temperature > 0 and not greedy_by(top_p=workload.top_p, top_k=workload.top_k)
        if server.device == "cpu" and sampled:
            yield (
                f"on the CPU engine SGLang verifies greedily whatever the temperature: its answers are greedy, the "
                f"baseline's are sampled at {temperature:g}, so it is measured but not ranked; use temperature: 0"
            )

    def _arm(self, same: Sequence[_Candidate], baseline_id: str) -> None:
        kept = next((c for c in same if c.point.spec.triple == c.effective.triple), same[0])
        arm_id = _identity(kept.server, kept.point.name)
        if (earlier := self.known.get(arm_id)) is not None:
            self.found.merged.append(Merged(kept=earlier, dropped=tuple(c.asked for c in same), reason=ASKED_AGAIN))
            return
        arm = Arm(
            arm_id=arm_id,
            label=self.unique(kept.label),
            server=self._located(kept.server),
            baseline_id=baseline_id,
            axes=kept.axes,
            captured_layers=kept.feed.layers,
            notes=kept.notes,
            expect=kept.point.expect,
        )
        self.found.arms.append(arm)
        self.known[arm_id] = arm.label
        if len(same) > 1:
            dropped = tuple(candidate.asked for candidate in same if candidate is not kept)
            self.found.merged.append(Merged(kept=arm.label, dropped=dropped, reason=_why_same(kept, same)))

    def _located(self, server: ServerConfig) -> ServerConfig:
        """The same server with `toy:` and the like turned into folders."""
        spec = server.spec
        if spec is not None and spec.draft_model_path is not None:
            spec = replace(spec, draft_model_path=self.facts.path(spec.draft_model_path))
        return replace(server, model_path=self.facts.path(server.model_path), spec=spec)


def _algorithm(point: Point) -> str:
    return "EAGLE" if point.spec.algorithm == "NEXTN" else point.spec.algorithm


def _merge_key(candidate: _Candidate, index: int) -> str:
    """Equal for requests that become the same effective configuration; a named arm equals nothing."""
    if candidate.point.name is not None:
        return f"named {index}"
    spec = candidate.effective
    layers = candidate.feed.layers
    return json.dumps(
        [
            candidate.server.model_path,
            spec.algorithm,
            spec.draft_model_path,
            [spec.num_steps, spec.eagle_topk, spec.num_draft_tokens],
            list(layers) if layers is not None else ["ids", spec.aux_layer_ids],
            dict(spec.args),
            {axis: value for axis, value in candidate.axes.items() if not axis.endswith("draft_model_path")},
            candidate.point.expect,
        ],
        sort_keys=True,
        default=str,
    )


def _why_same(kept: _Candidate, same: Sequence[_Candidate]) -> str:
    asked = {candidate.point.spec.triple for candidate in same}
    ids = {candidate.point.spec.aux_layer_ids for candidate in same}
    reasons = []
    if len(asked) > 1:
        reasons.append(f"all run as {kept.effective.triple}")
    if len(ids) > 1:
        reasons.append(f"all capture layers {', '.join(map(str, kept.feed.layers or ()))}")
    return " and ".join(reasons) or ASKED_AGAIN


def _identity(server: ServerConfig, name: str | None) -> str:
    """Hash of the canonical request without defaults: the same request has the same id on every machine."""
    request = without_defaults(server)
    request.pop("ready_timeout_s", None)
    if server.spec is not None:
        spec = without_defaults(server.spec)
        request["spec"] = {**spec, "args": dict(server.spec.args)}
    return content_id({"server": request, "name": name})


def normalised(args: Mapping[str, Any], table: FlagTable) -> dict[str, Any]:
    """Flags under their main spelling, absent ones left out; `x: false` of a --x / --no-x flag becomes `no_x: true`."""
    found: dict[str, Any] = {}
    for name, value in args.items():
        flag = table.find(name)
        key = (
            name
            if flag is None
            else ("no_" + flag.key if name.startswith("no_") and flag.shape == "toggle" else flag.key)
        )
        if value is False and flag is not None and flag.shape == "toggle":
            found["no_" + flag.key] = True
        elif isinstance(value, list) and flag is not None and flag.shape == "value":
            found[key] = json.dumps(value)
        elif isinstance(value, str) and flag is not None and flag.type == "size":
            found[key] = size_of(value)  # as the engine will report it
        elif value is not None and value is not False:
            found[key] = value
    return found


def _deprecated(args: Mapping[str, Any], table: FlagTable) -> Iterator[str]:
    for name in args:
        flag = table.find(name)
        if flag is not None and flag.deprecated:
            yield f"{name} is deprecated in SGLang {table.version}: {flag.deprecated.removeprefix('Deprecated. ')}"
