"""Programs against whose replay nothing stands: these must be replayed, and be right when something changes."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import math
import operator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.graphs.guards.kinds.registry import Box, attribute, backward, enter, item, replayed
from tests.graphs.guards.lockstep import Case, Change, Given, module_of, sample

Tensor = torch.Tensor


def _given(*shape: int) -> Any:
    return lambda number: Given(sample(number, *shape))


def _inferred(model: nn.Module, *shape: int) -> Case:
    model.eval()
    return Case(model, given=_given(*shape), around=lambda n: torch.no_grad(), observe=lambda: model)


def _trained(model: nn.Module, *shape: int) -> Case:
    return Case(model, given=_given(*shape), use=backward, observe=lambda: model)


def _stepped(model: nn.Module, make: Any, *shape: int) -> Case:
    optimizer = make(model.parameters())

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        out = model(x)
        loss = (out[0] if isinstance(out, tuple) else out).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    change = item(optimizer.param_groups[0], "lr", 0.01)
    return Case(step, [change], given=_given(*shape), observe=lambda: (model, optimizer))


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(self.norm(self.conv(x)).relu(), 2)
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = 2, nn.Linear(4, 12), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (one.view(b, t, self.heads, -1).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))  # type: ignore[no-any-return]


class Deep(nn.Module):
    """A list of layers, a dict of them, a config and a helper."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
        self.heads = nn.ModuleDict({"a": nn.Linear(3, 2), "b": nn.Linear(3, 1)})
        self.config = {"scale": 0.5, "heads": ["a", "b"]}

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        for place, layer in enumerate(self.layers):
            x = self.mixed(x, layer(x), place)
        return {name: self.heads[name](x) for name in self.config["heads"]}  # type: ignore[attr-defined]

    def mixed(self, x: Tensor, y: Tensor, place: int) -> Tensor:
        return x + y.relu() * self.config["scale"] if place else y  # type: ignore[operator]


_MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "an MLP": (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), (2, 3)),
    "a convolution": (Convolutional, (2, 1, 6, 6)),
    "an LSTM": (lambda: nn.LSTM(3, 4, batch_first=True), (2, 5, 3)),
    "a GRU cell": (lambda: nn.GRUCell(3, 4), (2, 3)),
    "attention": (Attention, (2, 4, 4)),
    "multi-head attention": (
        lambda: _Attended(nn.MultiheadAttention(4, 2, batch_first=True)),
        (2, 3, 4),
    ),
    "a transformer layer": (lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), (2, 3, 4)),
    "dropout": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)), (2, 3)),
}
_SGD = lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9)  # noqa: E731
_ADAM = lambda params: torch.optim.Adam(params, lr=0.1)  # noqa: E731


class _Attended(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=False)[0]  # type: ignore[no-any-return]


for _name, (_make, _shape) in _MODELS.items():
    enter(f"inference of {_name}", lambda make=_make, shape=_shape: _inferred(make(), *shape), replays=True)
    enter(f"training of {_name}", lambda make=_make, shape=_shape: _trained(make(), *shape), replays=True)
    enter(f"SGD with {_name}", lambda make=_make, shape=_shape: _stepped(make(), _SGD, *shape), replays=True)
    enter(f"Adam with {_name}", lambda make=_make, shape=_shape: _stepped(make(), _ADAM, *shape), replays=True)
enter("loops over modules, inference", lambda: _inferred(Deep(), 2, 3), replays=True)
enter("loops over modules, training", lambda: _dictionary(Deep()), replays=True)


def _dictionary(model: nn.Module) -> Case:
    use = lambda out: sum(one.pow(2).sum() for one in out.values()).backward()  # noqa: E731
    change = item(model.config, "scale", 2.0)
    return Case(model, [change], given=_given(2, 3), use=use, observe=lambda: model)


@replayed
def globals_of_a_module() -> Any:
    source = (
        "K, TABLE = 2.0, {'a': [1.0, 2.0]}\n\ndef helper(x, by):\n    return x * by\n\n"
        "def function(x):\n    return helper(x, K) + sum(TABLE['a'])\n"
    )
    module = module_of("globals", source)
    return module.function, attribute(module, "K", 5.0), item(module.TABLE["a"], 0, 3.0)


@replayed
def attributes_of_an_object() -> Any:
    box = Box(k=2.0, inner=Box(k=3.0, parts=[1.0, 2.0]))

    def function(x: Tensor) -> Tensor:
        return x * box.k + box.inner.k * box.inner.parts[1]

    return function, attribute(box, "k", 5.0), item(box.inner.parts, 1, 7.0)


@replayed
def closures_and_helpers() -> Any:
    scale, parts = 2.0, [torch.ones(3), torch.zeros(3)]

    def helper(x: Tensor, *rest: Tensor, by: float = 1.0) -> Tensor:
        return sum((x * by, *rest), x)

    def outer(x: Tensor) -> Tensor:
        def inner(y: Tensor) -> Tensor:
            return helper(y, *parts, by=scale)

        return inner(x) + 1

    return outer, item(parts, 0, torch.full((3,), 3.0))


