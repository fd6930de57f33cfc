"""Python that a function reads, kind by kind: a change of it is seen, and no change is no reason to stop."""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import io
import itertools
import logging
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import torchreel
from tests.tape.guards.hostile_changes import Change, numbers, one
from tests.tape.guards.test_hostile_changes import last_call
from torchreel.errors import GuardError, ReplayError

KINDS: dict[str, Callable[[], Change]] = {}
COUNTS: set[str] = set()  # those that change something themselves, at each call
G = {"a": 1.0}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def kind(make: Callable[[], Change]) -> Callable[[], Change]:
    assert make.__name__ not in KINDS
    KINDS[make.__name__] = make
    return make


def counts(make: Callable[[], Change]) -> Callable[[], Change]:
    COUNTS.add(make.__name__)
    return kind(make)


def reads(name: str, make: Callable[[], Any], read: Callable[[Any], Any], change: Callable[[Any], object]) -> None:
    """A function that multiplies with what it reads of an object."""

    def program() -> Change:
        thing = make()
        return Change(lambda x: x * read(thing), one, lambda: change(thing))

    KINDS[name] = program


def decorated(name: str, decorator: Callable[..., Any]) -> None:
    def program() -> Change:
        table = {"scale": 2.0}
        function = decorator(lambda x: x * table["scale"])
        return Change(function, one, lambda: table.update(scale=3.0))

    KINDS[name] = program


decorated("no_grad", torch.no_grad())
decorated("enable_grad", torch.enable_grad())
decorated("inference_mode", torch.inference_mode())
decorated("autocast", torch.autocast("cpu", enabled=False))
decorated("vmap", torch.vmap)
decorated("jacrev", torch.func.jacrev)
decorated("compiler_disable", torch.compiler.disable)


def cached(function: Any) -> Any:
    call = functools.lru_cache(lambda: function)
    return lambda x: call()(x)


decorated("lru_cache", cached)


