"""What can go wrong, as the user sees it.

SweeperError                 exit code 2 unless said otherwise; printed as one line, never a traceback
├── ConfigError              the experiment file: `file:line: what; remedy`
├── PreflightError           this machine cannot do it: no GPU, no engine, no such path, a port in use
│   ├── GpuBusy              a foreign process holds a wanted GPU
│   ├── ClusterLost          the Ray cluster is gone, or has no node left
│   └── DiskError            a folder of Sweeper's own, such as the ledger's, cannot be written
├── StoreError               a results folder that cannot be read or written
├── ComparabilityError       two results that must not be compared
└── ServerError              a server that did not do its job; becomes a Failed result inside a sweep
"""

from functools import partial


class SweeperError(Exception):
    """An expected failure with a remedy in its text."""

    exit_code = 2


class ConfigError(SweeperError):
    """Bad input in an experiment file or on the command line."""


class PreflightError(SweeperError):
    """The machine or the files named by the experiment do not allow it."""


class GpuBusy(PreflightError):
    """A wanted GPU is held by a process that is not ours."""


class DiskError(PreflightError):
    """Ledger, locks or caches of this node cannot be written: the disk is full, read-only or broken."""


class ClusterLost(PreflightError):
    """The Ray cluster is gone, or no node of it is left: no configuration is at fault, the run cannot go on now."""


class StoreError(SweeperError):
    """A results folder cannot be read or written."""


class ComparabilityError(SweeperError):
    """Two results differ in something that makes their comparison a lie."""


class ServerError(SweeperError):
    """A server failed; `failure_class` is one of core.result.FailureClass."""

    def __init__(self, message: str, *, failure_class: str, log_lines: tuple[str, ...] = (), remedy: str = "") -> None:
        super().__init__(message)
        self.failure_class = failure_class
        self.log_lines = log_lines
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        """Ray carries it between nodes, and could not make one from the message alone."""
        return partial(type(self), failure_class=self.failure_class), self.args, vars(self)


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """What went wrong first in a group of tasks; raised in an `except*`, Python before 3.11.4 would group it again."""
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
