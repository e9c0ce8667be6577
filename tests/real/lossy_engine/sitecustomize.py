"""A planted fault: chains of five accept a wrong draft now and then, as an engine with a broken verification would.

Put on a server's PYTHONPATH by a test, behind the CPU engine's own folder, which hands over to it. The fault waits for
the import of the stand-in's verification, and acts only with SWEEPER_TEST_LOSSY=1.
"""

import importlib.abc
import importlib.machinery
import os
import sys

FAULTY_STEPS = 5
EVERY = 3
"""Every so many verify steps the first draft is taken whatever the target says."""


class _LossyFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        if fullname != "sgl_kernel.tree":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_spoil(module):  # type: ignore[no-untyped-def]
            run(module)
            _spoil(module)

        spec.loader.exec_module = run_and_spoil  # type: ignore[method-assign]
        return spec


def _spoil(module):  # type: ignore[no-untyped-def]
    accepted_rows = module._accepted_rows
    calls = 0

    def spoiled(tokens, rows, next_token, next_sibling, target, steps):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        if steps == FAULTY_STEPS and calls % EVERY == 0 and next_token[0] >= 0:
            target = list(target)
            target[rows[0]] = tokens[next_token[0]]
        return accepted_rows(tokens, rows, next_token, next_sibling, target, steps)

    module._accepted_rows = spoiled


if os.environ.get("SWEEPER_TEST_LOSSY") == "1":
    sys.meta_path.insert(0, _LossyFinder())
