"""The figures of a run, one set for report, dashboard and notebooks."""

from collections.abc import Callable
from dataclasses import replace

from sweeper.analysis.compare import Comparison
from sweeper.analysis.figures.acceptance import heatmap, layers, positions, step_cost
from sweeper.analysis.figures.chains import chains
from sweeper.analysis.figures.common import Drawn, Material
from sweeper.analysis.figures.course import power, timeline
from sweeper.analysis.figures.speed import categories, crossover, latency, pareto, speedup
from sweeper.analysis.figures.style import Theme, template
from sweeper.analysis.golden import GoldenCurve
from sweeper.analysis.simulated import BADGE, is_simulated
from sweeper.core.run import RunData

_DRAWN: dict[str, Callable[[Material], Drawn | None]] = {
    "speedup": speedup,
    "crossover": crossover,
    "pareto": pareto,
    "step_cost": step_cost,
    "positions": positions,
    "chains": chains,
    "heatmap": heatmap,
    "layers": layers,
    "categories": categories,
    "latency": latency,
    "timeline": timeline,
    "power": power,
}


def _badged(make: Callable[[Material], Drawn | None]) -> Callable[[Material], Drawn | None]:
    def drawn(material: Material) -> Drawn | None:
        made = make(material)
        return replace(made, title=f"{made.title} ({BADGE})") if made and is_simulated(material.run) else made

    return drawn


FIGURES: dict[str, Callable[[Material], Drawn | None]] = {name: _badged(make) for name, make in _DRAWN.items()}
"""Name → how it is drawn; None when the run has nothing to draw there. In the order of a report."""


def draw(
    run: RunData, comparison: Comparison, name: str, *, theme: Theme = "light", golden: tuple[GoldenCurve, ...] = ()
) -> Drawn | None:
    """One figure by name; KeyError names the known ones."""
    if name not in FIGURES:
        raise KeyError(f"no figure {name!r}; there are {', '.join(FIGURES)}")
    return FIGURES[name](Material.of(run, comparison, theme, golden))


def draw_all(
    run: RunData, comparison: Comparison, *, theme: Theme = "light", golden: tuple[GoldenCurve, ...] = ()
) -> tuple[Drawn, ...]:
    """Every figure that has something to show, in the order of a report."""
    material = Material.of(run, comparison, theme, golden)
    return tuple(drawn for make in FIGURES.values() if (drawn := make(material)) is not None)


__all__ = ["FIGURES", "Drawn", "Material", "Theme", "draw", "draw_all", "template"]
