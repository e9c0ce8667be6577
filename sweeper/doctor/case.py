"""What the checks look at, read once, and what a check answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweeper.core.finding import Finding
from sweeper.doctor.manifest import Manifest
from sweeper.engine.checkpoints import DraftClass, Loading
from sweeper.engine.draft_config import DraftConfig, TargetConfig
from sweeper.engine.layers import Capture

EAGLE_LIKE = ("EAGLE", "NEXTN")
"""NEXTN is EAGLE by another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One draft, for one target, in one engine version."""

    version: str
    algorithm: str
    """Upper case, as the engine folds it."""
    manifest: Manifest
    config: DraftConfig
    kind: DraftClass | None
    """The draft class, by `architectures`, or by the tensors when that name is wrong; None: not one we know."""
    loading: Loading | None
    """None: no weights here, or an unknown class."""
    target: TargetConfig | None
    capture: Capture | None
    d2t: Sequence[int] | None = None
    t2d: Sequence[int] | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    """Server arguments, speculative ones with their prefix, `_` for `-`."""
    env: Mapping[str, str] = field(default_factory=dict)
    vocabularies: tuple[Mapping[str, int], Mapping[str, int]] | None = None
    """Token to id of the draft's and the target's tokenizer, where both ship one."""

    @property
    def standalone(self) -> bool:
        """The draft runs as a language model of its own."""
        return self.algorithm == "STANDALONE"

    @property
    def eagle3_draft(self) -> bool:
        return self.kind in ("eagle3-llama", "eagle3-mla")

    @property
    def eagle3_run(self) -> bool:
        """The engine captures target layers and applies d2t."""
        return self.algorithm == "EAGLE3" and self.eagle3_draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one check found; `excluded` when it looked and found nothing, `unchecked` when it could not look."""

    findings: tuple[Finding, ...] = ()
    excluded: str | None = None
    unchecked: str | None = None


def finding(severity: str, code: str, evidence: str, remedy: str) -> Finding:
    assert severity in ("error", "warning", "note")
    return Finding(code=code, severity=severity, evidence=evidence, remedy=remedy)  # type: ignore[arg-type]


def verdict(findings: Sequence[Finding | None], excluded: str) -> Verdict:
    """The findings that are there; without error or warning the topic counts as excluded."""
    there = tuple(item for item in findings if item is not None)
    quiet = all(item.severity == "note" for item in there)
    return Verdict(findings=there, excluded=excluded if quiet else None)


def some(items: Sequence[object], limit: int = 4) -> str:
    """`a, b, c and 7 more`."""
    shown = ", ".join(str(item) for item in items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"
