"""PyTorch's own database of op calls, each call traced and replayed, and held to eager bit by bit."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map

import torchreel
from torchreel.errors import GuardError

# Their results are memory that nobody has written: only sizes, strides and types can be the same twice.
UNWRITTEN = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
# One of each kind, for runs that cannot take all: an op has other kernels and other casts for each.
SOME_DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bfloat16, torch.bool)
# Eager itself gives other bits from call to call. See docs/tape-ops.md.
UNSTEADY = {"linalg.lstsq"}
_SEED = 3


@functools.cache
def database() -> list[Any]:
    """Every entry, in torch's order."""
    pytest.importorskip("expecttest", reason="torch's op database imports it")
    # torch's test utilities wrap the calls of scripted code, which would then show in the stacks of other tests.
    scripted = {kind: kind.__dict__["__call__"] for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod)}
    from torch.testing._internal.common_methods_invocations import op_db

    for kind, call in scripted.items():
        kind.__call__ = call
    return list(op_db)


def title(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


@dataclass(frozen=True)
class Way:
    """How the calls of an op are made."""

    dtype: torch.dtype
    backward: bool = False
    gaps: bool = False  # inputs that are not contiguous
    in_place: bool = False  # the variant of the op that writes its first argument
    file: bool = False  # the tape goes through a file
    turned: bool = False  # the replay gets its inputs in the reverse order of elements

    def __str__(self) -> str:
        words = [str(self.dtype).removeprefix("torch.")]
        words += [word for word in ("backward", "gaps", "in_place", "file", "turned") if getattr(self, word)]
        return " ".join(words)


def ways(op: Any, dtypes: tuple[torch.dtype, ...] | None = None) -> Iterator[Way]:
    """All that the op supports on the CPU; of the rarer ones one dtype each."""
    all_dtypes = _in_order(op.supported_dtypes("cpu"))
    forward = [dtype for dtype in all_dtypes if dtypes is None or dtype in dtypes] or all_dtypes[:1]
    backward = set(op.supported_backward_dtypes("cpu")) if op.supports_autograd else set()
    for dtype in forward:
        yield Way(dtype)
        if dtype in backward:
            yield Way(dtype, backward=True)
    for dtype in forward[:1]:
        yield Way(dtype, backward=dtype in backward, gaps=True)
        if op.inplace_variant is not None:
            yield Way(dtype, in_place=True)
        yield Way(dtype, backward=dtype in backward, file=True)
        yield Way(dtype, backward=dtype in backward, turned=True)


def _in_order(dtypes: Any) -> list[torch.dtype]:
    first = [dtype for dtype in SOME_DTYPES if dtype in dtypes]
    return first + sorted(set(dtypes) - set(first), key=str)


def samples(op: Any, way: Way, most: int | None = None) -> Iterator[tuple[Any, ...]]:
    """The calls: input, arguments and keywords of each."""
    torch.manual_seed(_SEED)
    of_op = op.sample_inputs("cpu", way.dtype, requires_grad=way.backward)
    if way.file:
        most = 1
    for sample in itertools.islice(of_op, most):
        if way.in_place and sample.broadcasts_input:
            continue
        if way.gaps:
            with contextlib.suppress(RuntimeError):  # a sparse tensor has no gaps
                sample = sample.noncontiguous()
        yield sample.input, sample.args, sample.kwargs, sample.output_process_fn_grad


class Call:
    """One call of an op as a function of its tensors, which can be made again and again from the same start."""

    def __init__(self, op: Any, way: Way, sample: tuple[Any, ...]) -> None:
        *self._arguments, self._process = sample
        self._op = op.inplace_variant if way.in_place else op.op
        self._way = way
        self._generators = {
            leaf: leaf.get_state() for leaf in tree_flatten(self._arguments)[0] if isinstance(leaf, torch.Generator)
        }
        self._weights: list[torch.Tensor] = []
        self.result: Any = None  # of the last call

    def arguments(self, turned: bool = False) -> list[Any]:
        """New copies, with what the op draws random numbers from put back."""
        copies: dict[int, torch.UntypedStorage] = {}
        fresh = tree_map(lambda leaf: _copy(leaf, copies) if isinstance(leaf, torch.Tensor) else leaf, self._arguments)
        if turned:
            for tensor in _tensors(fresh):
                _turn(tensor)
        for generator, state in self._generators.items():
            generator.set_state(state)
        torch.manual_seed(_SEED)
        return [*fresh, self._weights]

    def __call__(self, first: Any, args: Any, kwargs: Any, weights: list[torch.Tensor]) -> Any:
        self.result = self._called(first, args, kwargs, weights)
        return self.result

    def _called(self, first: Any, args: Any, kwargs: Any, weights: list[torch.Tensor]) -> Any:
        out = self._op(first, *args, **kwargs)
        if not self._way.backward:
            return out
        results = self._differentiable(out)
        leaves = [leaf for leaf in _tensors((first, args, kwargs)) if leaf.requires_grad]
        if not results or not leaves:
            return out
        return out, torch.autograd.grad(results, leaves, weights, allow_unused=True)

    def weigh(self) -> None:
        """Find the sizes of the results, and the gradients to begin backward with."""
        if not self._way.backward:
            return
        first, args, kwargs, _ = self.arguments()
        for result in self._differentiable(self._op(first, *args, **kwargs)):
            result = result.detach()
            self._weights.append(
                torch.testing.make_tensor(result.shape, dtype=result.dtype, device="cpu", low=-2, high=2)
            )

    def _differentiable(self, out: Any) -> list[torch.Tensor]:
        return [result for result in _tensors(self._process(out)) if result.requires_grad]


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def _copy(tensor: torch.Tensor, copies: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    """The same geometry on a copy of the storage, which tensors that shared one share again."""
    with torch.no_grad():
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested or tensor._is_zerotensor():
            return tensor.detach().clone().requires_grad_(tensor.requires_grad)
        storage = tensor.untyped_storage()
        if storage._cdata not in copies:
            copies[storage._cdata] = storage.clone()
        copy = torch.empty(0, dtype=tensor.dtype).set_(
            copies[storage._cdata], tensor.storage_offset(), tensor.size(), tensor.stride()
        )
        copy = copy.conj() if tensor.is_conj() else copy
        copy = torch._neg_view(copy) if tensor.is_neg() else copy
    return copy.requires_grad_(tensor.requires_grad)


@dataclass
class Outcome:
    """What a call leaves: results, arguments, and where its generator stands."""

    results: list[Any]
    arguments: list[Any]
    random: torch.Tensor


def outcome(results: Any, arguments: list[Any]) -> Outcome:
    return Outcome(_kept(results), _kept(arguments), torch.get_rng_state())


def _kept(value: Any) -> list[Any]:
    return [_copy(leaf.detach(), {}) if isinstance(leaf, torch.Tensor) else leaf for leaf in tree_flatten(value)[0]]


def _turn(tensor: torch.Tensor) -> None:
    """The same elements in reverse order: other values, of which most are as good as these for what the op demands."""
    if tensor.layout == torch.strided and not torch._debug_has_internal_overlap(tensor):
        with torch.no_grad():
            tensor.copy_(tensor.flip(tuple(range(tensor.dim()))))


def check(op: Any, way: Way, sample: tuple[Any, ...], folder: Path) -> str | None:
    """Trace the call and replay it twice: how that was not the same as eager, or nothing. None if eager refuses it."""
    call = Call(op, way, sample)
    try:
        call.weigh()
        arguments = call.arguments(way.turned)
        result = call(*arguments)
    except Exception:
        return None
    wanted = outcome(result, arguments)
    done = "nothing"
    try:
        for done, found in _taped(call, way, folder):
            unlike = difference(wanted, found, values=op.name not in UNWRITTEN | UNSTEADY)
            if unlike:
                return f"{done}: {unlike}"
    except GuardError as error:
        return "" if way.turned else f"after {done}: {error}"
    except Exception as error:
        return f"after {done}: {type(error).__name__}: {str(error)[:400]}"
    return ""


def _taped(call: Call, way: Way, folder: Path) -> Iterator[tuple[str, Outcome]]:
    """What the traced call leaves, and then each replay of it."""
    arguments = call.arguments()
    tape = torchreel.trace(call, *arguments)
    if not way.turned:
        yield "trace", outcome(call.result, arguments)
    call.result = None
    if way.file:
        tape.save(folder / "call.tape")
        tape = torchreel.load_tape(folder / "call.tape")
    for step in ("replay", "second replay"):
        arguments = call.arguments(way.turned)
        yield step, outcome(tape.replay(*arguments), arguments)


def difference(wanted: Outcome, found: Outcome, values: bool = True) -> str:
    """The first thing that is another one, in words; empty if there is none."""
    for what in ("results", "arguments"):
        ours, theirs = getattr(wanted, what), getattr(found, what)
        if len(ours) != len(theirs):
            return f"{len(theirs)} {what} instead of {len(ours)}"
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            text = _unlike(a, b, values)
            if text:
                return f"{text} ({what}, place {place})"
    return "" if torch.equal(wanted.random, found.random) else "the generator stands elsewhere"


def _unlike(a: Any, b: Any, values: bool) -> str:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        same = a is b or (type(a) is type(b) and (a == b or (a != a and b != b)))
        return "" if same else f"{b!r:.80} instead of {a!r:.80}"
    for what in ("dtype", "layout", "shape", "device"):
        if getattr(a, what) != getattr(b, what):
            return f"{what} {getattr(b, what)} instead of {getattr(a, what)}"
    if a.is_nested:
        return next(filter(None, map(_unlike, a.unbind(), b.unbind(), itertools.repeat(values))), "")
    if a.layout == torch.strided and a.stride() != b.stride():
        return f"strides {b.stride()} instead of {a.stride()}"
    if a.layout == torch.strided:
        return "" if not values or _same_bits(a, b) else f"other values: {b.flatten()[:4]} instead of {a.flatten()[:4]}"
    return next(filter(None, map(_unlike, _parts(a), _parts(b), itertools.repeat(values))), "")


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor.to_dense()]


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    a, b = (_dense(tensor) for tensor in (a, b))
    if _bytes(a) == _bytes(b):
        return True
    if a.is_complex():
        return _same_bits(torch.view_as_real(a), torch.view_as_real(b))
    if not a.is_floating_point():
        return False
    # Which of the many NaN it is, is not said by any standard.
    return torch.equal(a.isnan(), b.isnan()) and _bytes(a.nan_to_num(0, None, None)) == _bytes(
        b.nan_to_num(0, None, None)
    )


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


@pytest.fixture(autouse=True)
def calm(recwarn: pytest.WarningsRecorder) -> None:
    """What torch says about experimental ops is not ours."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """For files that import it: a test with the argument `op` is made for each of them."""
    if "op" not in metafunc.fixturenames:
        return
    # Importing the database takes seconds: not where its tests are left out.
    wanted = metafunc.config.option.markexpr != "not long"
    ops = database() if wanted else []
    metafunc.parametrize("op", ops, ids=[title(op) for op in ops])
