"""All formats: which adapter a model has, and how a file is loaded."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torchreel.edge.formats.adapter import Adapter, Deployed
from torchreel.errors import EdgeError

# Before eager: what these take are nn.Modules, too.
_ADAPTERS = {
    "torchscript": "TorchScript",
    "lite": "Lite",
    "exported.adapter": "Exported",
    "aotinductor.adapter": "AotInductor",
    "onnx.adapter": "OnnxRuntime",
    "executorch.adapter": "ExecuTorch",
    "eager": "Eager",
}
_LOADERS = {
    ".ptl": "lite",
    ".pt2": "exported.adapter",
    ".onnx": "onnx.adapter",
    ".ort": "onnx.adapter",
    ".pte": "executorch.adapter",
}
_SUFFIXES = ".pt, .ptl, .pt2, .onnx or .pte"


def _file(name: str) -> ModuleType:
    return importlib.import_module(f"torchreel.edge.formats.{name}")


def adapter_for(module: Any) -> Adapter:
    """The adapter of a model, or a sentence that says what can be profiled."""
    for name, adapter in _ADAPTERS.items():
        if _file(name).adapts(module):
            made: Adapter = getattr(_file(name), adapter)(module)
            return made
    raise EdgeError(
        f"A {type(module).__name__} cannot be profiled: give an nn.Module, a ScriptModule, a module of the lite "
        "interpreter, an ExportedProgram or its module(), an AOTInductor package, a session of ONNX Runtime or a "
        "program of ExecuTorch."
    )


def load(file: str | os.PathLike[str], check: bool = True) -> Deployed:
    """Load a model's file by its suffix, and by its contents where the suffix leaves a choice.

    A damaged file may crash what loads it. So it is first loaded, and first run, in a process of its own, whose death
    is an EdgeError here; with check=False it is not.
    """
    path = Path(file)
    if not path.exists():
        raise EdgeError(f"There is no model at {path}: check the path.")
    if path.suffix == ".reel":
        raise EdgeError(f"{path} is a reel, not a model: `torchreel report {path}` shows what is in it.")
    if path.is_dir():
        raise EdgeError(f"{path} is a directory: name the model's file in it.")
    _check_readable(path)
    load_here: Callable[[Path], Deployed] = _file(_loader(path)).load
    if not check:
        return load_here(path)
    from torchreel.edge.trial.trials import tried_before_it_runs, try_file

    tried = try_file(path)
    return tried_before_it_runs(path, load_here(path), tried)


def _check_readable(path: Path) -> None:
    if not path.is_file():  # to open a pipe would be to wait for its other end
        raise EdgeError(f"{path} is no regular file: give the path of one.")
    try:
        path.open("rb").close()
    except OSError as error:
        raise EdgeError(f"{path} cannot be read: {error.strerror or error}. Check its rights.") from None


def _loader(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in (".pt", ".pth", ".ts"):
        return "lite" if _file("lite").is_lite(path) else "torchscript"
    if suffix not in _LOADERS:
        raise EdgeError(f"{path} has no suffix of a model's format: it must end in {_SUFFIXES}.")
    return _LOADERS[suffix]
