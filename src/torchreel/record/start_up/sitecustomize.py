"""On PYTHONPATH of a recorded program's children: Python imports this at their start.

It waits for torch to be imported, and begins recording then: a child that never imports it is left alone.
Nothing of torchreel may be imported before that, so all that is needed stands here.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
sys.path = [path for path in sys.path if os.path.abspath(path) != _here]  # noqa: PTH100


class _AfterTorch(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _LoaderThatBegins(spec.loader)
        return spec


class _LoaderThatBegins(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        from torchreel.record.children import begin_from_environment

        begin_from_environment()


def _run_the_users_own() -> None:
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if "TORCHREEL_CHILD" in os.environ and importlib.util.find_spec("torchreel") is not None:
    sys.meta_path.insert(0, _AfterTorch())
_run_the_users_own()
