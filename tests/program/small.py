"""A small program by hand: a step of y = (x @ w).relu(), a number that leaves for Python, and a weight that changes."""

from __future__ import annotations

import struct

from torchreel.program.model import (
    Binding,
    Complex,
    Device,
    Digest,
    Formula,
    Frame,
    Generator,
    Input,
    Module,
    Named,
    Object,
    Op,
    Program,
    Provenance,
    RandomState,
    Ref,
    Slot,
    Stack,
    StorageOf,
    Tree,
    Value,
)


def small_program() -> Program:
    """Slots 0 x, 1 w, 2 a view of w, 3 x @ w, 4 relu, 5 its sum, 6 a constant."""
    return Program(
        provenance=Provenance("0.4", "2.13.0", "3.11", "AVX2, 2 threads", "2026-01-01T00:00:00", "step (train.py:3)"),
        slots=[
            Slot(0, "float32", (2, 3), (3, 1), role="input", name="x", bytes=24),
            Slot(1, "float32", (3, 3), (3, 1), role="parameter", name="w", requires_grad=True, bytes=36),
            Slot(1, "float32", (3,), (3,), 2, bytes=36),
            Slot(2, "float32", (2, 3), (3, 1), bytes=24),
            Slot(3, "float32", (2, 3), (3, 1), bytes=24),
            Slot(4, "float32", (), (), bytes=4),
            Slot(5, "int64", (2,), (1,), role="constant", name="shape", bytes=16),
        ],
        ops=_ops(),
        inputs=[Input("x", 0)],
        arguments=Tree("tuple", parts=[Tree("tuple", parts=[_leaf(Ref(0))]), Tree("dict")]),
        outputs=Tree("dict", keys=["loss", "n"], parts=[_leaf(Ref(5)), _leaf([1, 2.5, "x", None])]),
        bindings=[Binding("grad", 1, 3), Binding("grad", 1, -1)],
        stacks=[Stack(0, -1), Stack(0, 0), Stack(1, 1)],
        frames=[Frame("train.py", 3, "step", "y = model(x)"), Frame("model.py", 9, "Net.forward", "return x @ self.w")],
        modules=[Module("", "Net")],
        generators=[RandomState("cpu", True, False, bytes(range(64)))],
        objects=["a compiled region"],
        schemas={"aten::relu": "aten::relu(Tensor self) -> Tensor"},
        notes=["Nothing to note."],
        constants={6: struct.pack("<qq", 2, 3)},
    )


def _leaf(value: Value) -> Tree:
    return Tree("leaf", leaf=value)


def _ops() -> list[Op]:
    digest = Digest(2**64 - 1, 1.5, (0.0, 1.0))
    dtype = Named("dtype", "float32")
    return [
        Op("aten::mm", [Ref(0), Ref(1)], [Ref(3)], 2, 0, digests=[digest]),
        Op("aten::relu", [Ref(3)], [Ref(4)], 2, 0, time_ns=1_700_000_000_000_000_000, digests=[digest]),
        Op("aten::sum", [Ref(4), dtype], [Ref(5)], 1, 0, digests=[Digest(0, float("inf"), ())]),
        Op("aten::item", [Ref(5)], [3.5], 1, 0),
        Op("aten::select.int", [Ref(1), 1, 2], [Ref(2)], 1),
        Op("aten::mul_.Scalar", [Ref(2), Formula((1.0, "item:3", "sub", 2.0, "pow"), 6.25)], [Ref(2)], 1, forward=0),
        Op("torchreel::opaque", [Object(0), [Ref(3), None], Device("cpu"), Complex(1.0, -1.0)], [], backward=True),
        Op("aten::uniform_", [Ref(3), 0.0, 1.0, Generator(0)], [Ref(3)], thread=1, inserted=True, guarded=False),
        Op("aten::set_.source_Storage", [Ref(3), StorageOf(4)], [Ref(3)], digests=[None]),
    ]


def small_data() -> dict[int, bytes]:
    return {0: struct.pack("<6f", *range(6)), 1: struct.pack("<9f", *range(9))}
