"""Which arms the doctor refuses before any server is started."""

from pathlib import Path
from typing import Literal, get_args

from sweeper.core.result import FailureClass
from sweeper.core.trial import Arm, Plan, ServerConfig
from sweeper.doctor.examine import Diagnosis, examine
from sweeper.effects.hub import local_checkpoint
from sweeper.errors import PreflightError

SPECULATES_WITHOUT_DRAFT = ("NGRAM", "STANDALONE")


def doctor_skips(plan: Plan, mode: Literal["error", "warn", "off"]) -> tuple[tuple[str, str, str], ...]:
    """(arm_id, reason, finding code) of the arms with an error; an arm that expects a failure class runs into it."""
    if mode != "error":
        return ()
    skips = []
    seen: dict[str, Diagnosis] = {}
    for arm in plan.arms:
        if arm.expect in get_args(FailureClass):
            continue
        diagnosis = _examined(arm, plan.engine_version or "", seen)
        if diagnosis is not None and diagnosis.errors:
            first = next((item for item in diagnosis.errors if item.code == arm.expect), diagnosis.errors[0])
            skips.append((arm.arm_id, f"doctor: {first.code}: {first.evidence}; {first.remedy}", first.code))
    return tuple(skips)


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
    if spec is None or spec.draft_model_path is None or spec.algorithm.upper() in SPECULATES_WITHOUT_DRAFT:
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
    return {**server.args, **spec}