@replayed
def data_class_as_config() -> Any:
    @dataclasses.dataclass(frozen=True)
    class Config:
        width: int = 3
        scale: float = 2.0
        sizes: tuple[int, ...] = (1, 2)

    holder = Box(config=Config())

    def function(x: Tensor) -> Tensor:
        config = holder.config
        return x[: config.width] * config.scale * sum(config.sizes)

    return function, attribute(holder, "config", Config(scale=5.0))


@replayed
def enum_as_config() -> Any:
    class Mode(enum.Enum):
        SIN = "sin"
        COS = "cos"

    box = Box(mode=Mode.SIN)
    return lambda x: x.sin() * 2 if box.mode is Mode.SIN else x.cos() * 2, attribute(box, "mode", Mode.COS)


@replayed
def named_tuple_as_config() -> Any:
    sizes = collections.namedtuple("sizes", "width scale")
    box = Box(sizes=sizes(2, 3.0))
    return lambda x: x[: box.sizes.width] * box.sizes.scale, attribute(box, "sizes", sizes(3, 4.0))


@replayed
def dict_as_config() -> Any:
    config = {"scale": 2.0, "steps": ["sin", "cos"], "deep": {"on": True}}

    def function(x: Tensor) -> Tensor:
        for name in config["steps"]:  # type: ignore[attr-defined]
            x = x.sin() if name == "sin" else x.cos()
        return x * config["scale"] if config["deep"]["on"] else x  # type: ignore[index]

    return function, item(config, "scale", 3.0), item(config["steps"], 0, "cos")


@replayed
def comprehensions() -> Any:
    parts = [1.0, 2.0, 3.0]

    def function(x: Tensor) -> Any:
        made = [x * k for k in parts if k > 1]
        table = {str(place): one.sum() for place, one in enumerate(made)}
        return torch.stack(made), table, tuple(one + 1 for one in made)

    return function, item(parts, 0, 4.0)


@replayed
def keywords_and_defaults() -> Any:
    def function(x: Tensor, *, scale: float = 2.0, flag: bool = False, **rest: Any) -> Tensor:
        return x * scale + (1 if flag else 2) + len(rest)

    return Case(function, given=lambda n: Given(sample(n), flag=True, other=None))


@replayed
def loops_over_pairs() -> Any:
    weights = [torch.ones(3), torch.full((3,), 2.0)]
    names = ["a", "b"]

    def function(x: Tensor) -> Tensor:
        for place, (name, weight) in enumerate(zip(names, weights, strict=True)):
            x = x * weight + place if name != "skip" else x
        return x

    return function, item(names, 1, "skip")


@replayed
def method_of_an_object() -> Any:
    class Model:
        def __init__(self) -> None:
            self.w = torch.ones(3)
            self.k = 2.0

        @property
        def double(self) -> float:
            return self.k * 2

        def run(self, x: Tensor) -> Tensor:
            return self.scaled(x) + self.w

        def scaled(self, x: Tensor) -> Tensor:
            return x * self.double

    model = Model()
    return model.run, attribute(model, "k", 5.0), attribute(model, "w", torch.zeros(3))


@replayed
def static_and_class_methods() -> Any:
    class Model:
        k = 2.0

        @staticmethod
        def moved(x: Tensor) -> Tensor:
            return x + 1

        @classmethod
        def scaled(cls, x: Tensor) -> Tensor:
            return cls.moved(x) * cls.k

    return lambda x: Model.scaled(x), attribute(Model, "k", 5.0)


@replayed
def inheritance_and_super() -> Any:
    class Base(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)  # type: ignore[no-any-return]

    class Derived(Base):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).relu() + x

    return _trained(Derived(), 2, 3)


