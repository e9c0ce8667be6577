"""Lets SGLang use its CPU engine on processors without Intel AMX.

Python runs this file when its folder stands on PYTHONPATH. It does nothing unless
SGLANG_USE_CPU_ENGINE=1, and it hands over to any other sitecustomize that it shadows.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


class _TorchCpuFinder(importlib.abc.MetaPathFinder):
    """Answers "AMX tiles are present" as soon as torch.cpu exists, without importing torch before it is wanted.

    SGLang asks once, at import, and without that answer falls back to an attention backend that cannot verify trees.
    """

    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        if fullname != "torch.cpu":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_answer(module):  # type: ignore[no-untyped-def]
            run(module)
            module._is_amx_tile_supported = lambda: True

        spec.loader.exec_module = run_and_answer  # type: ignore[method-assign]
        return spec


def _run_shadowed_sitecustomize() -> None:
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("SGLANG_USE_CPU_ENGINE") == "1":
    sys.meta_path.insert(0, _TorchCpuFinder())
_run_shadowed_sitecustomize()
