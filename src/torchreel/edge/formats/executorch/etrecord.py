"""What an ETRecord says of a program: the ops that each instruction was made from, and where they stand in the source.

An ETRecord is an archive that export writes. Of it, texts are read, and only as texts: two tables of numbers and the
graph of each method. The weights and example inputs beside them are archives of their own that could hold code, and
are left alone.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchreel.edge.formats.adapter import Location, TensorType
from torchreel.edge.formats.executorch.op_call import Argument, OpCall
from torchreel.edge.formats.tracebacks import frames_of
from torchreel.errors import EdgeError

_IDENTIFIER = "ETRECORD_V0"
_GRAPHS = "edge_dialect_exported_program"
_HANDLES = "debug_handle_map"
_NO_GRAPH = ("_state_dict", "_constants", "_example_inputs")
# A text of a thousand ops has some megabytes.
_LARGEST = 1 << 27
_UNREADABLE = (OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, ValueError)
# What a value of another shape than expected raises.
_MALFORMED = (KeyError, TypeError, AttributeError, IndexError, RecursionError)
# As torch.export counts them.
_DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    12: "bool",
    13: "bfloat16",
}


@dataclass(frozen=True)
class Node:
    """An op of the graph that a method was made from."""

    number: int
    """Its index in the graph."""
    handle: int
    op: str
    """Without overload: aten::convolution."""
    location: Location | None
    call: OpCall | None


@dataclass(frozen=True)
class RecordedMethod:
    """What is known of one method."""

    handles: dict[int, tuple[int, ...]]
    """The debug handles of each instruction: a delegate has those of all the ops that it took."""
    nodes: dict[int, tuple[Node, ...]]
    """The ops of each debug handle."""

    def of(self, instruction: int) -> list[Node]:
        """The ops that an instruction was made from, in the order of the graph, each once."""
        handles = set(self.handles.get(instruction, ()))
        found = (node for handle in handles for node in self.nodes.get(handle, ()))
        return sorted(found, key=lambda node: node.number)


def record_beside(program: Path) -> Path | None:
    """The ETRecord of a program: model.etrecord beside model.pte, or else etrecord.bin."""
    wanted = (program.with_suffix(".etrecord"), program.with_name("etrecord.bin"))
    return next((path for path in wanted if path.is_file()), None)


def read_record(path: Path) -> dict[str, RecordedMethod]:
    """What an ETRecord says of each method."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if _IDENTIFIER not in names:
                raise EdgeError(f"{path} is no ETRecord: {_IDENTIFIER} is not in it.")
            handles = _json(archive, _HANDLES)
            graphs = {
                _method_name(name): _json(archive, name)
                for name in names
                if name.partition("/")[0] == _GRAPHS and not name.endswith(_NO_GRAPH)
            }
        if len(graphs) == len(handles) == 1:
            # The graph of an only method is called forward, whatever the method's name.
            graphs = dict(zip(handles, graphs.values(), strict=True))
        return {name: RecordedMethod(_handles(handles.get(name, {})), _nodes(graph)) for name, graph in graphs.items()}
    except (*_UNREADABLE, *_MALFORMED) as error:
        reason = str(error).rstrip(".")
        raise EdgeError(f"{path} cannot be read as an ETRecord: {reason} ({type(error).__name__}).") from error


def _method_name(entry: str) -> str:
    """An archive of one method may leave its name out."""
    return entry.partition("/")[2] or "forward"


def _json(archive: zipfile.ZipFile, name: str) -> Any:
    entry = archive.getinfo(name)
    if entry.file_size > _LARGEST:
        raise ValueError(f"{name} has {entry.file_size} bytes")
    with archive.open(entry) as file:
        # The graphs name infinities, which other readers of JSON refuse.
        return json.loads(file.read(_LARGEST))


def _handles(said: dict[str, Any]) -> dict[int, tuple[int, ...]]:
    return {
        int(instruction): tuple(map(_handle, handles if isinstance(handles, list) else [handles]))
        for instruction, handles in said.items()
        if handles is not None
    }


def _handle(said: Any) -> int:
    handle = int(said)
    if not 0 <= handle < 1 << 63:
        raise ValueError(f"{handle} is no debug handle")
    return handle


def _nodes(program: dict[str, Any]) -> dict[int, tuple[Node, ...]]:
    graph = program["graph_module"]["graph"]
    types = {name: _tensor_type(said) for name, said in graph["tensor_values"].items()}
    found: dict[int, list[Node]] = {}
    for index, node in enumerate(graph["nodes"]):
        handle = node["metadata"].get("debug_handle")
        if handle is not None:
            found.setdefault(_handle(handle), []).append(_node(index, node, types))
    return {handle: tuple(nodes) for handle, nodes in found.items()}


def _node(number: int, said: dict[str, Any], types: dict[str, TensorType | None]) -> Node:
    name = _op_name(said["target"])
    arguments = [_argument(one["arg"], types) for one in said["inputs"]]
    output = _argument(said["outputs"][0], types) if said["outputs"] else None
    is_known = not any(argument is _UNKNOWN for argument in (*arguments, output))
    call = OpCall(name, tuple(arguments), output if isinstance(output, TensorType) else None) if is_known else None
    return Node(number, _handle(said["metadata"]["debug_handle"]), name, _location(said["metadata"]), call)


def _op_name(target: str) -> str:
    """executorch.exir.dialects.edge.ops.aten.convolution.default is aten::convolution."""
    space, name = target.split(".")[-3:-1] if target.count(".") > 1 else ("", target)
    return f"{space}::{name}"


_UNKNOWN: Any = object()
"""A tensor whose sizes are known when it is there."""


def _argument(said: Any, types: dict[str, TensorType | None]) -> Argument:
    tensor = said.get("as_tensor")
    if tensor is not None:
        return types.get(tensor["name"]) or _UNKNOWN
    value = said.get("as_bool", said.get("as_int"))
    return value if isinstance(value, int) else None


def _tensor_type(said: dict[str, Any]) -> TensorType | None:
    sizes = tuple(size.get("as_int") for size in said["sizes"])
    return TensorType(sizes, _DTYPES.get(said["dtype"], "")) if all(isinstance(size, int) for size in sizes) else None


def _location(metadata: dict[str, str]) -> Location | None:
    modules = tuple(_modules(metadata.get("nn_module_stack", "")))
    frames = frames_of(metadata.get("stack_trace", ""))
    return Location(modules, frames) if modules or frames else None


def _modules(stack: str) -> Iterable[tuple[str, str]]:
    """Each entry is a key, a path and a class: L__self__features,features,torch.nn.modules.container.Sequential."""
    for entry in filter(None, stack.split(";")):
        _, path, kind = entry.rsplit(",", 2)
        yield path.partition("@")[0], kind.rpartition(".")[2]
