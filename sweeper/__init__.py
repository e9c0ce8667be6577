"""Sweeper: which speculative-decoding configuration makes a model faster under SGLang."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sweeper.present.notebook import load_results, load_run

__all__ = ["__version__", "load_results", "load_run"]


def __getattr__(name: str) -> object:
    """`load_run` and `load_results` bring pandas and plotly: only when somebody asks for them."""
    if name in ("load_run", "load_results"):
        from sweeper.present import notebook

        return getattr(notebook, name)
    raise AttributeError(f"module 'sweeper' has no attribute {name!r}")
