"""TorchScript: its interpreter calls the ops, and knows at which line of which module it is."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from torchreel.edge.formats.adapter import Adapter, Calls, Deployed, Frame, Location, Undo
from torchreel.edge.formats.eager import watch_hooks
from torchreel.edge.formats.exported.pt2 import is_exported
from torchreel.edge.formats.hierarchy import modules_of, steps_of
from torchreel.edge.formats.module_tree import with_lists
from torchreel.edge.formats.reasons import or_say
from torchreel.errors import EdgeError, first_line

# What torch calls the part of a method that it may have to differentiate.
_DIFFERENTIABLE = "<forward op>"


def adapts(module: Any) -> bool:
    return isinstance(module, torch.jit.ScriptModule)


def load(path: Path) -> Deployed:
    """Load what torch.jit.save wrote."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, OSError) as error:
        raise EdgeError(
            f"{path} is no TorchScript model, or its end is missing: {first_line(error)}. Copy it again, or save it "
            "again with torch.jit.save."
        ) from None
    if is_exported(names):
        raise EdgeError(f"{path} holds what torch.export.save writes: let its name end in .pt2.")
    if not any(name.endswith("/constants.pkl") for name in names):
        raise EdgeError(
            f"{path} holds no TorchScript but other data, perhaps weights or a pickled module, which cannot be loaded "
            "without running its code: save the model with torch.jit.save or torch.export.save."
        )
    with or_say(f"{path} cannot be loaded as TorchScript", "Save it again with torch.jit.save."):
        module = torch.jit.load(str(path), map_location="cpu")
    return Deployed(module, lambda tensors: module(*tensors))


class TorchScript(Adapter):
    format = "TorchScript"
    handles = "torchscript"

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        self._module = module
        self.name = module.original_name
        self._calls: Calls | None = None

    @property
    def runnable(self) -> torch.jit.ScriptModule:
        return self._module

    def watch(self, calls: Calls) -> Undo:
        self._calls = calls
        return watch_hooks(self._module, calls)

    def locations(self, handles: Sequence[int]) -> dict[int, Location]:
        known = self._calls.script_locations() if self._calls is not None else []
        return {handle: self._location(*known[handle]) for handle in handles if handle < len(known)}

    def _location(self, hierarchy: list[str], frames: list[tuple[str, int, str]], texts: list[str]) -> Location:
        steps = [step for text in hierarchy for step in steps_of(text)]
        modules = with_lists(self._module, modules_of(steps, texts[::-1]))
        return Location(modules, tuple(_frame(*frame) for frame in frames))


def _frame(file: str, line: int, function: str) -> Frame:
    return Frame(file, line, "forward" if function == _DIFFERENTIABLE else function)
