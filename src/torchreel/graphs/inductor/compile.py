"""Has Inductor compile a cluster of ops, and binds none of it to Python: a library with one function is what remains.

Inductor's own code is run once, on memory that nobody looks at, with what stands for its kernels in their place: so it
is known what each kernel is given, without a look at what was generated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torchreel._cpython.interpreter import library_path
from torchreel._torch.dispatch import TorchDispatchMode, schema_of
from torchreel._torch.inductor import (
    AsyncCompile,
    CppCodeCache,
    compile_fx_inner,
    config,
    cpp_prefix_header,
    decompositions,
)
from torchreel.graphs.inductor.check import RefusedError, check
from torchreel.graphs.inductor.function import function_of
from torchreel.graphs.inductor.job import ENTRY, Answer, Job, Pointer
from torchreel.program.model import Slot

# Inductor leaves the sign of zeros to the compiler. Eager has it.
_EXACT = ("-fsigned-zeros", "-fno-unsafe-math-optimizations", "-fno-finite-math-only", "-ffp-contract=off")
_MAKES_NO_VALUES = ("aten::empty_strided", "aten::as_strided", "aten::detach", "aten::empty")


def answer(job: Job) -> Answer:
    try:
        return _compiled(job)
    except RefusedError as refusal:
        return Answer("", [], [], f"Inductor {refusal}.")
    except Exception as error:  # of Inductor or of the compiler, which may fail as they like
        return Answer("", [], [], f"Inductor failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}")


def _compiled(job: Job) -> Answer:
    config.cpp.threads = job.threads
    config.compile_threads = 1
    config.fx_graph_cache = False
    config.cpp_wrapper = False
    config.pattern_matcher = False  # it drops copies of tensors that are written afterwards
    examples = [_example(job.slots[slot]) for slot in job.inputs]
    function = torch.func.functionalize(function_of(job))
    traced = make_fx(function, decomposition_table=decompositions(), tracing_mode="fake")(*examples)
    with _calls_kept() as calls, torch.no_grad():
        compiled = compile_fx_inner(traced, examples)
        with _NothingElse():
            outputs = list(compiled(list(examples)))
    arguments = _KernelArguments(job, examples, outputs)
    source = _source(calls, arguments)
    library = _Library.load(source, extra_flags=_EXACT if job.exact else ())
    made = Answer(library_path(library), arguments.pointers, arguments.scratch)
    check(job, made, library)
    return made


def _example(slot: Slot) -> torch.Tensor:
    return torch.empty_strided(slot.sizes, slot.strides, dtype=getattr(torch, slot.dtype))


Call = tuple[list[str], str, tuple[Any, ...]]  # types of the arguments, source, arguments


@contextlib.contextmanager
def _calls_kept() -> Iterator[list[Call]]:
    """Lists the calls that Inductor's generated code makes to its kernels, instead of compiling them."""
    calls: list[Call] = []
    own = AsyncCompile.cpp_pybinding

    def binding(_: AsyncCompile, types: list[str], source: str) -> Callable[..., None]:
        return lambda *args: calls.append((types, source, args))

    AsyncCompile.cpp_pybinding = binding
    try:
        yield calls
    finally:
        AsyncCompile.cpp_pybinding = own


class _NothingElse(TorchDispatchMode):  # type: ignore[misc]
    """Code that calls ops between its kernels cannot be bound as one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if schema_of(func).name not in _MAKES_NO_VALUES:
            raise RefusedError(f"calls {func} beside its kernels")
        return func(*args, **(kwargs or {}))


class _KernelArguments:
    """What each argument of a kernel is: an input, an output, or memory that passes between kernels."""

    def __init__(self, job: Job, examples: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        self.pointers: list[Pointer] = []
        self.scratch: list[int] = []
        self._slots = {_base(tensor): slot for slot, tensor in zip(job.inputs, examples, strict=True)}
        self._scratch: dict[int, int] = {}
        for slot, tensor in zip(job.outputs, outputs, strict=True):
            if _base(tensor) in self._slots:
                raise RefusedError("gives one tensor in two places")
            if not _lies_as(tensor, job.slots[slot]):
                raise RefusedError("gives a result with other strides than eager")
            self._slots[_base(tensor)] = slot

    def pointer(self, tensor: Any) -> int:
        """Its index in the table."""
        if not isinstance(tensor, torch.Tensor):
            raise RefusedError("has a kernel that takes a number")
        base = _base(tensor)
        offset = tensor.data_ptr() - base
        if base in self._slots:
            pointer = Pointer(self._slots[base], -1, offset)
        else:
            if base not in self._scratch:
                self._scratch[base] = len(self.scratch)
                self.scratch.append(tensor.untyped_storage().nbytes())
            pointer = Pointer(-1, self._scratch[base], offset)
        if pointer not in self.pointers:
            self.pointers.append(pointer)
        return self.pointers.index(pointer)


def _base(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _lies_as(tensor: torch.Tensor, slot: Slot) -> bool:
    pairs = zip(tensor.stride(), slot.strides, tensor.shape, strict=False)
    same = all(one == other for one, other, size in pairs if size != 1)
    dtype = getattr(torch, slot.dtype)
    return same and tensor.shape == slot.sizes and tensor.dtype == dtype and tensor.storage_offset() == 0


def _source(calls: list[Call], arguments: _KernelArguments) -> str:
    """All kernels, and the function that calls them one after the other."""
    if not calls:
        raise RefusedError("needs no kernel for it")
    names: dict[str, str] = {}
    parts, body = ["#include <torch/csrc/inductor/cpp_prefix.h>"], []
    for types, source, args in calls:
        if source not in names:
            names[source] = f"kernel_{len(names)}"
            parts.append(f"#define kernel {names[source]}\n{source}\n#undef kernel")
        given = ", ".join(f"({kind})p[{arguments.pointer(arg)}]" for kind, arg in zip(types, args, strict=True))
        body.append(f"  {names[source]}({given});")
    parts.append(f'extern "C" __attribute__((visibility("default"))) void {ENTRY}(void** p) {{')
    return "\n".join([*parts, *body, "}", ""])


class _Library(CppCodeCache):  # type: ignore[misc]
    """As Inductor compiles its own kernels, but without a binding to Python."""

    cpp_compile_command_flags: ClassVar[dict[str, Any]] = {"include_pytorch": False, "shared": True}

    @classmethod
    def _get_uncompiled_header(cls, device: str) -> str | None:
        return str(cpp_prefix_header(device))
