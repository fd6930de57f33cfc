"""What Python asks tensors, and what they are to each other: attributes, memory, gradients, arguments."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from tests.graphs.guards.kinds.registry import Box, attribute, backward, enter, item, kind
from tests.graphs.guards.lockstep import Case, Change, Given, sample

Tensor = torch.Tensor


def leaf(*numbers: float) -> Tensor:
    return torch.tensor(numbers or (1.0, 2.0, 3.0), requires_grad=True)


def _written(value: Tensor, number: float = 0.5) -> None:
    with torch.no_grad():
        value.add_(number)


# What is asked of a tensor that the function reads, and what makes the answer another one.
_QUESTIONS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Tensor], Change]]] = {
    "attribute of its own": (lambda w: getattr(w, "k", 1.0), lambda w: attribute(w, "k", 5.0)),
    "own attributes": (lambda w: 1.0 + len(w.__dict__), lambda w: attribute(w, "k", 5.0)),
    "grad is None": (
        lambda w: 2.0 if w.grad is None else 3.0,
        lambda w: Change(lambda: setattr(w, "grad", torch.ones(3)), lambda: setattr(w, "grad", None)),
    ),
    "requires_grad": (
        lambda w: 2.0 if w.requires_grad else 3.0,
        lambda w: Change(lambda: w.requires_grad_(False), lambda: w.requires_grad_(True)),
    ),
    "is_leaf and grad_fn": (
        lambda w: 2.0 if w.is_leaf and w.grad_fn is None and w.requires_grad else 3.0,
        lambda w: Change(lambda: w.requires_grad_(False), lambda: w.requires_grad_(True)),
    ),
    "_version": (lambda w: float(w._version), lambda w: Change(lambda: _written(w, 0.0), lambda: _written(w, 0.0))),
    "shape": (
        lambda w: float(w.dim()) + 1,
        lambda w: Change(lambda: setattr(w, "data", w.data.view(1, 3)), lambda: setattr(w, "data", w.data.view(3))),
    ),
    "dtype": (
        lambda w: 2.0 if w.dtype is torch.float32 else 3.0,
        lambda w: Change(lambda: setattr(w, "data", w.data.double()), lambda: setattr(w, "data", w.data.float())),
    ),
    "data_ptr": (
        lambda w: 2.0 if w.data_ptr() == w.kept.data_ptr() else 3.0,  # type: ignore[attr-defined]
        lambda w: Change(lambda: setattr(w, "data", w.data.clone())),
    ),
    "storage_offset": (
        lambda w: 1.0 + w.storage_offset(),
        lambda w: Change(lambda: setattr(w, "data", torch.arange(6.0)[2:5])),
    ),
    "stride": (
        lambda w: 1.0 + w.stride(0) + (0 if w.is_contiguous() else 9),
        lambda w: Change(lambda: setattr(w, "data", torch.arange(6.0)[::2])),
    ),
    "size of its memory": (
        lambda w: 1.0 + w.untyped_storage().nbytes(),
        lambda w: Change(lambda: setattr(w, "data", torch.arange(6.0)[:3])),
    ),
    "hooks": (
        lambda w: 2.0 if w._backward_hooks else 3.0,
        lambda w: Change(lambda: w.register_hook(lambda gradient: gradient * 2)),
    ),
    "values by item": (
        lambda w: w[0].item(),
        lambda w: Change(lambda: _written(w), lambda: _written(w, -0.5)),
    ),
    "values by tolist": (
        lambda w: sum(w.tolist()),
        lambda w: Change(lambda: _written(w), lambda: _written(w, -0.5)),
    ),
    "values by numpy": (
        lambda w: float(w.detach().numpy().sum()),
        lambda w: Change(lambda: _written(w), lambda: _written(w, -0.5)),
    ),
    "values by repr": (
        lambda w: len(repr(w)) + sum(map(ord, repr(w))),
        lambda w: Change(lambda: _written(w), lambda: _written(w, -0.5)),
    ),
    "values by bool": (
        lambda w: 2.0 if (w > 1.2).all() else 3.0,
        lambda w: Change(lambda: _written(w), lambda: _written(w, -0.5)),
    ),
    "values by float in a format": (
        lambda w: float(f"{w[0]:.1f}"),
        lambda w: Change(lambda: _written(w), lambda: _written(w, -0.5)),
    ),
    "values by iteration": (
        lambda w: float(max(w)),
        lambda w: Change(lambda: _written(w), lambda: _written(w, -0.5)),
    ),
    "values as an index": (
        lambda w: [2.0, 3.0, 4.0][int(w[0])],
        lambda w: Change(lambda: _written(w, 1.0), lambda: _written(w, -1.0)),
    ),
    "equality of values": (
        lambda w: 2.0 if torch.equal(w, torch.tensor([1.0, 2.0, 3.0])) else 3.0,
        lambda w: Change(lambda: _written(w), lambda: _written(w, -0.5)),
    ),
    "gradient's values": (
        lambda w: 1.0 if w.grad is None else w.grad.sum().item(),
        lambda w: Change(lambda: setattr(w, "grad", torch.full((3,), 2.0)), lambda: setattr(w, "grad", None)),
    ),
    "type": (
        lambda w: 2.0 if isinstance(w, torch.nn.Parameter) else 3.0,
        lambda w: Change(lambda: setattr(w, "_is_param", True), lambda: delattr(w, "_is_param")),
    ),
    "inference": (lambda w: 2.0 if w.is_inference() else 3.0, lambda w: attribute(w, "unused", 1.0)),
}
_IDLE = {"inference"}


def _asked(question: Callable[[Tensor], Any], change: Callable[[Tensor], Change], through: str, idle: bool) -> Case:
    w = leaf()
    w.kept = w.detach() if "data_ptr" in question.__code__.co_names else None  # type: ignore[attr-defined]
    if w.kept is None:  # type: ignore[attr-defined]
        del w.kept  # type: ignore[attr-defined]
    made = change(w)
    changes = [Change(made.do, made.undo, idle)]
    if through == "argument":
        return Case(lambda x, w: x * question(w), changes, given=lambda n: Given(sample(n), w), observe=lambda: w)
    holder = {"w": [w]}
    return Case(lambda x: x * question(holder["w"][0]), changes, observe=lambda: w)


for _name, (_question, _change) in _QUESTIONS.items():
    for _through in ("state", "argument"):
        enter(
            f"{_name} of a tensor that is {_through}",
            lambda q=_question, c=_change, t=_through, i=_name in _IDLE: _asked(q, c, t, i),
        )


@kind
def gradient_that_the_function_reads() -> Any:
    w = leaf()

    def function(x: Tensor) -> Tensor:
        (w * x).sum().backward()
        return w.grad.clone()  # type: ignore[union-attr]

    change = Change(lambda: setattr(w, "grad", None))
    return Case(function, [change], observe=lambda: w)


@kind
def gradient_returned_as_it_is() -> Any:
    w = leaf()

    def function(x: Tensor) -> Any:
        w.grad = None
        (w * x).sum().backward()
        return w.grad

    return Case(function, observe=lambda: w)


@kind
def gradient_set_by_hand() -> Any:
    w = leaf()

    def function(x: Tensor) -> Tensor:
        w.grad = x * 2
        return x + 1

    return Case(function, observe=lambda: w)


@kind
def attribute_set_on_a_tensor_of_state() -> Any:
    w = torch.ones(3)

    def function(x: Tensor) -> Tensor:
        w.last = x * 2  # type: ignore[attr-defined]
        return x + w

    return Case(function, observe=lambda: w)


@kind
def attribute_set_on_an_argument() -> Any:
    def function(x: Tensor) -> Tensor:
        x.seen = True  # type: ignore[attr-defined]
        return x * 2

    return Case(function)


@kind
def attribute_set_on_the_result() -> Any:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        y.scale = 2.0  # type: ignore[attr-defined]
        y.parts = [x]  # type: ignore[attr-defined]
        return y

    return Case(function)


@kind
def attribute_of_an_argument_that_differs_at_each_call() -> Any:
    def given(number: int) -> Given:
        x = sample(number)
        x.scale = float(number)  # type: ignore[attr-defined]
        return Given(x)

    return Case(lambda x: x * x.scale, given=given)


@kind
def same_tensor_twice() -> Any:
    flip = Box(same=True)

    def given(number: int) -> Given:
        x = sample(number)
        return Given(x, x if flip.same else x.clone())

    def function(a: Tensor, b: Tensor) -> Any:
        return a * (2.0 if a is b else 3.0), b + 1

    return Case(function, [attribute(flip, "same", False)], given=given)


@kind
def same_tensor_twice_written() -> Any:
    flip = Box(same=True)

    def given(number: int) -> Given:
        x = sample(number)
        return Given(x, x if flip.same else x.clone())

    def function(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return b * 2

    return Case(function, [attribute(flip, "same", False)], given=given)


@kind
def views_of_one_another() -> Any:
    flip = Box(apart=False)

    def given(number: int) -> Given:
        base = sample(number, 6)
        return Given(base[:4], (base.clone() if flip.apart else base)[2:])

    def function(a: Tensor, b: Tensor) -> Tensor:
        a.mul_(2)
        b.add_(1)
        return a + b

    return Case(function, [attribute(flip, "apart", True)], given=given)


@kind
def view_of_a_tensor_of_state() -> Any:
    state = torch.zeros(6)
    flip = Box(apart=False)

    def given(number: int) -> Given:
        return Given(torch.zeros(3) if flip.apart else state[1:4], number)

    def function(view: Tensor, by: Any) -> Tensor:
        view.add_(1)
        return state * 2

    return Case(
        function, [attribute(flip, "apart", True)], given=lambda n: Given(given(n).args[0], 1.0), observe=lambda: state
    )


@kind
def input_returned() -> Any:
    return Case(lambda x: (x, x * 2, x))


@kind
def input_returned_alone() -> Any:
    return Case(lambda x: x)


@kind
def view_of_the_input_returned() -> Any:
    return Case(lambda x: (x[1:], x.view(1, 3)), use=lambda out: out[0].add_(1))


@kind
def one_result_twice() -> Any:
    def function(x: Tensor) -> Any:
        y = x * 2
        return y, [y, {"y": y}]

    return Case(function, use=lambda out: out[0].add_(1))


@kind
def result_and_a_view_of_it() -> Any:
    def function(x: Tensor) -> Any:
        y = x * 2
        return y, y[1:], y.detach()

    return Case(function, use=lambda out: out[0].add_(1))


@kind
def parameter_returned() -> Any:
    w = torch.nn.Parameter(torch.ones(3))
    return Case(lambda x: (w, x * w, w.data, w.detach()), observe=lambda: w)


@kind
def tensor_of_state_returned_that_is_replaced() -> Any:
    box = Box(w=torch.ones(3))
    return Case(lambda x: (box.w, x * 2), [attribute(box, "w", torch.zeros(3))], observe=lambda: box)


@kind
def constant_made_inside() -> Any:
    return Case(lambda x: (torch.ones(3), x * 2, torch.tensor([1.0])), use=lambda out: (out[0].add_(1), out[2].add_(1)))


@kind
def result_that_the_caller_writes() -> Any:
    return Case(lambda x: x * 2, use=lambda out: out.zero_())


@kind
def input_that_the_caller_writes_before_the_backward() -> Any:
    w = leaf()
    kept: list[Tensor] = []

    def given(number: int) -> Given:
        kept[:] = [sample(number)]
        return Given(*kept)

    def use(out: Tensor) -> None:
        kept[0].add_(1)
        out.sum().backward()

    return Case(lambda x: w * x, given=given, use=use, observe=lambda: w)


@kind
def weight_that_the_caller_writes_before_the_backward() -> Any:
    w = leaf()

    def use(out: Tensor) -> None:
        _written(w)
        out.sum().backward()

    return Case(lambda x: (w * x).sin() * w, use=use, observe=lambda: w)


@kind
def parameter_or_tensor_as_argument() -> Any:
    flip = Box(parameter=False)

    def given(number: int) -> Given:
        w = torch.ones(3)
        return Given(sample(number), torch.nn.Parameter(w) if flip.parameter else w.requires_grad_())

    def function(x: Tensor, w: Tensor) -> Tensor:
        return x * w * (2.0 if isinstance(w, torch.nn.Parameter) else 3.0)

    return Case(function, [attribute(flip, "parameter", True)], given=given, use=backward)


@kind
def argument_that_requires_a_gradient_at_times() -> Any:
    def given(number: int) -> Given:
        return Given(sample(number).requires_grad_(number % 3 == 0))

    return Case(lambda x: (x * 2, x.requires_grad), given=given, use=backward)


@kind
def argument_that_is_no_leaf_at_times() -> Any:
    w = leaf()

    def given(number: int) -> Given:
        x = sample(number).requires_grad_()
        return Given(x if number % 2 else x * w)

    return Case(lambda x: x * (2.0 if x.is_leaf else 3.0), given=given, use=backward, observe=lambda: w)


@kind
def argument_with_a_gradient_already() -> Any:
    x = leaf()

    def function(x: Tensor) -> Tensor:
        return x * (2.0 if x.grad is None else 3.0)

    change = Change(lambda: setattr(x, "grad", None))
    return Case(function, [change], given=lambda n: Given(x), use=backward)


@kind
def argument_of_another_shape_and_layout() -> Any:
    makers = [
        lambda n: sample(n, 2, 3), lambda n: sample(n, 3, 2).t(), lambda n: sample(n, 2, 6)[:, ::2],
        lambda n: sample(n, 1, 3).expand(2, 3), lambda n: sample(n, 4, 3)[2:], lambda n: sample(n, 2, 3).double(),
    ]  # fmt: skip
    box = Box(make=makers[0])
    changes = [attribute(box, "make", make) for make in makers[1:]]
    return Case(lambda x: (x * 2, x.contiguous(), x.stride()), changes, given=lambda n: Given(box.make(n)))


@kind
def storage_offset_of_an_argument() -> Any:
    base = torch.arange(32.0)
    return Case(lambda x: x * x.storage_offset(), given=lambda n: Given(base[n : n + 3]))


@kind
def alignment_of_an_argument() -> Any:
    base = torch.arange(64.0)
    return Case(lambda x: x * (x.data_ptr() - base.data_ptr()), given=lambda n: Given(base[n : n + 3]))


@kind
def memory_of_an_argument() -> Any:
    bases = [torch.arange(4.0 + k) for k in range(20)]
    return Case(lambda x: x * x.untyped_storage().nbytes(), given=lambda n: Given(bases[n][:3]))


@kind
def base_of_an_argument() -> Any:
    bases = [torch.arange(3.0) + k for k in range(20)]
    return Case(
        lambda x: (x * (1.0 if x._base is None else x._base.sum()), x._base), given=lambda n: Given(bases[n][:])
    )


@kind
def memory_written_through_another_view() -> Any:
    state = torch.zeros(6)
    views = {"all": state, "part": state[2:5]}

    def function(x: Tensor) -> Tensor:
        views["part"].add_(x)
        return views["all"] * 2

    return Case(function, [item(views, "part", state[:3])], observe=lambda: state)


@kind
def tensor_subclass_as_argument() -> Any:
    class Marked(Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function.__name__ in ("mul", "add"):  # who asks for its shape is not the function
                seen.append(function.__name__)
            return super().__torch_function__(function, types, args, kwargs or {})

    seen: list[str] = []
    flip = Box(on=True)

    def given(number: int) -> Given:
        x = sample(number)
        return Given(x.as_subclass(Marked) if flip.on else x)

    return Case(lambda x: x * 2 + 1, [attribute(flip, "on", False)], given=given, observe=lambda: seen)


@kind
def tensor_subclass_with_state() -> Any:
    class Scaled(Tensor):
        scale = 2.0

        def scaled(self) -> Tensor:
            return self.as_subclass(Tensor) * self.scale

    w = torch.ones(3).as_subclass(Scaled)
    return lambda x: x * w.scaled(), attribute(w, "scale", 3.0), attribute(Scaled, "scale", 4.0)


@kind
def parameter_class_of_ones_own() -> Any:
    class Weight(torch.nn.Parameter):
        pass

    w = Weight(torch.ones(3))
    w.k = 2.0  # type: ignore[attr-defined]
    return Case(lambda x: x * w * w.k, [attribute(w, "k", 5.0)], use=backward, observe=lambda: w)  # type: ignore[attr-defined]


@kind
def data_replaced() -> Any:
    w = torch.nn.Parameter(torch.ones(3))
    change = Change(lambda: setattr(w, "data", torch.full((3,), 2.0)), lambda: setattr(w, "data", torch.ones(3)))
    return Case(lambda x: x * w, [change], use=backward, observe=lambda: w)


@kind
def data_written() -> Any:
    w = torch.nn.Parameter(torch.ones(3))
    change = Change(lambda: w.data.mul_(2), lambda: w.data.mul_(0.5))
    return Case(lambda x: x * w, [change], use=backward, observe=lambda: w)


@kind
def data_replaced_inside() -> Any:
    w = torch.nn.Parameter(torch.ones(3))

    def function(x: Tensor) -> Tensor:
        w.data = w.data * 0.5 + x
        return w * 2

    return Case(function, use=backward, observe=lambda: w)


@kind
def tensor_of_state_replaced_by_one_alike() -> Any:
    box = Box(w=torch.ones(3))
    return lambda x: x * box.w, attribute(box, "w", torch.full((3,), 5.0))


@kind
def tensors_in_a_list_reordered() -> Any:
    parts = [torch.ones(3), torch.full((3,), 2.0)]
    return (
        lambda x: torch.stack(parts) * x,
        Change(parts.reverse, parts.reverse),
        Change(lambda: parts.append(parts[0])),
    )


@kind
def tensor_made_sparse_at_times() -> Any:
    box = Box(w=torch.eye(3))
    return lambda x: torch.mv(box.w, x), attribute(box, "w", torch.eye(3).mul(2).to_sparse())


@kind
def tensors_requires_grad_set_inside() -> Any:
    w = torch.ones(3)

    def function(x: Tensor) -> Any:
        w.requires_grad_()
        return x * w

    return Case(function, [Change(lambda: w.requires_grad_(False), idle=True)], observe=lambda: w)


@kind
def tensor_resized_inside() -> Any:
    kept = torch.zeros(1)

    def function(x: Tensor) -> Tensor:
        kept.resize_(kept.numel() + 1).zero_()
        return x * kept.numel()

    return Case(function, observe=lambda: kept)


@kind
def tensor_deep_copied_inside() -> Any:
    w = torch.ones(3)
    w.k = 2.0  # type: ignore[attr-defined]

    def function(x: Tensor) -> Tensor:
        other = copy.deepcopy(w)
        return x * other * other.k  # type: ignore[attr-defined]

    return function, attribute(w, "k", 5.0), Change(lambda: w.add_(1), lambda: w.sub_(1))


@kind
def set_of_tensors() -> Any:
    known = {torch.ones(3)}
    more = torch.zeros(3)
    return lambda x: x * len(known), Change(lambda: known.add(more), lambda: known.discard(more))


@kind
def dict_keyed_by_a_tensor() -> Any:
    w = torch.ones(3)
    table = {w: 1.0}
    return lambda x: x * table[w], item(table, w, 5.0)


@kind
def optional_argument() -> Any:
    def given(number: int) -> Given:
        return Given(sample(number), *([None] if number % 3 == 1 else [sample(number + 1)] if number % 3 == 2 else []))

    missing = object()

    def function(x: Tensor, other: Any = missing) -> Tensor:
        return x * 2 if other is missing else x * 3 if other is None else x * other

    return Case(function, given=given)


@kind
def arguments_by_position_or_keyword() -> Any:
    def given(number: int) -> Given:
        x, y = sample(number), sample(number + 1)
        return [Given(x, y), Given(x, b=y), Given(b=y, a=x), Given(y, x), Given(a=y, b=x)][number % 5]

    return Case(lambda a, b: a - b * 2, given=given)


@kind
def star_arguments() -> Any:
    def given(number: int) -> Given:
        return Given(*(sample(number + k) for k in range(1 + number % 3)), **({"last": 2.0} if number % 2 else {}))

    def function(*parts: Tensor, **more: Any) -> Any:
        return sum(parts) * more.get("last", 1.0), len(parts), parts, more

    return Case(function, given=given)


@kind
def text_argument() -> Any:
    return Case(
        lambda x, how: getattr(torch, how)(x), given=lambda n: Given(sample(n), how=["sin", "cos", "sin"][n % 3])
    )


@kind
def function_argument() -> Any:
    box = Box(k=1.0)
    steps = [lambda x: x * box.k, torch.sin]
    change = attribute(box, "k", 5.0)
    return Case(lambda x, step: step(x) + 1, [change], given=lambda n: Given(sample(n), steps[0]))


@kind
def module_argument() -> Any:
    layers = [torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)]
    return Case(lambda x, layer: layer(x), given=lambda n: Given(sample(n), layers[n // 2 % 2]), observe=lambda: layers)


@kind
def nested_arguments() -> Any:
    def given(number: int) -> Given:
        return Given({"a": [sample(number), (sample(number + 1), None)], "k": number % 2})

    return Case(lambda batch: batch["a"][0] * batch["k"] + batch["a"][1][0], given=given)


@kind
def huge_int_argument() -> Any:
    return Case(lambda x, k: x * (k % 7), given=lambda n: Given(sample(n), 2**80 + n // 3))


@kind
def number_of_a_tensor_as_argument() -> Any:
    return Case(lambda x, k: x * k, given=lambda n: Given(sample(n), torch.tensor(float(n))))


@kind
def scalar_argument_of_numpy() -> Any:
    import numpy

    return Case(lambda x, k: x * float(k), given=lambda n: Given(sample(n), numpy.float64(n // 2)))


@kind
def array_argument_of_numpy() -> Any:
    import numpy

    return Case(lambda x, k: x * torch.from_numpy(k).float(), given=lambda n: Given(sample(n), numpy.full(3, float(n))))


@kind
def random_generator_as_argument() -> Any:
    chance = torch.Generator().manual_seed(3)
    return Case(
        lambda x, chance: x + torch.rand(3, generator=chance),
        [Change(lambda: chance.manual_seed(9))],
        given=lambda n: Given(sample(n), chance),
        observe=lambda: chance,
    )


@kind
def random_generator_of_an_object() -> Any:
    box = Box(chance=torch.Generator().manual_seed(3))
    other = torch.Generator().manual_seed(5)
    return Case(
        lambda x: x + torch.rand(3, generator=box.chance), [attribute(box, "chance", other)], observe=lambda: vars(box)
    )
