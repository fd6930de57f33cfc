"""State, inputs, effects and results of every kind: a replay gives what the function gives, or refuses; never another.

Each program is called once, traced at its second call, replayed once, changed, and called again: by the function, or by
the tape. Without the change, the tape gives what the function gives.
"""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

import torchreel
from tests.tape.outcome import bits
from torchreel.errors import GuardError, ReplayError, TapeError, TraceError


@dataclasses.dataclass
class Kind:
    """`arguments` gets the number of the call, and whether it is the one after the change."""

    function: Callable[..., Any]
    arguments: Callable[[int, bool], tuple[Any, ...]]
    change: Callable[[], object] = lambda: None
    state: Callable[[], Any] = lambda: None


KINDS: dict[str, Callable[[], Kind]] = {}


def kind(make: Callable[[], Kind]) -> Callable[[], Kind]:
    KINDS[make.__name__] = make
    return make


def three(call: int, changed: bool = False) -> tuple[torch.Tensor]:
    return (torch.arange(3.0) + call,)


def pair(call: int) -> torch.Tensor:
    return torch.tensor([1 + 2j, 3 + 4j]) + call


@kind
def conjugated_input() -> Kind:
    return Kind(lambda x: x * 2, lambda call, changed: (pair(call).conj() if changed else pair(call),))


@kind
def negated_input() -> Kind:
    def given(call: int, changed: bool) -> tuple[torch.Tensor]:
        return ((pair(call).conj() if changed else pair(call)).imag,)

    return Kind(lambda x: x * 2, given)


@kind
def conjugated_data() -> Kind:
    w = pair(0)
    return Kind(lambda x: x * w, lambda call, _: (pair(call),), lambda: setattr(w, "data", w.data.conj()))


@kind
def conjugated_gradient() -> Kind:
    w = torch.nn.Parameter(pair(0))
    w.grad = torch.zeros_like(w)

    def change() -> None:
        assert w.grad is not None
        w.grad = w.grad.clone().conj()

    return Kind(lambda x: (w * x).abs().sum().backward(), lambda call, _: (pair(call),), change, lambda: w.grad)


@kind
def data_at_another_place() -> Kind:
    linear, flat = torch.nn.Linear(3, 2, bias=False), torch.arange(30.0).view(10, 3)
    return Kind(lambda x: linear(x).detach(), three, lambda: setattr(linear.weight, "data", flat[2:4]))


@kind
def gradient_in_another_part() -> Kind:
    w, flat = torch.nn.Parameter(torch.ones(2, 3)), torch.zeros(4, 3)
    w.grad = flat[:2]

    def function(x: torch.Tensor) -> torch.Tensor:
        (w * x).sum().backward()
        return flat.clone()

    return Kind(function, three, lambda: setattr(w, "grad", flat[2:]), lambda: flat)


@kind
def two_that_shared_memory() -> Kind:
    whole = torch.arange(6.0)
    a, b = whole[:3], whole[3:]
    return Kind(lambda x: x * a[1:].sum() + b[1:].sum(), three, lambda: setattr(b, "data", torch.ones(6)[3:]))


@kind
def input_that_is_state() -> Kind:
    w = torch.full((3,), 7.0)
    return Kind(lambda x: x * 2 + w, lambda call, changed: three(call) if changed else (w,))