class Scaled:
    def __init__(self) -> None:
        self.scale = 2.0

    @torch.no_grad()
    def call(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


@kind
def a_method_without_gradients() -> Change:
    scaled = Scaled()
    return Change(scaled.call, one, lambda: setattr(scaled, "scale", 3.0))


@counts
def a_count_without_gradients() -> Change:
    count = [0]

    @torch.no_grad()
    def function(x: torch.Tensor) -> torch.Tensor:
        count[0] += 1
        return x * count[0]

    return Change(function, one)


def training(
    optimizer: Callable[[nn.Parameter], Any], change: Callable[[Any, nn.Parameter], object] = lambda *_: None
) -> Change:
    weight = nn.Parameter(torch.ones(3))
    made = optimizer(weight)

    def function(x: torch.Tensor) -> None:
        made.zero_grad()
        (weight * x).sum().backward()
        made.step()

    return Change(function, one, lambda: change(made, weight), lambda: [weight, weight.grad])


def setting(name: str, was: Callable[[], Any], now: Any) -> None:
    def program() -> Change:
        return training(
            lambda w: torch.optim.SGD([{"params": [w], "lr": 0.1, name: was()}]),
            lambda optimizer, _: optimizer.param_groups[0].update({name: now}),
        )

    KINDS[f"the {name} of a group as a {type(now).__module__} {type(now).__name__}"] = program


setting("lr", lambda: numpy.float64(0.1), numpy.float64(0.5))
setting("weight_decay", lambda: numpy.float32(0.1), numpy.float32(0.5))
setting("lr", lambda: torch.tensor(0.1), torch.tensor(0.5))


@kind
def a_rate_by_numpy() -> Change:
    schedulers = []

    def optimizer(weight: nn.Parameter) -> torch.optim.Optimizer:
        made = torch.optim.SGD([weight], lr=0.1)
        schedulers.append(torch.optim.lr_scheduler.LambdaLR(made, lambda epoch: 0.5 * (1 + numpy.cos(epoch))))
        return made

    return training(optimizer, lambda *_: schedulers[0].step())


class OwnOptimizer(torch.optim.Optimizer):
    def __init__(self, weight: nn.Parameter, counts: bool) -> None:
        super().__init__([weight], {"lr": 0.1, "list": [1.0]})
        self.scale, self.count, self.counts = 1.0, 1, counts

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        self.count += self.counts
        for group in self.param_groups:
            for parameter in group["params"]:
                rate = group["lr"] * self.scale / self.count * group["list"][0]
                parameter.add_(parameter.grad, alpha=-rate * G["a"])


def own_optimizer(name: str, change: Callable[[Any, Any], object]) -> None:
    def program() -> Change:
        G["a"] = 1.0
        return training(lambda weight: OwnOptimizer(weight, False), change)

    KINDS[name] = program


own_optimizer("an attribute of an optimizer", lambda optimizer, _: setattr(optimizer, "scale", 5.0))
own_optimizer("a global of an optimizer", lambda *_: G.update(a=2.0))
own_optimizer("a list in a group", lambda optimizer, _: optimizer.param_groups[0]["list"].__setitem__(0, 2.0))


@counts
def a_count_of_an_optimizer() -> Change:
    return training(lambda weight: OwnOptimizer(weight, True))


def of_optimizer(name: str, read: Callable[..., Any], change: Callable[..., object]) -> None:
    def program() -> Change:
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.Adam([weight], lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        weight.grad = torch.ones(3)
        optimizer.step()
        return Change(
            lambda x: x * read(weight, optimizer, scheduler), one, lambda: change(weight, optimizer, scheduler)
        )

    KINDS[name] = program


def load_another_average(_: Any, optimizer: Any, __: Any) -> None:
    state = optimizer.state_dict()
    state["state"][0]["exp_avg"] = torch.full((3,), 9.0)
    optimizer.load_state_dict(state)


of_optimizer("param_groups", lambda w, o, s: o.param_groups[0]["lr"], lambda w, o, s: o.param_groups[0].update(lr=0.7))
of_optimizer("get_last_lr", lambda w, o, s: s.get_last_lr()[0], lambda w, o, s: s.step())
of_optimizer("state", lambda w, o, s: o.state[w]["exp_avg"], load_another_average)
of_optimizer("state_dict", lambda w, o, s: o.state_dict()["param_groups"][0]["lr"], lambda w, o, s: s.step())


@kind
def a_parameter_that_only_an_optimizer_holds() -> Change:
    weight, others = nn.Parameter(torch.ones(3)), [nn.Parameter(torch.ones(3))]
    optimizer = torch.optim.SGD([weight, *others], lr=0.1)

    def function(x: torch.Tensor) -> None:
        weight.grad = None
        (weight * x).sum().backward()
        optimizer.step()

    return Change(function, one, lambda: setattr(others[0], "grad", torch.ones(3)), lambda: [weight, others])


def hooked(name: str, register: Callable[..., Any]) -> None:
    def program() -> Change:
        table, layer = {"scale": 1.0}, nn.Linear(3, 1, bias=False)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        register(table, layer, optimizer)

        def function(x: torch.Tensor) -> None:
            optimizer.zero_grad()
            layer(x).sum().backward()
            optimizer.step()

        return Change(
            function, one, lambda: table.update(scale=3.0), lambda: [layer.weight.detach(), layer.weight.grad]
        )

    KINDS[f"what a hook reads: {name}"] = program


def none(_: Any) -> None:
    """What hooks are to return."""


hooked("tensor", lambda t, m, o: m.weight.register_hook(lambda g: g * t["scale"]))
hooked(
    "after accumulation",
    lambda t, m, o: m.weight.register_post_accumulate_grad_hook(lambda p: none(p.grad.mul_(t["scale"]))),
)
hooked("optimizer", lambda t, m, o: o.register_step_pre_hook(lambda *_: none(m.weight.grad.mul_(t["scale"]))))
hooked("optimizer post", lambda t, m, o: o.register_step_post_hook(lambda *_: none(m.weight.data.mul_(t["scale"]))))
hooked(
    "backward pre",
    lambda t, m, o: m.register_full_backward_pre_hook(lambda _, grads: tuple(g * t["scale"] for g in grads)),
)


@kind
def a_gradient_scaler() -> Change:
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)

    def function(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        scaler.scale((weight * x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    return Change(function, one, lambda: scaler.set_growth_factor(5.0), lambda: [weight, scaler._scale])


def local() -> Any:
    made = threading.local()
    made.a = 1.0
    return made


def filled_queue() -> Any:
    made: queue.Queue[float] = queue.Queue()
    for number in range(9):
        made.put(float(number))
    return made


reads(
    "a distribution",
    lambda: torch.distributions.Normal(torch.zeros(3), 1.0),
    lambda normal: normal.log_prob(torch.ones(3)),
    lambda normal: setattr(normal, "loc", torch.ones(3)),
)
reads(
    "a dataset",
    lambda: torch.utils.data.TensorDataset(torch.ones(3)),
    lambda data: data[0][0],
    lambda data: setattr(data, "tensors", (torch.zeros(3),)),
)
reads("thread_local", local, lambda o: o.a, lambda o: setattr(o, "a", 2.0))
reads("user_list", lambda: collections.UserList([1.0]), lambda o: o[0], lambda o: o.__setitem__(0, 2.0))
reads("a queue", filled_queue, lambda o: o.get(), lambda o: None)
reads("a file in memory", lambda: io.StringIO("1\n2\n3\n4\n"), lambda o: float(o.readline()), lambda o: None)
reads("pairs of an iterator", lambda: itertools.pairwise(range(9)), lambda o: next(o)[0], lambda o: None)
reads("data loader", lambda: iter(torch.utils.data.DataLoader(torch.arange(9.0))), next, lambda o: None)  # type: ignore
COUNTS |= {"a queue", "a file in memory", "pairs of an iterator", "data loader"}


def environment(name: str) -> None:
    reads(
        f"the variable {name}",
        lambda: os.environ.update({name: "1"}),
        lambda _: float(os.environ["TORCHREEL_KIND"]) + float(os.environ["torchreel_kind"]),  # noqa: SIM112
        lambda _: os.environ.update({name: "2"}),
    )


os.environ |= {"TORCHREEL_KIND": "1", "torchreel_kind": "1"}
environment("TORCHREEL_KIND")
environment("torchreel_kind")


@kind
def an_activation() -> Change:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    return Change(
        lambda x: layer(x).detach(),
        lambda call: (numbers(call, 1, 2, 4),),
        lambda: setattr(layer, "activation", torch.tanh),
    )


@kind
def an_average_of_models() -> Change:
    table, model = {"rate": 0.9}, nn.Linear(2, 2)
    average = torch.optim.swa_utils.AveragedModel(
        model, avg_fn=lambda old, new, _: old * table["rate"] + new * (1 - table["rate"])
    )
    average.update_parameters(model)
    return Change(
        lambda x: average.update_parameters(model),
        one,
        lambda: table.update(rate=0.1),
        lambda: list(average.state_dict().values()),
    )


class WithTable:
    table = {"a": 1.0}  # noqa: RUF012
    value = 1.0


class ModuleWithTable(nn.Module):
    table = {"a": 1.0}  # noqa: RUF012

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.table["a"]


@kind
def a_dict_of_a_module_class() -> Change:
    ModuleWithTable.table["a"] = 1.0
    return Change(ModuleWithTable(), one, lambda: ModuleWithTable.table.update(a=2.0))


reads("a long list", lambda: [1.0] * 300, lambda o: o[5], lambda o: o.__setitem__(5, 2.0))
reads("a long dict", lambda: {str(i): 1.0 for i in range(300)}, lambda o: o["5"], lambda o: o.update({"5": 2.0}))
reads("many tensors", lambda: [torch.ones(3)] * 300, lambda o: o[5], lambda o: o.__setitem__(5, torch.zeros(3)))
reads("a tuple as key", lambda: {(1, 2): [1.0]}, lambda o: o[1, 2][0], lambda o: o[1, 2].__setitem__(0, 2.0))
reads(
    "an object in a set",
    lambda: {WithTable()},
    lambda o: sum(each.value for each in o),
    lambda o: [setattr(each, "value", 2.0) for each in o],
)
reads(
    "a dict of a class",
    lambda: WithTable.table.update(a=1.0),
    lambda _: WithTable.table["a"],
    lambda _: WithTable.table.update(a=2.0),
)
reads("a large array", lambda: numpy.ones(200_000), lambda o: float(o[0]), lambda o: o.__setitem__(0, 2.0))
reads("the shape of an array", lambda: numpy.ones(4), lambda o: o.shape[0], lambda o: o.resize(2, 2))
reads("a bound method of a dict", lambda: {"a": 1.0}.get, lambda get: get("a"), lambda get: get.__self__.update(a=2.0))


@kind
def a_single_dispatch() -> Change:
    table = {"scale": 1.0}
    function = functools.singledispatch(lambda x: x)
    function.register(torch.Tensor, lambda x: x * table["scale"])
    return Change(lambda x: function(x), one, lambda: table.update(scale=2.0))


class Descriptor:
    def __get__(self, owner: Any, cls: Any) -> float:
        return G["a"]


class Described:
    a = Descriptor()
    s0: float


@kind
def a_descriptor() -> Change:
    G["a"] = 1.0
    described = Described()
    return Change(lambda x: x * described.a, one, lambda: G.update(a=2.0))


@kind
def a_name_that_is_put_together() -> Change:
    described = Described()
    described.s0 = 1.0
    return Change(lambda x: x * getattr(described, f"s{0}"), one, lambda: setattr(described, "s0", 2.0))


@kind
def a_name_from_elsewhere() -> Change:
    described, names = Described(), {"of": "s0"}
    described.s0 = 1.0
    return Change(lambda x: x * getattr(described, names["of"]), one, lambda: setattr(described, "s0", 2.0))


@kind
def an_attribute_that_a_tensor_gets() -> Change:
    weight: Any = torch.ones(3)
    return Change(lambda x: x * weight * getattr(weight, "scale", 1.0), one, lambda: setattr(weight, "scale", 2.0))


@dataclasses.dataclass
class State:
    model: Any


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout, self.scale = nn.Dropout(0.5), 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(x) * self.scale


def times_a(x: torch.Tensor) -> torch.Tensor:
    return x * G["a"]


def argument(name: str, make: Callable[[], Any], change: Callable[[Any], object]) -> None:
    def program() -> Change:
        state = State(make())
        return Change(lambda state, x: state.model(x), lambda call: (state, *one(call)), lambda: change(state.model))

    KINDS[f"{name} in an argument"] = program


argument("an attribute of a module", Net, lambda model: setattr(model, "scale", 3.0))
argument("dropout", Net, lambda model: setattr(model.dropout, "p", 0.1))
argument("a function", lambda: times_a, lambda _: G.update(a=G["a"] + 1))


def asked(name: str, ask: Callable[[torch.Tensor], Any], give: Callable[[bool], torch.Tensor]) -> None:
    KINDS[f"{name} of an input"] = lambda: Change(
        lambda x: x.detach() * (2 if ask(x) else 3), lambda call: (give(call > 1),)
    )
    COUNTS.add(f"{name} of an input")  # the last input is another one even if nothing else changes


def inference(now: bool) -> torch.Tensor:
    with torch.inference_mode(now):
        return torch.ones(2)


def leaf(now: bool) -> torch.Tensor:
    return torch.ones(2, requires_grad=True) * 1 if now else torch.ones(2, requires_grad=True)


def view(now: bool) -> torch.Tensor:
    return torch.ones(4)[:2] if now else torch.ones(2)


asked("is_leaf", lambda x: x.is_leaf, leaf)
asked("grad_fn", lambda x: x.grad_fn is None, leaf)
asked("_is_view", lambda x: x._is_view(), view)
asked("_base", lambda x: x._base is None, view)
asked("the storage", lambda x: x.untyped_storage().nbytes() > 8, view)
asked("is_inference", lambda x: x.is_inference(), inference)
asked("is_shared", lambda x: x.is_shared(), lambda now: torch.ones(2).share_memory_() if now else torch.ones(2))


def of_layer(name: str, ask: Callable[[Any], Any], change: Callable[[Any], object]) -> None:
    reads(f"{name} of a tensor that no op reads", lambda: nn.Linear(3, 3), ask, change)


of_layer("requires_grad", lambda m: 2 if m.weight.requires_grad else 1, lambda m: m.requires_grad_(False))
of_layer("dtype", lambda m: torch.ones(3, dtype=m.weight.dtype), lambda m: m.double())
of_layer("numel", lambda m: sum(p.numel() for p in m.parameters()), lambda m: setattr(m, "bias", None))
reads("numel", lambda: [torch.ones(3)], lambda o: o[0].numel(), lambda o: o.__setitem__(0, torch.ones(4)))


@kind
def a_gradient_that_is_cleared_by_hand() -> Change:
    layers = nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(3, 1)})

    def function(x: torch.Tensor) -> None:
        for parameter in layers.parameters():
            parameter.grad = None
        layers["a"](x).sum().backward()

    other = layers["b"].weight
    return Change(function, one, lambda: setattr(other, "grad", torch.ones(1, 3)), lambda: [other.grad])


def run(make: Callable[[], Change], changes: bool, function: Callable[[Change], Any]) -> list[Any]:
    torch.manual_seed(0)
    case = make()
    if not changes:
        case.change = lambda: None
    case.function(*case.arguments(0), **case.names(0))
    return last_call(case, function(case))


def called_once_more(case: Change) -> Any:
    case.function(*case.arguments(1), **case.names(1))
    return case.function


def traced(case: Change) -> Any:
    return torchreel.trace(case.function, *case.arguments(1), **case.names(1)).replay


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_a_change_is_seen(name: str) -> None:
    # GIVEN what the function gives after the change
    wanted = run(KINDS[name], True, called_once_more)

    # WHEN a tape of it is replayed instead
    try:
        found = run(KINDS[name], True, traced)
    except ReplayError as refusal:
        assert str(refusal).endswith(".") and len(str(refusal)) > 40
        return

    # THEN it gives the same, or has said what changed
    assert found == wanted


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in KINDS if name not in COUNTS])
def test_no_change_is_no_reason_to_stop(name: str) -> None:
    assert run(KINDS[name], False, traced) == run(KINDS[name], False, called_once_more)


