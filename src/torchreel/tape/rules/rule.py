"""A rule: what becomes of one function of ATen when it is called while something records.

Two things record, and a rule says of both what they do: PyTorch's own tracer (`torch.jit.trace`, by wrappers that its
gen_trace_type.py writes), and the tape, which stands below autograd. The tracer has a second mode, `force_outplace`, in
which it writes down a mutation as if it had been none.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["functional", "inplace", "out", "mutable"]
Tracer = Literal["records", "by hand", "unfolds", "passes"]
Tape = Literal["itself", "parts", "nothing"]
Way = Literal["wrapper", "fallback"]

KINDS: tuple[Kind, ...] = ("functional", "inplace", "out", "mutable")
TRACERS: tuple[Tracer, ...] = ("records", "by hand", "unfolds", "passes")
TAPES: tuple[Tape, ...] = ("itself", "parts", "nothing")
WAYS: tuple[Way, ...] = ("wrapper", "fallback")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The rule of one function."""

    name: str
    """In full, with its overload: "aten::add_.Tensor"."""
    schema: str
    """As native_functions.yaml has it."""
    kind: Kind
    """Whether it changes no argument, `self`, its `out` arguments, or others ("mutable")."""
    arguments: tuple[str, ...]
    """In the order of the schema. The tape keeps all of them."""
    writes: tuple[str, ...]
    """Those of its arguments that it changes."""
    options: tuple[str, ...]
    """Those of its arguments that say what kind of tensor it makes: dtype, layout, device, pin_memory."""
    factory: bool
    """Whether it makes a tensor out of none."""

    tracer: Tracer
    """torch.jit.trace "records" a node; has a kernel written "by hand"; "unfolds" it into its parts on purpose; or
    "passes" it on because it cannot record it: what it calls in turn is recorded then."""
    why: str
    """Why the tracer does not simply record the op, or what its handwritten kernel does."""
    node: str
    """The name under which the tracer records it, without an overload: "aten::add_"; empty if it does not."""
    inputs: tuple[str, ...]
    """The node's. "out.dtype" is the dtype of the tensor `out`, "dtype=None" a value that was put in."""
    outplace_node: str
    """The same under force_outplace: "aten::add"."""
    outplace_inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    """The node's."""
    guard: str
    """The argument of which the tracer warns under force_outplace if its memory is shared; empty if of none."""

    tape: Tape
    """On the tape stands the function "itself", its "parts" (autograd replaces it by them; itself in
    inference_mode), or "nothing" (autograd answers without calling a kernel)."""
    own: tuple[str, ...]
    """For a composite op: the kinds of tensor for which it has a kernel, so that it is on the tape itself."""
    way: Way
    """What writes it to the tape: a generated "wrapper", or the "fallback" that serves any op."""
    boxed: str
    """Why no wrapper can be generated; empty if one can, whether or not the build compiles it."""
    differs: tuple[str, ...]
    """In what the tape differs from the tracer."""

    @property
    def traced(self) -> bool:
        """Whether torch.jit.trace records a node for it."""
        return self.node != ""

    @property
    def base(self) -> str:
        """The name without namespace and overload: "add_"."""
        return self.name.removeprefix("aten::").partition(".")[0]

    @property
    def overload(self) -> str:
        return self.name.partition(".")[2]

    @property
    def padded(self) -> tuple[str, ...]:
        """What force_outplace adds to the arguments, because the function that it names instead has more of them."""
        return tuple(name for name in self.outplace_inputs if name not in self.arguments)

    def __str__(self) -> str:
        return "\n".join(f"{label:<12}{text}" for label, text in self._lines() if text)

    def _lines(self) -> list[tuple[str, str]]:
        return [
            ("function", self.name),
            ("schema", self.schema),
            ("kind", self._kind()),
            ("tracer", self._tracer()),
            ("  node", _call(self.node, self.inputs, self.outputs)),
            ("  outplace", self._outplace()),
            ("tape", self._tape()),
            ("  way", f"fallback: {self.boxed}" if self.boxed else self.way),
            ("  differs", "; ".join(self.differs)),
        ]

    def _kind(self) -> str:
        writes = f", writes {', '.join(self.writes)}" if self.writes else ""
        factory = ", a factory" if self.factory else ""
        options = f" with {', '.join(self.options)}" if self.options else ""
        return f"{self.kind}{writes}{factory}{options}"

    def _tracer(self) -> str:
        return f"{self.tracer}: {self.why}" if self.why else self.tracer

    def _outplace(self) -> str:
        if (self.outplace_node, self.outplace_inputs) == (self.node, self.inputs) or not self.outplace_node:
            return ""
        guard = f", after a look at whether {self.guard} shares its memory" if self.guard else ""
        return _call(self.outplace_node, self.outplace_inputs, self.outputs) + guard

    def _tape(self) -> str:
        if self.tape == "itself":
            return f"{self.name}({', '.join(self.arguments)})"
        if self.tape == "nothing":
            return "nothing: autograd answers by itself; below it, in inference_mode, itself"
        own = f", and itself on tensors of {', '.join(self.own)}" if self.own else ""
        return f"its parts; itself in inference_mode{own}"


def _call(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> str:
    return f"{', '.join(outputs)} = {name}({', '.join(inputs)})" if name else ""