@kind
def written_input_that_is_state() -> Kind:
    w = torch.full((3,), 7.0)

    def function(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return w + 1

    return Kind(function, lambda call, changed: three(call) if changed else (w,), state=lambda: w)


@kind
def input_that_is_a_view_of_state() -> Kind:
    w = torch.full((6,), 7.0)

    def function(x: torch.Tensor) -> torch.Tensor:
        w.add_(1)
        return x * w[:3]

    return Kind(function, lambda call, changed: three(call) if changed else (w[:3],), state=lambda: w)


@kind
def input_that_becomes_a_part_of_state() -> Kind:
    w = torch.ones(6)

    def function(x: torch.Tensor) -> torch.Tensor:
        w.mul_(2)
        return x[1:] + 1

    return Kind(function, lambda call, changed: (w[3:],) if changed else three(call), state=lambda: w)


@kind
def windows() -> Kind:
    def given(call: int, changed: bool) -> tuple[torch.Tensor]:
        return (torch.arange(9.0).view(3, 3) if changed else (torch.arange(5.0) + call).unfold(0, 3, 1),)

    return Kind(lambda x: x[1:] * 2, given)


@kind
def expanded() -> Kind:
    def given(call: int, changed: bool) -> tuple[torch.Tensor]:
        return (torch.arange(6.0).view(2, 3) if changed else (torch.ones(2, 1) + call).expand(2, 3),)

    return Kind(lambda x: x[1:] * 2, given)


@kind
def other_strides() -> Kind:
    def given(call: int, changed: bool) -> tuple[torch.Tensor]:
        generator = torch.Generator().manual_seed(call)
        sizes = (65, 63) if changed else (63, 65)
        x = torch.randn(sizes, generator=generator)
        return (x.t() if changed else x,)

    return Kind(lambda x: (x.sum(1), torch.rand_like(x)), given)


@kind
def counted_from_the_beginning() -> Kind:
    def given(call: int, changed: bool) -> tuple[torch.Tensor]:
        return ((torch.arange(6.0) + call)[3 if changed else 0 :][:3],)

    return Kind(lambda x: x.as_strided((2,), (1,), 0) * 2, given)


@kind
def slices_of_one_tensor() -> Kind:
    """Never refused: how batches are given."""
    data = torch.arange(30.0)
    return Kind(lambda x: x.view(1, 3)[0, 1:] * 2, lambda call, changed: (data[3 * call :][:3],))


def running(hold: bool) -> Kind:
    k, kept = types.SimpleNamespace(h=torch.zeros(3)), []

    def function(x: torch.Tensor) -> Any:
        k.h = k.h + x
        return k.h * 1

    def given(call: int, _: bool) -> tuple[torch.Tensor]:
        if hold:
            kept.append(k.h)
        return three(call)

    return Kind(function, given, state=lambda: k.h)


@kind
def running_state() -> Kind:
    return running(False)


@kind
def running_state_that_is_logged() -> Kind:
    return running(True)


@kind
def buffers_that_change_places() -> Kind:
    o = types.SimpleNamespace(a=torch.zeros(3), b=torch.ones(3))

    def function(x: torch.Tensor) -> torch.Tensor:
        o.a, o.b = o.b, o.a
        o.a.add_(x)
        return o.a + 0

    return Kind(function, three)


@kind
def modules_that_change_places() -> Kind:
    o = types.SimpleNamespace(a=torch.nn.Linear(3, 1), b=torch.nn.Linear(3, 1))

    def function(x: torch.Tensor) -> Any:
        o.a, o.b = o.b, o.a
        return o.a(x).detach()

    return Kind(function, three)


class Slotted:
    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: Any = None


class Classy:
    last: Any = None


class Buffered(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("b", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.b = x * 2
        return x + 1


@kind
def left_in_a_deque() -> Kind:
    o: collections.deque[torch.Tensor] = collections.deque()

    def function(x: torch.Tensor) -> torch.Tensor:
        o.append(x * 2)
        return x + 1

    return Kind(function, three, state=lambda: list(o))


@kind
def left_in_a_slot() -> Kind:
    o = Slotted()

    def function(x: torch.Tensor) -> torch.Tensor:
        o.last = x * 2
        return x + 1

    return Kind(function, three, state=lambda: o.last)


@kind
def left_in_a_class() -> Kind:
    def function(x: torch.Tensor) -> torch.Tensor:
        Classy.last = x * 2
        return x + 1

    return Kind(function, three, state=lambda: Classy.last)


@kind
def left_in_a_buffer() -> Kind:
    module = Buffered()
    return Kind(module, three, state=lambda: module.b)


@dataclasses.dataclass(slots=True)
class Pair:
    a: Any


@kind
def results_in_a_deque() -> Kind:
    return Kind(lambda x: collections.deque([x * 2]), three)


@kind
def results_in_slots() -> Kind:
    return Kind(lambda x: Pair(x * 2), three)


@kind
def results_in_a_parameter_list() -> Kind:
    return Kind(lambda x: torch.nn.ParameterList([x * 2]), three)


@kind
def results_in_a_class() -> Kind:
    return Kind(lambda x: type("Made", (), {"a": x * 2}), three)


@kind
def packed_results() -> Kind:
    return Kind(lambda x: torch.nn.utils.rnn.pack_sequence([x * 2]), three)


# Whose replays are refused with the change and without it: nothing that a function does to them is on a tape.
REFUSED = {
    "running_state",
    "running_state_that_is_logged",
    "buffers_that_change_places",
    "modules_that_change_places",
    "left_in_a_deque",
    "left_in_a_slot",
    "left_in_a_class",
    "results_in_a_parameter_list",
    "results_in_a_class",
}
# Whose replays must work even with the change.
REPLAYED = {"conjugated_input", "slices_of_one_tensor", "input_that_becomes_a_part_of_state", "left_in_a_buffer",
            "results_in_a_deque", "results_in_slots", "packed_results"}  # fmt: skip


def plain(value: Any) -> Any:
    """What a result holds, as containers that are looked into."""
    if isinstance(value, collections.deque):
        return list(value)
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return tuple(value)
    if isinstance(value, torch.nn.ParameterList):
        return [each.detach() for each in value]
    if isinstance(value, type | Pair):
        return value.a  # type: ignore[union-attr]
    return value


def outcome(case: Kind, function: Callable[..., Any], changed: bool) -> Any:
    if changed:
        case.change()
    given = case.arguments(3, changed)
    return tree_map(bits, [plain(function(*given)), case.state(), given, torch.get_rng_state()])


def wanted(name: str, changed: bool) -> Any:
    torch.manual_seed(0)
    case = KINDS[name]()
    for call in range(3):
        case.function(*case.arguments(call, False))
    return outcome(case, case.function, changed)


def found(name: str, changed: bool) -> Any:
    torch.manual_seed(0)
    case = KINDS[name]()
    case.function(*case.arguments(0, False))
    tape = torchreel.trace(case.function, *case.arguments(1, False))
    tape.replay(*case.arguments(2, False))
    return outcome(case, tape.replay, changed)


@pytest.mark.parametrize("name", KINDS)
def test_with_the_change(name: str) -> None:
    expected = wanted(name, True)
    try:
        given = found(name, True)
    except TapeError as refusal:
        assert name not in REPLAYED, refusal
        assert str(refusal).endswith(".") and len(str(refusal)) > 40
        return
    assert given == expected


@pytest.mark.parametrize("name", KINDS)
def test_without_the_change(name: str) -> None:
    expected = wanted(name, False)
    if name in REFUSED:
        with pytest.raises(ReplayError):
            found(name, False)
        return
    assert found(name, False) == expected


def test_a_view_of_a_constant_that_the_caller_changed() -> None:
    tape = torchreel.trace(lambda x: torch.tensor([1.0, 2.0, 3.0])[1:], torch.ones(1))
    tape.replay(torch.ones(1)).mul_(5)
    assert tape.replay(torch.ones(1)).tolist() == [2.0, 3.0]


def test_a_result_that_contains_itself() -> None:
    def function(x: torch.Tensor) -> list[Any]:
        result: list[Any] = [x * 2]
        result.append(result)
        return result

    with pytest.raises(TraceError, match="contains itself"):
        torchreel.trace(function, torch.ones(3))
    assert torchreel.trace(lambda x: x * 2, torch.ones(3)).replay(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_state_that_comes_to_share_memory_without_mutation() -> None:
    a, b = torch.ones(3), torch.ones(3)

    def function(x: torch.Tensor) -> torch.Tensor:
        a.add_(x)
        b.mul_(2)
        return a + b

    tape = torchreel.trace(function, torch.ones(3), outplace=True)
    assert tape.replay(torch.ones(3)).tolist() == [7.0, 7.0, 7.0]
    with pytest.raises(GuardError, match="share memory now"):
        tape.replay(a)
    a.data = b.data
    with pytest.raises(GuardError, match="share memory now"):
        tape.replay(torch.ones(3))


def test_a_quantized_input_without_mutation() -> None:
    x = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    tape = torchreel.trace(lambda x: x.dequantize() * 2, x, outplace=True)
    assert torch.equal(tape.replay(x), x.dequantize() * 2)


def test_a_leaf_that_is_returned_with_its_gradient_is_refused() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        leaf = x.clone().requires_grad_()
        leaf.pow(2).sum().backward()
        return leaf

    tape = torchreel.trace(function, torch.ones(3))
    with pytest.raises(ReplayError, match="returns a leaf that it made"):
        tape.replay(torch.ones(3))


def test_a_tape_that_was_refused_stays_so_in_a_file(tmp_path: Path) -> None:
    state = {"h": torch.zeros(3)}

    def function(x: torch.Tensor) -> torch.Tensor:
        state["h"] = state["h"] + x
        return state["h"] * 1

    tape = torchreel.trace(function, torch.ones(3))
    tape.save(tmp_path / "refused.tape")
    with pytest.raises(ReplayError):
        torchreel.load_tape(tmp_path / "refused.tape").replay(torch.ones(3))
