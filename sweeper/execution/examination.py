"""What the doctor says of a plan's drafts before any server is started, and which arms it refuses."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from sweeper.core.finding import Finding
from sweeper.core.result import FailureClass
from sweeper.core.trial import Arm, Plan, ServerConfig
from sweeper.doctor.examine import Diagnosis, examine
from sweeper.effects.hub import local_checkpoint
from sweeper.errors import PreflightError

SPECULATES_WITHOUT_DRAFT = "NGRAM"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The doctor's word on a plan."""

    skips: tuple[tuple[str, str, str], ...] = ()
    """(arm_id, reason, finding code) of the arms that must not run."""
    warnings: tuple[str, ...] = ()
    """What was found and stops nothing, in sentences; each once, with its arms."""


def examine_plan(plan: Plan, mode: Literal["error", "warn", "off"]) -> Examined:
    """`error`: arms with an error are skipped, but for those that expect a failure class, which run into it."""
    if mode == "off":
        return Examined()
    skips = []
    unread: list[str] = []
    told: list[tuple[str, Finding]] = []
    seen: dict[str, Diagnosis] = {}
    for arm in plan.arms:
        try:
            diagnosis = _examined(arm, plan.engine_version or "", seen)
        except PreflightError as error:
            if mode == "error":
                raise
            unread.append(f"doctor: {arm.label}: not looked at: {error}")
            continue
        if diagnosis is None:
            continue
        refused = mode == "error" and arm.expect not in get_args(FailureClass)
        if refused and diagnosis.errors:
            first = next((item for item in diagnosis.errors if item.code == arm.expect), diagnosis.errors[0])
            skips.append((arm.arm_id, f"doctor: {first.code}: {first.evidence}; {first.remedy}", first.code))
        told += [
            (arm.label, item)
            for item in diagnosis.findings
            if item.code != arm.expect and (item.severity == "warning" or (item.severity == "error" and mode == "warn"))
        ]
    return Examined(skips=tuple(skips), warnings=(*unread, *doctor_sentences(told)))


def arm_findings(plan: Plan) -> tuple[tuple[str, Finding], ...]:
    """(arm label, finding) of every arm whose draft is here, but for what the arm expects. Files only."""
    found: list[tuple[str, Finding]] = []
    seen: dict[str, Diagnosis] = {}
    for arm in plan.arms:
        try:
            diagnosis = _examined(arm, plan.engine_version or "", seen)
        except PreflightError:
            continue
        found += [(arm.label, item) for item in diagnosis.findings if item.code != arm.expect] if diagnosis else []
    return tuple(found)


def doctor_sentences(found: Iterable[tuple[str, Finding]]) -> tuple[str, ...]:
    """One sentence a finding, with the arms it is of."""
    arms: dict[Finding, list[str]] = {}
    for label, item in found:
        arms.setdefault(item, []).append(label)
    return tuple(
        f"doctor: {', '.join(labels)}: {item.severity} {item.code}: {item.evidence.rstrip('.')}; {item.remedy}"
        for item, labels in arms.items()
    )


def examined_arm(arm: Arm, version: str | None) -> Diagnosis | None:
    """The doctor's word on one arm of a finished run; None: nothing to examine, or its files are not here."""
    if version is None:
        return None
    try:
        return _examined(arm, version, {})
    except PreflightError:
        return None


def _examined(arm: Arm, version: str, seen: dict[str, Diagnosis]) -> Diagnosis | None:
    """None: nothing to examine. Arms that differ only in tree shape share their examination."""
    spec = arm.server.spec
    if spec is None or spec.draft_model_path is None or spec.algorithm.upper() == SPECULATES_WITHOUT_DRAFT:
        return None
    key = repr((spec.algorithm, spec.draft_model_path, spec.aux_layer_ids, arm.server.model_path, _knobs(arm.server)))
    if key not in seen:
        seen[key] = examine(
            Path(local_checkpoint(spec.draft_model_path)),
            Path(local_checkpoint(arm.server.model_path)),
            version=version,
            algorithm=spec.algorithm,
            aux_layer_ids=spec.aux_layer_ids,
            args=_knobs(arm.server),
            env=arm.server.env,
        )
    return seen[key]


def _knobs(server: ServerConfig) -> dict[str, object]:
    spec = {f"speculative_{name}": value for name, value in server.spec.args.items()} if server.spec else {}
    return {"device": server.device, **server.args, **spec}
