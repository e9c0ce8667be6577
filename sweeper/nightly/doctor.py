"""What the doctor says of every arm's draft tonight, so that a drop can be explained by what changed."""

from collections.abc import Mapping

from sweeper.analysis.nightly.record import ArmNight
from sweeper.core.trial import Plan
from sweeper.execution.examination import examined_arm


def doctor_of(plan: Plan) -> Mapping[str, ArmNight]:
    """Speculative arms by label; an arm whose files are not here is left out."""
    found = {}
    for arm in plan.arms:
        diagnosis = examined_arm(arm, plan.engine_version) if arm.server.spec else None
        if diagnosis is not None:
            telling = [item for item in diagnosis.findings if item.severity != "note"]
            found[arm.label] = ArmNight(
                captured_layers=diagnosis.captured_layers,
                findings=tuple(f"{item.code}: {item.evidence}; {item.remedy}" for item in telling),
            )
    return found
