"""Programs of torch.export: an ExportedProgram, or the module that its module() gives."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from torchreel.edge import aotinductor, pt2, pt2_text
from torchreel.edge.adapter import Adapter, Calls, Deployed, InputSpec, Place, Undo
from torchreel.edge.calls import watch_method
from torchreel.edge.fx_places import FxPlaces, place_of_node
from torchreel.errors import EdgeError


def adapts(module: Any) -> bool:
    return isinstance(module, ExportedProgram) or _is_module_of_program(module)


def _is_module_of_program(module: Any) -> bool:
    # torch gives these modules a class of their own, in a file that it imports when it makes the first one.
    unlift = sys.modules.get("torch.export._unlift")
    return unlift is not None and isinstance(module, unlift._StatefulGraphModule)


class Exported(Adapter):
    """A program is no function: what is called are the modules that it gives, so all that it gives are watched."""

    format = "torch.export"
    called_from_python = True
    called_from_python = True

    def __init__(self, module: Any) -> None:
        self._program: ExportedProgram | None = module if isinstance(module, ExportedProgram) else None
        self._modules: list[GraphModule] = [] if self._program is not None else [module]
        self._places: dict[GraphModule, FxPlaces] = {}
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

    def place_of_line(self, file: str, line: int) -> Place | None:
        """Where a line of the generated code stands that Python ran when it called an op."""
        for module in self._modules:
            if module not in self._places:
                self._places[module] = FxPlaces(module)
            place = self._places[module].place_of_line(file, line)
            if place is not None:
                return place
        return None


def _name(module: ExportedProgram | GraphModule) -> str:
    """The class of the model that was exported: the outermost of any of its ops."""
    for node in module.graph.nodes:
        place = place_of_node(node)
        if place is not None and place.modules:
            return place.modules[0][1]
    return type(module).__name__


def load(path: Path) -> Deployed:
    """Load a .pt2 file: what torch.export.save wrote, or an AOTInductor package.

    Nothing of an exported program is executed that is not an op of its graph: a file that would make PyTorch do more
    than that is refused.
    """
    archive = pt2.open_archive(path)
    if archive.compiled_models():
        return aotinductor.load(path)
    pt2_text.refuse_code(archive)
    program = _load_program(archive)
    # Checks of the inputs would be generated from texts of the file, and executed. PyTorch's other checks do it, too.
    module = program.module(check_guards=False)
    inputs = _inputs(program)

    def run(tensors: Sequence[Any]) -> Any:
        args, kwargs = _arguments(program, inputs, tensors)
        with torch.no_grad():
            return module(*args, **kwargs)

    return Deployed(module, run, tuple(each.spec for each in inputs if each.spec is not None))


def _load_program(archive: pt2.Archive) -> ExportedProgram:
    try:
        programs = archive.load_programs()
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise EdgeError(
            f"The exported program in {archive.path} cannot be loaded: {reason}. Save it again with torch.export.save "
            f"of PyTorch {torch.__version__}."
        ) from error
    if len(programs) != 1:
        names = ", ".join(sorted(programs))
        raise EdgeError(
            f"{archive.path} holds {len(programs)} exported programs ({names}), and one is profiled at a time: save "
            f"it by itself with torch.export.save."
        )
    program: ExportedProgram = next(iter(programs.values()))
    return program


@dataclass(frozen=True)
class _Input:
    """An input of the exported model, in the order in which PyTorch flattens its arguments."""

    spec: InputSpec | None
    """None for a value that must always be the same."""
    constant: Any = None
    is_number: bool = False
    """The model takes a Python number."""


def _inputs(program: ExportedProgram) -> list[_Input]:
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    arguments = [spec.arg for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    return [
        _Input(None, argument.value)
        if isinstance(argument, ConstantArgument)
        else _input(argument.name, placeholders[argument.name].meta.get("val"))
        for argument in arguments
    ]


def _input(name: str, value: Any) -> _Input:
    if not isinstance(value, torch.Tensor):
        return _Input(InputSpec(name, (), None), is_number=True)
    sizes = tuple(size if isinstance(size, int) else None for size in value.shape)
    return _Input(InputSpec(name, sizes, str(value.dtype).removeprefix("torch.")))


def _arguments(program: ExportedProgram, inputs: list[_Input], tensors: Sequence[Any]) -> Any:
    """The arguments as the exported model takes them, which may be dictionaries and lists of tensors."""
    taken = sum(each.spec is not None for each in inputs)
    if taken != len(tensors):
        raise EdgeError(f"The exported program takes {taken} inputs, and {len(tensors)} were given: give one for each.")
    given = iter(tensors)
    leaves = [_value(each, given) for each in inputs]
    return pytree.tree_unflatten(leaves, program.call_spec.in_spec)


def _value(each: _Input, given: Iterator[Any]) -> Any:
    if each.spec is None:
        return each.constant
    tensor = next(given)
    return tensor.item() if each.is_number else tensor
