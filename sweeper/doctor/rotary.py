"""Rotary positions in the scalings that drafts use: none, linear, llama3 and yarn."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sweeper.errors import PreflightError

Tables = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """One model's rotary settings."""

    theta: float
    kind: str
    scaling: Mapping[str, Any]
    attention_factor: float
    """Factor on queries and keys of latent attention (yarn's mscale_all_dim)."""
    share: float = 1.0
    """Of a head's width that is turned, from its beginning (`partial_rotary_factor`)."""
    halves: bool = True
    """The Llama class turns the first half of a head against the second; else neighbours (`rope_is_neox_style`)."""
    pairs: bool = True
    """Latent attention turns neighbours against each other; else halves (`rope_interleave`)."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Rotary":
        nested = config.get("rope_parameters")
        scaling = nested if isinstance(nested, Mapping) else config.get("rope_scaling") or {}
        kind = str(scaling.get("rope_type", scaling.get("type", "default")))
        if kind not in ("default", "linear", "llama3", "yarn"):
            raise PreflightError(f"rope type {kind!r} is not computed here; known: default, linear, llama3, yarn")
        theta = scaling.get("rope_theta", config.get("rope_theta", 10000.0))
        all_dims = _mscale(scaling.get("factor", 1.0), scaling.get("mscale_all_dim", 0.0)) if kind == "yarn" else 1.0
        return cls(
            theta=float(theta),
            kind=kind,
            scaling=scaling,
            attention_factor=all_dims,
            share=float(config.get("partial_rotary_factor", 1.0)),
            halves=config.get("rope_is_neox_style", True) is not False,
            pairs=config.get("rope_interleave", True) is not False,
        )

    def tables(self, positions: Tensor, width: int) -> Tables:
        """Cosines and sines [rows, width / 2]."""
        frequencies = self.theta ** (-torch.arange(0, width, 2).float() / width)
        if self.kind == "linear":
            frequencies = frequencies / self.scaling["factor"]
        elif self.kind == "llama3":
            frequencies = self._llama3(frequencies)
        elif self.kind == "yarn":
            frequencies = self._yarn(frequencies, width)
        angles = positions.float()[:, None] * frequencies
        return angles.cos() * self._amplitude(), angles.sin() * self._amplitude()

    def turn_share(self, x: Tensor, positions: Tensor) -> Tensor:
        """`x` [heads, rows, width] with the share of its width turned to its positions."""
        width = int(self.share * x.shape[-1])
        tables, turn = self.tables(positions, width), self.turn if self.halves else self.turn_pairs
        return torch.cat([turn(x[..., :width], tables), x[..., width:]], -1)

    def turn_latent(self, x: Tensor, tables: Tables) -> Tensor:
        """`x` [heads, rows, width], the part of latent attention that is turned."""
        return self.turn_pairs(x, tables) if self.pairs else self.turn(x, tables)

    @staticmethod
    def turn(x: Tensor, tables: Tables) -> Tensor:
        """Llama's order: the first half of the width turns against the second."""
        cos, sin = tables
        low, high = x.chunk(2, -1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)

    @staticmethod
    def turn_pairs(x: Tensor, tables: Tables) -> Tensor:
        """DeepSeek's order: neighbours turn against each other."""
        cos, sin = tables
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)

    def _amplitude(self) -> float:
        if self.kind != "yarn":
            return 1.0
        factor = self.scaling.get("factor", 1.0)
        if "mscale" in self.scaling or "mscale_all_dim" in self.scaling:
            return _mscale(factor, self.scaling.get("mscale", 1.0)) / _mscale(
                factor, self.scaling.get("mscale_all_dim", 0.0)
            )
        return float(self.scaling.get("attention_factor") or _mscale(factor, 1.0))

    def _llama3(self, frequencies: Tensor) -> Tensor:
        low, high = self.scaling.get("low_freq_factor", 1.0), self.scaling.get("high_freq_factor", 4.0)
        turns: Tensor = self.scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
        share: Tensor = ((turns - low) / (high - low)).clamp(0, 1)
        slowed: Tensor = frequencies / self.scaling["factor"]
        return frequencies * share + slowed * (1 - share)

    def _yarn(self, frequencies: Tensor, width: int) -> Tensor:
        span = self.scaling["original_max_position_embeddings"]

        def dimension(turns: float) -> float:
            return width * math.log(span / (turns * 2 * math.pi)) / (2 * math.log(self.theta))

        low = max(math.floor(dimension(self.scaling.get("beta_fast", 32))), 0)
        high = min(math.ceil(dimension(self.scaling.get("beta_slow", 1))), width - 1)
        ramp = ((torch.arange(width // 2).float() - low) / max(high - low, 1e-3)).clamp(0, 1)
        slowed: Tensor = frequencies / self.scaling["factor"]
        return slowed * ramp + frequencies * (1 - ramp)


def _mscale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
