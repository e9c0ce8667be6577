"""Runs for notebooks: `run = sweeper.load_run(path); run.speedup(); run.figure("pareto")`."""

from functools import cached_property
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from sweeper.analysis.compare import Comparison, compare
from sweeper.analysis.figures import FIGURES, Theme, draw
from sweeper.analysis.golden import matching_curves
from sweeper.analysis.requests import request_frame, turn_frame
from sweeper.analysis.tables import frame
from sweeper.core.run import RunData
from sweeper.present.assets import golden
from sweeper.present.locate import run_folder, runs_below
from sweeper.store.reader import read_run, read_samples

SPEEDUP_COLUMNS = [
    "arm",
    "effective",
    "concurrency",
    "load",
    "output_tok_per_s",
    "speedup",
    "speedup_low",
    "speedup_high",
    "verdict",
]


class Run:
    """One run, read once; what is derived from it is computed when asked for."""

    def __init__(self, data: RunData) -> None:
        self.data = data

    @cached_property
    def comparison(self) -> Comparison:
        return compare(self.data)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row a trial."""
        return frame(self.data, self.comparison)

    @cached_property
    def turns(self) -> pd.DataFrame:
        """One row a trial and turn of its conversations; empty where no prompt has a second turn."""
        return turn_frame(self.comparison)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row a request of every measurement, with its prompt, turn, times in ms and tokens. Raises StoreError."""
        return request_frame(self.data, lambda measurement: read_samples(self.data.path, measurement))

    @property
    def figures(self) -> tuple[str, ...]:
        """Names that `figure` knows."""
        return tuple(FIGURES)

    def speedup(self) -> pd.DataFrame:
        """Speed against the baseline, fastest first within each load point."""
        table = self.frame.loc[:, SPEEDUP_COLUMNS]
        return table.sort_values(["concurrency", "speedup"], ascending=[True, False], ignore_index=True)

    def figure(self, name: str, *, theme: Theme = "light") -> go.Figure:
        """One figure of the report; raises KeyError for an unknown name, ValueError when the run has no data for it."""
        curves = matching_curves(self.data, golden()).curves
        drawn = draw(self.data, self.comparison, name, theme=theme, golden=curves)
        if drawn is None:
            raise ValueError(f"this run has nothing to draw in {name!r}")
        return drawn.figure


def load_run(path: str | Path) -> Run:
    """The run in folder `path`, or the latest below it. Raises StoreError."""
    return Run(read_run(run_folder(Path(path))))


def load_results(path: str | Path = "results") -> pd.DataFrame:
    """One row a trial, of every run in or below folder `path`; columns as in analysis.tables. Raises StoreError."""
    return pd.concat([frame(read_run(run)) for run in runs_below(Path(path))], ignore_index=True)
