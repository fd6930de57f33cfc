"""A .pt2 file -> a model that is ready to run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx import GraphModule

from torchreel._torch.deployed import unflatten
from torchreel.edge.formats.adapter import Deployed, InputSpec
from torchreel.edge.formats.aotinductor import adapter as aotinductor
from torchreel.edge.formats.exported import pt2, pt2_text
from torchreel.edge.formats.exported.containers import stand_in_for_containers
from torchreel.edge.formats.reasons import or_say
from torchreel.errors import EdgeError


def load(path: Path) -> Deployed:
    """Load a .pt2 file: what torch.export.save wrote, or an AOTInductor package.

    Nothing of an exported program is executed that is not an op of its graph: a file that would make PyTorch do more
    than that is refused.
    """
    archive = pt2.open_archive(path)
    if archive.compiled_models():
        return aotinductor.load(path)
    pt2_text.refuse_code(archive)
    with or_say(
        f"The exported program in {path} cannot be loaded",
        f"Save it again with torch.export.save of PyTorch {torch.__version__}.",
    ):
        program = _program(archive)
        module, inputs = _module(program), _inputs(program)

    def run(tensors: Sequence[Any]) -> Any:
        args, kwargs = _arguments(program, inputs, tensors)
        with torch.no_grad():
            return module(*args, **kwargs)

    return Deployed(module, run, tuple(each.spec for each in inputs if each.spec is not None))


def _program(archive: pt2.Archive) -> ExportedProgram:
    name = archive.only(archive.programs(), "exported programs", "save it by itself with torch.export.save")
    stand_in_for_containers(archive, name)
    program: ExportedProgram = archive.load_programs()[name]
    return program


def _module(program: ExportedProgram) -> GraphModule:
    _check_weights(program)
    # Checks of the inputs would be generated from texts of the file, and executed. PyTorch's other checks do it, too.
    module: GraphModule = program.module(check_guards=False)
    return module


def _check_weights(program: ExportedProgram) -> None:
    """Some ops of PyTorch do not look at their weights' sizes, and end the process if they are not what they say."""
    weights = {**program.state_dict, **program.constants}
    expected = {node.name: node.meta["val"] for node in _placeholders(program)}
    for spec in program.graph_signature.input_specs:
        weight, value = weights.get(spec.target), expected.get(spec.arg.name)
        if isinstance(weight, torch.Tensor) and isinstance(value, torch.Tensor):
            kept, said = (weight.shape, weight.dtype), (value.shape, value.dtype)
            if kept != said:
                raise ValueError(
                    f"its weight {spec.target} is a {_text(*kept)}, where the program takes a {_text(*said)}"
                )


def _text(shape: Any, dtype: torch.dtype) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


def _placeholders(program: ExportedProgram) -> list[Any]:
    return [node for node in program.graph.nodes if node.op == "placeholder"]


@dataclass(frozen=True)
class _Input:
    """An input of the exported model, in the order in which PyTorch flattens its arguments."""

    spec: InputSpec | None
    """None for a value that must always be the same."""
    constant: Any = None
    is_number: bool = False
    """The model takes a Python number."""


def _inputs(program: ExportedProgram) -> list[_Input]:
    placeholders = {node.name: node for node in _placeholders(program)}
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
    return unflatten(leaves, program.call_spec.in_spec)


def _value(each: _Input, given: Iterator[Any]) -> Any:
    if each.spec is None:
        return each.constant
    tensor = next(given)
    return tensor.item() if each.is_number else tensor
