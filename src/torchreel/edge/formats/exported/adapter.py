"""Programs of torch.export: an ExportedProgram, or the module that its module() gives."""

from __future__ import annotations

import functools
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule

from torchreel._torch.deployed import is_module_of_program
from torchreel.edge.formats.adapter import Adapter, Calls, Location, Undo
from torchreel.edge.formats.calls import watch_method
from torchreel.edge.formats.exported.fx_locations import FxLocations, location_of_node
from torchreel.edge.formats.exported.loading import load

__all__ = ["Exported", "adapts", "load"]


def adapts(module: Any) -> bool:
    return isinstance(module, ExportedProgram) or is_module_of_program(module)


class Exported(Adapter):
    """A program is no function: what is called are the modules that it gives, so all that it gives are watched."""

    format = "torch.export"
    called_from_python = True

    def __init__(self, module: Any) -> None:
        self._program: ExportedProgram | None = module if isinstance(module, ExportedProgram) else None
        self._modules: list[GraphModule] = [] if self._program is not None else [module]
        self._locations: dict[GraphModule, FxLocations] = {}
        self._runnable: GraphModule | None = None if self._program is not None else module
        self.name = _name(module)

    @property
    def runnable(self) -> GraphModule:
        """A module of the program, the same each time."""
        if self._runnable is None:
            assert self._program is not None
            self._runnable = self._program.module()
            if self._runnable not in self._modules:
                self._modules.append(self._runnable)
        return self._runnable

    def watch(self, calls: Calls) -> Undo:
        undos = [watch_method(module, "forward", calls) for module in self._modules]
        if self._program is not None:
            undos.append(self._watch_program(self._program, calls, undos))

        def undo() -> None:
            for each in undos:
                each()

        return undo

    def _watch_program(self, program: ExportedProgram, calls: Calls, undos: list[Undo]) -> Undo:
        """Modules that the program gives from now on are watched; what ends that is added to undos."""
        original = program.module

        @functools.wraps(original)
        def module(*args: Any, **kwargs: Any) -> GraphModule:
            made: GraphModule = original(*args, **kwargs)
            self._modules.append(made)
            undos.append(watch_method(made, "forward", calls))
            return made

        program.module = module
        return functools.partial(delattr, program, "module")

    def location_of_line(self, file: str, line: int) -> Location | None:
        """Where a line of the generated code stands that Python ran when it called an op."""
        for module in self._modules:
            if module not in self._locations:
                self._locations[module] = FxLocations(module)
            location = self._locations[module].location_of_line(file, line)
            if location is not None:
                return location
        return None


def _name(module: ExportedProgram | GraphModule) -> str:
    """The class of the model that was exported: the outermost of any of its ops."""
    for node in module.graph.nodes:
        location = location_of_node(node)
        if location is not None and location.modules:
            return location.modules[0][1]
    return type(module).__name__
