"""Numbers on the command line: a range alone lets nan through, and infinity wherever a side is open."""

import math
from typing import Any

import click


class Finite(click.FloatRange):
    """A float within bounds that is a number: neither nan nor infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number to measure with; write a finite one.", param, ctx)
        return number
