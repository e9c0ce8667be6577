"""Speculation counters in all the spellings that SGLang has used (facts: verl PR #7543, sglang PR #24081, #25014)."""

from collections.abc import Mapping
from typing import Any

from sweeper.core.sample import SpecCounters

_VERIFY = ("spec_verify_ct",)
_CORRECT = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")


def spec_counters(meta: Mapping[str, Any]) -> SpecCounters | None:
    """Counters of one finished request, from `meta_info` or `sglext.spec_tokens_details`; None: no verify step ran.

    A counter under an unknown name stays None: it must never be read as zero.
    """
    steps = _count(meta, _VERIFY)
    if not steps:
        return None
    histogram = next((meta[name] for name in _HISTOGRAM if isinstance(meta.get(name), list)), None)
    return SpecCounters(
        verify_steps=steps,
        correct_drafts=_count(meta, _CORRECT),
        proposed_drafts=_count(meta, _PROPOSED),
        histogram=tuple(int(count) for count in histogram) if histogram else None,
    )


def _count(meta: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = meta.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None