LOG = logging.getLogger("torchreel.kinds")


def logs() -> Change:
    def function(x: torch.Tensor) -> torch.Tensor:
        LOG.debug("called")
        return x * 2

    return Change(function, one, lambda: LOG.info("another level"))


def locks() -> Change:
    lock, event = threading.Lock(), threading.Event()

    def function(x: torch.Tensor) -> torch.Tensor:
        with lock:
            return x * 2 if not event.is_set() else x

    return Change(function, one)


def enters_a_context_that_is_kept() -> Change:
    context, off = torch.autocast("cpu", enabled=False), torch.no_grad()

    def function(x: torch.Tensor) -> torch.Tensor:
        with context, off:
            return x * 2

    return Change(function, one)


def gets_a_scheduler_later() -> Change:
    made: list[Any] = []
    change = training(lambda weight: made.append(torch.optim.SGD([weight], lr=0.1)) or made[0])
    change.change = lambda: made.append(torch.optim.lr_scheduler.ConstantLR(made[0], factor=1.0))
    return change


def test_a_scheduler_that_comes_later_counts_steps() -> None:
    case = gets_a_scheduler_later()
    case.function(*one(0))
    tape = torchreel.trace(case.function, *one(1))
    case.change()
    with pytest.raises(GuardError, match=r"step was absent and is a function"):
        tape.replay(*one(2))


