"""Tape -> the execution trace that torch.profiler.ExecutionTraceObserver writes and the tools of Chakra read.

One JSON file for one process: a node for the process, one for each thread, one for the step that was traced, and one
for each op. A tensor is [tensor, storage, offset, elements, bytes of one, device]; ids of nodes, tensors and storages
are drawn from one counter. Ops stand at the level below autograd, without the ops that they call in their turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from torchreel.errors import NotATapeError
from torchreel.export.execution_trace.values import Ids, Values
from torchreel.export.output import Progress, Target, writing
from torchreel.export.texts import json_text, quoted
from torchreel.program import Program
from torchreel.program.file.file import read_tape
from torchreel.program.model import Op, Value
from torchreel.reel import Reel

_SCHEMA = "1.1.1-chakra.0.0.4"
_PROCESS = "[pytorch|profiler|execution_trace|process]"
_THREAD = "[pytorch|profiler|execution_trace|thread]"
# Readers tell steps and labels from ops by how their names begin: a tape is one step, and ours are no ops to them.
_STEP = "ProfilerStep#0"
_LABEL = "## {} ##"
# torch's numbers for what a node is: an op, or a range that somebody named.
_OP_SCOPE, _USER_SCOPE = 0, 7


def write(source: Reel | Program, target: Target, progress: Progress) -> None:
    """Write a program, or the one tape that a reel holds, as one execution trace."""
    program = the_tape(source) if isinstance(source, Reel) else source
    with writing(target) as file:
        for piece in _pieces(program, progress):
            file.write(piece.encode())


def the_tape(reel: Reel) -> Program:
    """The tape of a reel, if it holds one and not several."""
    tapes = sorted(tape for part in reel.parts for tape in part.directory.glob("*.tape"))
    if not tapes:
        raise NotATapeError(
            f"{reel.path} holds no tape, which an execution trace is made of: record with 'torchreel record --tape', "
            "or give a file that tape.save() wrote."
        )
    if len(tapes) > 1:
        raise NotATapeError(
            f"{reel.path} holds {len(tapes)} tapes, and an execution trace is of one: "
            f"name one of them, such as {tapes[0]}."
        )
    return read_tape(tapes[0]).program


def _pieces(program: Program, progress: Progress) -> Iterator[str]:
    times = [op.time_ns // 1_000_000 for op in program.ops] or [0]
    made = program.provenance.made[:19].replace("T", " ")
    yield f'{{\n  "schema": "{_SCHEMA}", "pid": 0, "time": {json.dumps(made)}, "start_ts": {min(times)},\n  "nodes": ['
    comma = ""
    for node in _Nodes(program).all(progress):
        yield f"{comma}\n{_text(node)}"
        comma = ","
    yield f'\n  ],\n  "finish_ts": {max(times)}\n}}\n'


class _Nodes:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._ids = Ids()
        self._values = Values(program, self._ids)
        self._process = self._ids.new()
        self._calls = 0
        # The gradient of an op is tied to it by a number that both have.
        self._has_gradient = {op.forward for op in program.ops if op.forward >= 0}

    def all(self, progress: Progress) -> Iterator[dict[str, Any]]:
        """The nodes in torch's order: a thread before its ops, what encloses them after."""
        program = self._program
        threads = {thread: self._ids.new() for thread in sorted({0, *(op.thread for op in program.ops)})}
        for thread, node in threads.items():
            yield self._label(node, self._process, _THREAD, thread + 1)
        enclosing = self._ids.new()
        for index, op in enumerate(program.ops):
            yield self._op(index, op, enclosing if op.thread == 0 else threads[op.thread])
            if index % 1000 == 0:
                progress(index, len(program.ops))
        progress(len(program.ops), len(program.ops))
        yield self._label(enclosing, threads[0], _STEP, 1, call=True)
        yield self._label(self._process, self._process, _PROCESS, 0)

    def _label(self, node: int, parent: int, name: str, thread: int, call: bool = False) -> dict[str, Any]:
        return self._node(node, parent, name, [], [], {"scope": _USER_SCOPE, "tid": thread}, call)

    def _op(self, index: int, op: Op, parent: int) -> dict[str, Any]:
        node = self._ids.new()
        is_torchs = not op.name.startswith("torchreel::")
        name = op.name.partition(".")[0] if is_torchs else _LABEL.format(op.name)
        sequence = op.forward if op.forward >= 0 else index if index in self._has_gradient else -1
        forward_thread = self._program.ops[op.forward].thread + 1 if op.forward >= 0 else 0
        attributes = {
            "seq_id": sequence,
            "scope": _OP_SCOPE,
            "tid": op.thread + 1,
            "fw_tid": forward_thread,
            "op_schema": self._program.schemas.get(op.name, "") if is_torchs else "",
        }
        return self._node(node, parent, name, op.args, op.results, attributes, True)

    def _node(
        self,
        node: int,
        parent: int,
        name: str,
        inputs: list[Value],
        outputs: list[Value],
        attributes: dict[str, Any],
        call: bool,
    ) -> dict[str, Any]:
        self._calls += call
        given = {"rf_id": self._calls if call else 0, **attributes}
        return {
            "id": node,
            "name": name,
            "ctrl_deps": parent,
            "inputs": self._values.table(inputs),
            "outputs": self._values.table(outputs),
            "attrs": [
                {"name": name, "type": kind, "value": given.get(name, default)}
                for name, (kind, default) in _ATTRIBUTES.items()
            ],
        }


_ATTRIBUTES: dict[str, tuple[str, int | str]] = {
    "rf_id": ("uint64", 0),
    "fw_parent": ("uint64", 0),
    "seq_id": ("int64", -1),
    "scope": ("uint64", 0),
    "tid": ("uint64", 0),
    "fw_tid": ("uint64", 0),
    "op_schema": ("string", ""),
    "kernel_backend": ("string", ""),
    "kernel_file": ("string", ""),
    "tensor_range": ("string", ""),
}


def _text(node: dict[str, Any]) -> str:
    """A node in five lines, as torch writes it."""
    head = f'"id": {node["id"]}, "name": {quoted(node["name"])}, "ctrl_deps": {node["ctrl_deps"]}'
    rest = [f'"{key}": {json_text(node[key])}' for key in ("inputs", "outputs", "attrs")]
    inner = ",\n".join(f"        {line}" for line in (head, *rest))
    return f"      {{\n{inner}\n      }}"
