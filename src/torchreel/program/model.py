"""A program: the ops of a recorded function, the slots that they read and write, and where in the source they stand.

A **slot** is one view of one storage: a storage seen with a size, strides, an offset and a dtype. Ops name slots, never
tensors. A slot that no op made came from outside: its role says whether as an input, a parameter, a constant ...
"""

from __future__ import annotations

from typing import Literal

import msgspec

FORMAT = 1

Role = Literal["made", "input", "parameter", "buffer", "gradient", "optimizer", "constant", "captured"]
# The roles of tensors that a function closed over, and that live on between two calls of it.
STATE_ROLES = ("parameter", "buffer", "gradient", "optimizer", "captured")

# Ops of our own, beside those of torch. Each is explained where it is replayed, in native/tape/plan.cpp.
SEEN = "torchreel::seen"  # (tensor) -> digest: its bytes left for Python, through NumPy or as a list
SET_RNG = "torchreel::set_rng"  # (generator, state): the program set the state of a generator
GET_RNG = "torchreel::get_rng"  # (generator) -> state: the program asked for the state of a generator
SEED = "torchreel::seed"  # (generator) -> number: the program asked for the seed of a generator
NEW_SEED = "torchreel::new_seed"  # (generator) -> number: the system gave a generator a seed, another one each time
OPAQUE = "torchreel::opaque"  # (object, tensors) -> tensors: a compiled region, which only this process can run


class Ref(msgspec.Struct, frozen=True, tag="ref"):
    """A tensor of the program, by its slot."""

    slot: int


class StorageOf(msgspec.Struct, frozen=True, tag="storage"):
    """The whole storage under a slot."""

    slot: int


class Complex(msgspec.Struct, frozen=True, tag="complex"):
    real: float
    imag: float


class Device(msgspec.Struct, frozen=True, tag="device"):
    name: str  # as torch.device writes it: "cpu", "cuda:1"


class Named(msgspec.Struct, frozen=True, tag="named"):
    """A value of one of torch's enumerations: Named("dtype", "float32") is torch.float32."""

    kind: Literal["dtype", "layout", "memory_format"]
    name: str  # as an attribute of torch


class Generator(msgspec.Struct, frozen=True, tag="generator"):
    """A random generator, by its place in Program.generators."""

    index: int


class Object(msgspec.Struct, frozen=True, tag="object"):
    """A value that is neither tensor nor plain data, by its place in Program.objects."""

    index: int


class Formula(msgspec.Struct, frozen=True, tag="formula"):
    """A number that Python computed from one that left the tape, in postfix order.

    Numbers stand for themselves, "item:7" for the number that op 7 returned, and the words "sub", "mul", "div", "pow",
    "neg" and "sqrt" take their operands from what stands before them. `value` is what it gave when it was recorded.
    """

    postfix: tuple[float | str, ...]
    value: float


# What stands in a place of an op's schema. An undefined tensor is None.
Atom = None | bool | int | float | str | Ref | StorageOf | Complex | Device | Named | Generator | Object | Formula
Value = Atom | list[Atom]