@replayed
def autocast_inside() -> Any:
    model = nn.Linear(3, 3)

    def function(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float()  # type: ignore[no-any-return]

    return Case(function, given=_given(2, 3), use=backward, observe=lambda: model)


@replayed
def no_grad_inside() -> Any:
    model, frozen = nn.Linear(3, 3), nn.Linear(3, 3)

    def function(x: Tensor) -> Tensor:
        with torch.no_grad():
            target = frozen(x)
        return functional.mse_loss(model(x), target)

    return Case(function, given=_given(2, 3), use=backward, observe=lambda: (model, frozen))


@replayed
def decorated_with_no_grad_as_a_whole() -> Any:
    model = nn.Linear(3, 3)

    @torch.no_grad()
    def function(x: Tensor) -> Tensor:
        return model(x).relu()  # type: ignore[no-any-return]

    return Case(function, given=_given(2, 3), observe=lambda: model)


@replayed
def inference_mode_around() -> Any:
    model = nn.Linear(3, 3)
    return Case(model, given=_given(2, 3), around=lambda n: torch.inference_mode(), observe=lambda: model)


@replayed
def random_draws() -> Any:
    return Case(lambda x: functional.dropout(x, 0.5) + torch.rand(3) * torch.randn_like(x))


@replayed
def branch_on_a_shape() -> Any:
    def function(x: Tensor) -> Tensor:
        if x.dim() == 1 and x.shape[0] > 2 and x.dtype is torch.float32:
            return x.view(1, -1).expand(2, -1) * math.sqrt(x.numel())
        return x

    return function


@replayed
def branch_on_a_value() -> Any:
    return Case(lambda x: x * 2 if x.sum() > 0 else x - 1)


@replayed
def assertion_on_a_shape() -> Any:
    def function(x: Tensor) -> Tensor:
        assert x.shape == (3,), f"the shape is {x.shape}"
        if x.is_complex():
            raise ValueError("complex")
        return x * 2

    return function


@replayed
def buffer_written_in_place() -> Any:
    state = torch.zeros(3)

    def function(x: Tensor) -> Tensor:
        state.mul_(0.9).add_(x, alpha=0.1)
        return state * 2

    return Case(function, [Change(lambda: state.zero_())], observe=lambda: state)


@replayed
def argument_written_in_place() -> Any:
    return Case(lambda x: x.mul_(2).add_(1))


@replayed
def pure_functions_of_c() -> Any:
    numbers, table = [3.0, 1.0, 2.0], {"a": 1.0, "b": 2.0}

    def function(x: Tensor) -> Tensor:
        biggest = max(numbers) + min(table.values()) + sum(sorted(numbers)[:2]) + len(table)
        return x * biggest + math.pi * abs(-2.0) * round(2.6) + divmod(7, 2)[0] + isinstance(x, Tensor)

    return function, item(numbers, 0, 9.0), item(table, "a", 0.5)


@replayed
def reduction_over_a_list() -> Any:
    parts = [torch.ones(3), torch.full((3,), 2.0)]
    return lambda x: functools.reduce(operator.add, parts, x), item(parts, 0, torch.zeros(3))


@replayed
def try_and_finally() -> Any:
    def function(x: Tensor) -> Tensor:
        try:
            return x * 2
        finally:
            x = x + 1

    return function


@replayed
def objects_made_inside() -> Any:
    class Pair:
        def __init__(self, a: Tensor, b: Tensor) -> None:
            self.a, self.b = a, b

        def total(self) -> Tensor:
            return self.a + self.b

    def function(x: Tensor) -> Tensor:
        pairs = [Pair(x, x * k) for k in range(3)]
        kept: dict[str, Any] = {}
        for place, pair in enumerate(pairs):
            kept[str(place)] = pair.total()
        return torch.stack(list(kept.values()))

    return function


@replayed
def recursion() -> Any:
    def power(x: Tensor, n: int) -> Tensor:
        return x if n == 1 else x * power(x, n - 1)

    return lambda x: power(x, 4)


@replayed
def partial_function() -> Any:
    def scaled(x: Tensor, by: float, plus: float) -> Tensor:
        return x * by + plus

    made = functools.partial(scaled, plus=1.0)
    return lambda x: made(x, 2.0)


@replayed
def nested_containers_as_arguments() -> Any:
    def given(number: int) -> Given:
        return Given({"x": sample(number), "parts": [sample(number + 1), (sample(number + 2),)]}, scale=2.0)

    def function(batch: Any, scale: float) -> Any:
        return {"y": batch["x"] * scale, "z": [batch["parts"][0] + batch["parts"][1][0]]}

    return Case(function, given=given)


@replayed
def clipping_and_a_schedule_outside() -> Any:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    change = item(optimizer.param_groups[0], "lr", 0.01)
    return Case(step, [change], given=_given(2, 3), observe=lambda: (model, optimizer))


@replayed
def two_models_and_two_optimizers() -> Any:
    maker, judge = nn.Linear(3, 3), nn.Linear(3, 1)
    first, second = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (maker, judge))

    def step(x: Tensor) -> Any:
        second.zero_grad()
        wrong = judge(maker(x).detach()).pow(2).mean()
        wrong.backward()
        second.step()
        first.zero_grad()
        right = judge(maker(x)).mean()
        right.backward()
        first.step()
        return wrong.detach(), right.detach()

    return Case(step, given=_given(2, 3), observe=lambda: (maker, judge))


@replayed
def function_of_autograd() -> Any:
    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return gradient * x * 2

    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = Squared.apply(model(x)).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Case(step, given=_given(2, 3), observe=lambda: model)


@replayed
def embedding_and_cross_entropy() -> Any:
    table, head = nn.Embedding(10, 4), nn.Linear(4, 10)

    def given(number: int) -> Given:
        words = torch.randint(0, 10, (2, 5), generator=torch.Generator().manual_seed(number))
        return Given(words[:, :-1], words[:, 1:])

    def function(words: Tensor, wanted: Tensor) -> Tensor:
        return functional.cross_entropy(head(table(words)).flatten(0, 1), wanted.flatten())

    return Case(function, given=given, use=backward, observe=lambda: (table, head))


@replayed
def forward_hook_without_an_effect() -> Any:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].register_forward_hook(lambda m, args, out: out * 2)
    return _trained(model, 2, 3)
