"""The nodes of a graph, from the ops of a program."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx.passes.shape_prop import TensorMetadata

from torchreel.errors import TapeError
from torchreel.program.model import (
    GET_RNG,
    NEW_SEED,
    SEED,
    SEEN,
    SET_RNG,
    Binding,
    Complex,
    Device,
    Formula,
    Generator,
    Named,
    Op,
    Program,
    Ref,
    Slot,
    StorageOf,
    Tree,
    Value,
)
from torchreel.program.query.last_uses import gradients_to_be_none
from torchreel.program.query.source_frames import source_frame, source_line
from torchreel.program.schema import Argument, arguments
from torchreel.program.text import constant as constant_text
from torchreel.program.text.call import is_number, is_sized_by_values, takes_numbers
from torchreel.program.text.naming import Names, slots_in
from torchreel.tape import graph_functions
from torchreel.tape.transform.attribute_names import AttributeNames

_OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
}


class GraphBuilder:
    """Fills a graph with the ops of a program, one after the other."""

    def __init__(self, program: Program, tensors: Mapping[int, torch.Tensor], graph: torch.fx.Graph) -> None:
        self._program = program
        self._tensors = tensors
        self._graph = graph
        self._root: dict[str, torch.Tensor] = {}
        self._attributes = AttributeNames()
        self._names = Names()
        self._nodes: dict[int, torch.fx.Node] = {}  # by slot
        self._objects: dict[int, torch.fx.Node] = {}  # the tensors that were given, whatever came to their slots since
        self._items: dict[int, torch.fx.Node] = {}  # numbers by op
        self._generators: dict[int, torch.fx.Node] = {}
        self._written = _written_storages(program)

    def build(self) -> dict[str, torch.Tensor]:
        """Fill the graph; what its attributes are."""
        for entry in self._program.inputs:
            node = self._graph.placeholder(self._names.unique(entry.name or "input"))
            self._nodes[entry.slot] = self._objects[entry.slot] = self._described(node, entry.slot)
        for index in range(len(self._program.generators)):
            self._generators[index] = self._generator(index)
        owners = [self._node(slot) for slot in gradients_to_be_none(self._program)]
        if owners:
            self._call(graph_functions.without_gradients, (owners,))
        for op_index, op in enumerate(self._program.ops):
            before = len(self._graph.nodes)
            self._op(op_index, op)
            self._note_source(op, len(self._graph.nodes) - before)
        for binding in self._program.bindings:
            self._bind(binding)
        self._graph.output(self._tree(self._program.outputs))
        return self._root

    def _generator(self, index: int) -> torch.fx.Node:
        known = self._program.generators[index]
        state = () if known.is_default else (constant_text.packed(known.state),)
        return self._call(graph_functions.generator, (known.device, *state))

    def _op(self, op_index: int, op: Op) -> None:
        if op.name == SET_RNG:
            self._call(graph_functions.set_state, tuple(self._value(value) for value in op.args))
            return
        if op.name in (GET_RNG, SEED, NEW_SEED):
            ask = {GET_RNG: graph_functions.get_state, SEED: graph_functions.seed, NEW_SEED: graph_functions.new_seed}
            self._result(op_index, op, self._call(ask[op.name], (self._value(op.args[0]),)), op.results[0])
            return
        if op.name == SEEN:
            digest = self._call(graph_functions.digest, (self._value(op.args[0]),))
            self._call(graph_functions.guard, (digest, op.results[0], source_line(self._program, op)))
            return
        args, kwargs = self._arguments(op)
        node = self._graph.create_node("call_function", _overload(self._program, op), args, kwargs)
        if len(op.results) == 1:
            self._result(op_index, op, node, op.results[0])
            return
        for index, value in enumerate(op.results):
            if value is not None:
                self._result(op_index, op, self._call(operator.getitem, (node, index)), value)

    def _arguments(self, op: Op) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, as few as the schema allows: defaults are left out."""
        found = arguments(self._program.schemas.get(op.name, ""))
        parameters = list(found) if len(found) == len(op.args) else [None] * len(op.args)
        positional: list[tuple[Any, bool]] = []
        by_name = {}
        for parameter, value in zip(parameters, op.args, strict=True):
            given = parameter is None or not parameter.is_default(value)
            if parameter is None or not parameter.keyword_only:
                positional.append((self._argument(op, parameter, value) if given else value, given))
            elif given:
                by_name[parameter.name] = self._argument(op, parameter, value)
        while positional and not positional[-1][1]:
            positional.pop()
        return tuple(value for value, _ in positional), by_name

    def _argument(self, op: Op, parameter: Argument | None, value: Value) -> Any:
        if isinstance(value, Ref) and is_number(self._program, op, parameter, value):
            return _plain(self._program.slots[value.slot].number)
        found = self._value(value)
        if isinstance(value, Formula) and parameter is not None and parameter.is_tensor and not takes_numbers(op):
            return self._call(graph_functions.number, (found,))
        return found

    def _value(self, value: Value) -> Any:
        if isinstance(value, list):
            return [self._value(part) for part in value]
        if isinstance(value, Ref):
            return self._node(value.slot)
        if isinstance(value, StorageOf):
            return self._call(graph_functions.storage, (self._node(value.slot),))
        if isinstance(value, Generator):
            return self._generators[value.index]
        if isinstance(value, Formula):
            return self._formula(value)
        return _plain(value)

    def _node(self, slot: int) -> torch.fx.Node:
        if slot not in self._nodes:
            self._nodes[slot] = self._attribute(slot)
        return self._nodes[slot]

    def _attribute(self, index: int) -> torch.fx.Node:
        """A tensor from outside, where it is first needed."""
        slot = self._program.slots[index]
        if index not in self._tensors:
            raise TapeError(
                f"The tensor {slot.name or index!r} of the tape is not here, because the tape was saved without its "
                "data: save it with data, or trace the function again."
            )
        target = self._attributes.unique(slot.name or f"{slot.role}_{index}")
        self._root[target] = self._tensors[index]
        node = self._described(self._graph.create_node("get_attr", target), index)
        self._objects[index] = node
        if slot.role == "constant" and slot.storage in self._written:  # else the next run would begin with what is left
            return self._described(self._call(torch.ops.aten.clone.default, (node,)), index)
        return node

    def _formula(self, value: Formula) -> Any:
        stack: list[Any] = []
        for part in value.postfix:
            if isinstance(part, str) and part.startswith("item:"):
                stack.append(self._items[int(part.removeprefix("item:"))])
            elif part == "neg":
                stack.append(self._call(operator.neg, (stack.pop(),)))
            elif part == "sqrt":
                stack.append(self._call(math.sqrt, (stack.pop(),)))
            elif isinstance(part, str):
                right, left = stack.pop(), stack.pop()
                stack.append(self._call(_OPERATORS[part], (left, right)))
            else:
                stack.append(part)
        return stack[0]

    def _result(self, op_index: int, op: Op, node: torch.fx.Node, value: Value) -> None:
        """Bind what an op gave to its slots; compare what left for Python."""
        if isinstance(value, list):
            for index, part in enumerate(value):
                if part is not None:
                    self._result(op_index, op, self._call(operator.getitem, (node, index)), part)
        elif isinstance(value, Ref):
            self._nodes[value.slot] = self._described(node, value.slot)
            if is_sized_by_values(self._program, op):
                where = source_line(self._program, op)
                self._call(graph_functions.guard_size, (node, list(self._program.slots[value.slot].sizes), where))
        elif value is not None:
            self._items[op_index] = node
            if op.guarded:
                self._call(graph_functions.guard, (node, _plain(value), source_line(self._program, op) or op.name))

    def _bind(self, binding: Binding) -> None:
        node = self._node(binding.owner)
        owner = self._objects.get(binding.owner, node)
        value = self._node(binding.value) if binding.value >= 0 else None
        if binding.kind == "grad":
            self._call(graph_functions.set_gradient, (owner, value))
        elif binding.kind == "data":
            self._call(graph_functions.set_data, (owner, value))
        else:
            self._call(torch.ops.aten.copy_.default, (owner, value))

    def _tree(self, tree: Tree) -> Any:
        if tree.kind == "leaf":
            return self._value(tree.leaf)
        parts = [self._tree(part) for part in tree.parts]
        if tree.kind == "dict":
            return dict(zip(tree.keys, parts, strict=True))
        return tuple(parts) if tree.kind == "tuple" else parts

    def _call(self, function: Any, args: tuple[Any, ...]) -> torch.fx.Node:
        return self._graph.call_function(function, args)

    def _described(self, node: torch.fx.Node, index: int) -> torch.fx.Node:
        """What torch.fx's own passes note of a tensor."""
        slot = self._program.slots[index]
        node.meta["tensor_meta"] = _metadata(slot)
        return node

    def _note_source(self, op: Op, count: int) -> None:
        """On the nodes that an op became: where it was called. print_readable() shows it."""
        frame = source_frame(self._program, op)
        module = self._program.modules[op.module] if op.module >= 0 else None
        about = {
            "source": source_line(self._program, op),
            "module": module.path if module is not None else "",
            "backward": op.backward,
        }
        if frame is not None:
            where = f'File "{frame.file}", line {frame.line}, in {frame.function}'
            about["stack_trace"] = f"{where}\n  {frame.text}"
        for node, _ in zip(reversed(self._graph.nodes), range(count), strict=False):
            node.meta.update(about)


def _overload(program: Program, op: Op) -> Any:
    space, _, rest = op.name.rpartition("::")
    name, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, space), name), overload or "default")
    except AttributeError:
        raise TapeError(
            f"torch {torch.__version__} has no op {op.name} ({source_line(program, op)}): "
            "import the library that registers it, or trace the function again."
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, Complex):
        return complex(value.real, value.imag)
    if isinstance(value, Device):
        return torch.device(value.name)
    if isinstance(value, Named):
        return getattr(torch, value.name)
    return value


def _metadata(slot: Slot) -> TensorMetadata:
    return TensorMetadata(
        shape=torch.Size(slot.sizes),
        dtype=getattr(torch, slot.dtype),
        requires_grad=slot.requires_grad,
        stride=slot.strides,
        memory_format=None,
        is_quantized=False,
        qparams={},
    )


def _written_storages(program: Program) -> set[int]:
    """The storages that an op writes to."""
    found: set[int] = set()
    for op in program.ops:
        for parameter, value in zip(arguments(program.schemas.get(op.name, "")), op.args, strict=False):
            if parameter.written:
                found.update(program.slots[slot].storage for slot in slots_in([value]))
    return found