class Digest(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a tensor's values: a hash of all its bits, and some of the values to tell how far another is."""

    hash: int  # of sizes and of elements in the order of indices, so that strides do not matter
    norm: float  # Euclidean; NaN where a value is NaN
    samples: tuple[float, ...]  # up to 8 elements, evenly spread; real part of complex ones


class Op(msgspec.Struct, array_like=True):
    """One call. `args` are all arguments of the schema, in its order, defaults included."""

    name: str  # with its overload: "aten::add.Tensor"; without one: "aten::relu"
    args: list[Value]
    results: list[Value]  # refs of tensors; a number that left for Python, which replay compares
    stack: int = 0  # in Program.stacks; 0 is none
    module: int = -1  # in Program.modules; -1 is none
    forward: int = -1  # of an op in backward: the place of the op whose gradient it computes
    backward: bool = False
    thread: int = 0  # 0 is the thread that traced; others by their first op
    time_ns: int = 0  # on the clock of the reel
    inserted: bool = False  # not called by the program: what else is needed to have the same tensors
    guarded: bool = True  # whether a number among `results` must be the same on replay
    digests: list[Digest | None] | None = None  # of each tensor that the op made or wrote, in the order of `written`
    grad: bool = True  # whether autograd was on: some kernels keep more for a backward then


class Slot(msgspec.Struct, array_like=True):
    storage: int  # slots of one storage share it
    dtype: str  # as an attribute of torch: "float32"
    sizes: tuple[int, ...]
    strides: tuple[int, ...]  # empty for a layout without strides
    offset: int = 0
    device: str = "cpu"
    layout: str = "strided"
    role: Role = "made"
    name: str = ""  # of a slot that no op made: "model.layers.0.weight"
    number: bool | int | float | Complex | None = None  # of a Python number that torch made a tensor of: its value
    is_number: bool = False
    conjugate: bool = False
    negative: bool = False
    requires_grad: bool = False
    bytes: int = 0  # of the storage


class Binding(msgspec.Struct, array_like=True):
    """What the function left behind in a tensor object: `owner`'s gradient or data is `value` at the end."""

    kind: Literal["grad", "data", "copy"]
    owner: int  # a slot
    value: int  # a slot; -1 for a gradient that is None
    cleared: bool = False  # of a gradient: whether the function itself clears it before, so that it may be there


class Frame(msgspec.Struct, frozen=True, array_like=True):
    file: str
    line: int
    function: str
    text: str = ""  # of the source line


class Stack(msgspec.Struct, frozen=True, array_like=True):
    parent: int  # the caller's stack; 0 is none
    frame: int


class Module(msgspec.Struct, frozen=True, array_like=True):
    path: str
    type: str


class Tree(msgspec.Struct, array_like=True):
    """A nested structure of arguments or results."""

    kind: Literal["leaf", "tuple", "list", "dict"]
    type: str = ""  # the class, where it is not the plain container
    keys: list[str] = msgspec.field(default_factory=list)
    parts: list[Tree] = msgspec.field(default_factory=list)
    leaf: Value = None  # a Ref, or a value that is the same at each call
    text: str = ""  # of a leaf that is no plain value: what it was


class Input(msgspec.Struct, array_like=True):
    """A tensor that is given anew at each replay."""

    name: str
    slot: int


class RandomState(msgspec.Struct, array_like=True):
    """A generator that the program draws from. `state` is that at its first use, or at the beginning of the tape."""

    device: str
    is_default: bool
    made_inside: bool  # then each replay begins with `state`
    state: bytes


class Provenance(msgspec.Struct, array_like=True):
    torchreel: str
    torch: str
    python: str
    machine: str  # the processor's instruction set as torch names it, and the number of threads
    made: str  # when, in ISO 8601
    function: str  # what was traced, and its file and line


class Program(msgspec.Struct):
    provenance: Provenance
    slots: list[Slot]
    ops: list[Op]
    inputs: list[Input]
    arguments: Tree  # of the call: a tuple of the positional ones and a dict of those by name
    outputs: Tree
    bindings: list[Binding] = msgspec.field(default_factory=list)
    stacks: list[Stack] = msgspec.field(default_factory=lambda: [Stack(0, -1)])  # place 0 is the empty stack
    frames: list[Frame] = msgspec.field(default_factory=list)
    modules: list[Module] = msgspec.field(default_factory=list)
    generators: list[RandomState] = msgspec.field(default_factory=list)
    objects: list[str] = msgspec.field(default_factory=list)  # what they were, in words
    schemas: dict[str, str] = msgspec.field(default_factory=dict)  # of each op by name, as torch printed it
    notes: list[str] = msgspec.field(default_factory=list)  # what a reader of the tape must know, in sentences
    # Tensors that are a part of the program itself, by slot: constants that no op made. Their bytes in the order of
    # indices, without gaps.
    constants: dict[int, bytes] = msgspec.field(default_factory=dict)
