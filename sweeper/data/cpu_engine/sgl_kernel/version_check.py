"""One warning, per server and not per process, when the engine is another than the tested one."""

import os
import warnings
from importlib import metadata

TESTED_ENGINES = ("0.5.23",)
_WARNED = "SWEEPER_CPU_ENGINE_WARNED"  # inherited by the engine's own subprocesses


def warn_if_untested() -> None:
    try:
        version = metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return
    if version in TESTED_ENGINES or _WARNED in os.environ:
        return
    os.environ[_WARNED] = version
    warnings.warn(
        f"Sweeper's CPU engine is tested with SGLang {', '.join(TESTED_ENGINES)}; this is {version}."
        " If an op has changed, the failure names it.",
        stacklevel=2,
    )
