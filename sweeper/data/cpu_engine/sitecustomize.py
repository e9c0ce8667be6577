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


class _CpuEngineFinder(importlib.abc.MetaPathFinder):
    """Answers "AMX tiles are present" as soon as torch.cpu exists, and spares the CPU engine an import of flashinfer.

    SGLang asks for the tiles once, at import, and without them falls back to an attention backend that cannot verify
    trees; hooking the import keeps torch out of helper processes that never want it. flashinfer has CUDA kernels only;
    SGLang does without it, and each of its three processes starts 4 s of CPU time sooner.
    """

    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        if fullname == "flashinfer":
            return importlib.machinery.ModuleSpec(fullname, _Refusal())
        if fullname != "torch.cpu":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_answer(module):  # type: ignore[no-untyped-def]
            run(module)
            module._is_amx_tile_supported = lambda: True

        spec.loader.exec_module = run_and_answer  # type: ignore[method-assign]
        return spec


class _Refusal(importlib.abc.Loader):
    def create_module(self, spec):  # type: ignore[no-untyped-def]
        raise ImportError(f"{spec.name} is not used by Sweeper's CPU engine: its kernels need CUDA", name=spec.name)

    def exec_module(self, module):  # type: ignore[no-untyped-def]
        """Never reached; a loader must have it."""


def _run_shadowed_sitecustomize() -> None:
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("SGLANG_USE_CPU_ENGINE") == "1":
    sys.meta_path.insert(0, _CpuEngineFinder())
_run_shadowed_sitecustomize()