def counts_epochs_outside() -> Change:
    class Trainer:
        def __init__(self) -> None:
            self.epoch, self.activation = 0, "relu"

        def step(self, x: torch.Tensor) -> torch.Tensor:
            return getattr(torch, self.activation)(x)

    trainer = Trainer()
    return Change(trainer.step, one, lambda: setattr(trainer, "epoch", 1))


def has_a_table_of_many_samples() -> Change:
    samples = [(f"file{place}", place) for place in range(5_000)]
    words = {f"word{place}": place for place in range(5_000)}
    return Change(lambda x: x * samples[3][1] * words["word2"], one)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        logs,
        locks,
        enters_a_context_that_is_kept,
        counts_epochs_outside,
        has_a_table_of_many_samples,
    ],
)
def test_an_ordinary_program_is_replayed(make: Callable[[], Change]) -> None:
    assert run(make, True, traced) == run(make, True, called_once_more)


def test_a_source_that_cannot_be_looked_into_is_refused() -> None:
    # GIVEN a function that takes its numbers from one
    numbers_left: Any = queue.SimpleQueue()
    for number in range(4):
        numbers_left.put(float(number))

    # WHEN it is traced
    tape = torchreel.trace(lambda x: x * numbers_left.get(), torch.ones(3))

    # THEN a replay says why it is none
    with pytest.raises(ReplayError, match="numbers_left, a SimpleQueue"):
        tape.replay(torch.ones(3))


def test_what_a_tape_looks_at_is_freed_with_it() -> None:
    """At once: a circle would keep it until Python looks for circles."""
    case = training(lambda weight: torch.optim.SGD([weight], lr=0.1))
    layers = [1.0, [2.0]]
    step = case.function
    tape = torchreel.trace(lambda x: (step(x), layers[0]), *one(1))
    tape.replay(*one(2))
    watch = weakref.ref(tape._source.guards)  # type: ignore[union-attr, arg-type]
    gc.collect()
    gc.disable()
    try:
        del tape
        assert watch() is None
    finally:
        gc.enable()
