"""A speculative request with everything the engine's rules look at, and the refusal they raise."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeper.core.trial import SpecConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One speculative request with everything the rules look at. Configs are config.json as dicts; None: not here."""

    spec: SpecConfig
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    device: str = "cuda"
    target: Mapping[str, Any] | None = None
    draft: Mapping[str, Any] | None = None


class Refused(Exception):
    """The engine would not start, or would not do what is asked; the text is the reason with a remedy."""


def attention_dp(args: Mapping[str, Any]) -> bool:
    """Does this server split attention over data-parallel ranks?"""
    return bool(args.get("enable_dp_attention")) or int(args.get("attn_dp_size") or 1) > 1
