"""What the planner, the doctor and the comparison say about an input."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence of diagnosis."""

    code: str
    """Stable, kebab-case: `d2t-absolute-ids`."""
    severity: Severity
    evidence: str
    """What was seen, with numbers."""
    remedy: str
