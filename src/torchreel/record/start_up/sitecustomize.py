"""On PYTHONPATH of a recorded program's children: Python imports this at their start, and it waits for torch."""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - before anything else is imported
sys.path = [path for path in sys.path if os.path.abspath(path) != _here]  # noqa: PTH100


def _run_the_users_own() -> None:
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if "TORCHREEL_CHILD" in os.environ and importlib.util.find_spec("torchreel") is not None:
    from torchreel.record.children import watch_torch

    watch_torch()
_run_the_users_own()
