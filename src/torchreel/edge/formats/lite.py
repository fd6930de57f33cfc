"""The lite interpreter's modules: each op has a debug handle, which the file's debug maps explain."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchreel import _lite
from torchreel._torch.deployed import cpp_module_of_lite, load_lite
from torchreel.edge.formats.adapter import Adapter, Calls, Deployed, Location, Undo
from torchreel.edge.formats.calls import watch_call, watch_method
from torchreel.edge.formats.hierarchy import modules_of, steps_of
from torchreel.edge.formats.reasons import or_say
from torchreel.edge.formats.tracebacks import frames_of, texts_of
from torchreel.errors import EdgeError

# torch gives it to the outermost call, whose method its maps do not name.
_UNKNOWN_FUNCTION = "<unknown>"


def adapts(module: Any) -> bool:
    mobile = sys.modules.get("torch.jit.mobile")
    return mobile is not None and isinstance(module, mobile.LiteScriptModule)


def is_lite(path: Path) -> bool:
    """Whether a file holds bytecode of the lite interpreter."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("bytecode.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, OSError):
        return False


def load(path: Path) -> Deployed:
    """Load what _save_for_lite_interpreter wrote."""
    if not is_lite(path):
        raise EdgeError(
            f"{path} holds no bytecode of the lite interpreter, or is damaged: save the model again with "
            "_save_for_lite_interpreter."
        )
    with or_say(f"{path} cannot be loaded by the lite interpreter", "Save it again with _save_for_lite_interpreter."):
        module = load_lite(str(path))
    return Deployed(module, lambda tensors: module(*tensors))


class Lite(Adapter):
    format = "lite interpreter"
    handles = "lite"

    def __init__(self, module: Any) -> None:
        self._module = module
        self.arities = {handle: given for handle, given in _lite.ops(cpp_module_of_lite(module)) if given >= 0}
        found = self._class_of_model()
        self.name = found or "model"
        if found is None:
            self.remark = (
                "The model was saved without debug information, so its ops have no modules and no source lines: save "
                "it with _save_for_lite_interpreter(..., _save_mobile_debug_info=True)."
            )

    def _class_of_model(self) -> str | None:
        """The class of the outermost module, as any handle has it; None if the file explains none."""
        for handle in self.arities:
            steps = steps_of(self._texts(handle)[0])
            if steps:
                return steps[0][1]
        return None

    def _texts(self, handle: int) -> tuple[str, str]:
        """The hierarchy and the traceback of a handle; of a damaged file they may be no text."""
        try:
            return _lite.location(cpp_module_of_lite(self._module), handle)
        except (UnicodeDecodeError, RuntimeError):
            return "", ""

    @property
    def runnable(self) -> Any:
        return self._module

    def watch(self, calls: Calls) -> Undo:
        undos = [watch_method(self._module, name, calls) for name in ("forward", "run_method")]
        undos.append(watch_call(self._module, calls))

        def undo() -> None:
            for each in reversed(undos):
                each()

        return undo

    def locations(self, handles: Sequence[int]) -> dict[int, Location]:
        if self.remark is not None:
            return {}
        locations = {handle: _location(*self._texts(handle)) for handle in handles}
        return {handle: location for handle, location in locations.items() if location.modules or location.frames}

    def locations_of_backend(self, handles: Sequence[int]) -> dict[int, Location]:
        return self.locations(handles)


def _location(hierarchy: str, traceback: str) -> Location:
    frames = tuple(replace(frame, function=_function(frame.function)) for frame in frames_of(traceback))
    return Location(modules_of(steps_of(hierarchy), texts_of(traceback)[::-1]), frames)


def _function(name: str) -> str:
    return "forward" if name == _UNKNOWN_FUNCTION else name
