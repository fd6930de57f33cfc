"""The watch: each kind of state with a change that is seen, and with one that is none."""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import math
import random
import sys
import time
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from torchreel.graphs.watch import Watch
from torchreel.graphs.watch_calls import functions_run

SCALE = 2.0
PAIR = (1, (2.0, "x"))
SIZES = [1, 2, 3]
TABLE = {"scale": 1.5, "deep": {"bias": 1}}
FLAGS = {"a", "b"}
LONG = list(range(100))
LOOP = 0
SETTINGS = types.ModuleType("settings")
SETTINGS.rate = 1.0  # type: ignore[attr-defined]


class Config:
    limit = 10

    def __init__(self) -> None:
        self.scale = 3.0
        self.unread = 0
        self.model: Any = None


@dataclasses.dataclass(slots=True)
class Slotted:
    scale: float = 1.0


CONFIG = Config()
SLOTTED = Slotted()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(0.1)
        self.scale = 1.0
        self.sizes = [4, 4]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.norm(self.fc(x))) * self.scale


def watch_of(function: Any, *args: Any, optimizers: Any = (), after: Watch | None = None) -> Watch:
    """As after a recording."""
    with functions_run() as calls:
        function(*args)
    watch = Watch(function, [], optimizers, calls, after)
    assert watch.changed() is None
    return watch


@pytest.fixture
def x() -> torch.Tensor:
    return torch.ones(3, 4)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], None]:
    """Sets a global of this file."""
    return lambda name, value: monkeypatch.setattr(sys.modules[__name__], name, value)


Change = Callable[[Net], Any]

CHANGES: dict[str, tuple[Change, str]] = {
    "mode": (lambda net: net.eval(), "Net.training was True and is False."),
    "dropout": (lambda net: setattr(net.dropout, "p", 0.5), "Net.dropout.p was 0.1 and is 0.5."),
    "eps": (lambda net: setattr(net.norm, "eps", 1e-3), "Net.norm.eps was 1e-05 and is 0.001."),
    "attribute": (lambda net: setattr(net, "scale", -1.0), "Net.scale was 1.0 and is -1.0."),
    "type": (lambda net: setattr(net, "scale", 1), "Net.scale was 1.0 and is 1."),
    "zero": (lambda net: setattr(net.dropout, "p", -0.0), "Net.dropout.p was 0.1 and is -0.0."),
    "deleted": (lambda net: delattr(net, "scale"), "Net.scale was 1.0 and is absent."),
    "list": (lambda net: net.sizes.append(1), "len(Net.sizes) was 2 and is 3."),
    "item": (lambda net: net.sizes.__setitem__(1, 5), "Net.sizes[1] was 4 and is 5."),
    "parameter": (
        lambda net: setattr(net.fc, "weight", nn.Parameter(torch.ones(4, 4))),
        "Net.fc.weight was one Parameter and is another.",
    ),
    "removed": (
        lambda net: setattr(net.fc, "bias", None),
        "Net.fc.bias was a Parameter and is None.",
    ),
    "buffer": (
        lambda net: setattr(net.norm, "running_mean", torch.ones(4)),
        "Net.norm.running_mean was one Tensor and is another.",
    ),
    "module": (lambda net: setattr(net, "fc", nn.Linear(4, 4)), "Net.fc was one Linear and is another."),
    "new module": (lambda net: net.add_module("more", nn.ReLU()), "len(Net._modules) was 3 and is 4."),
    "hook": (
        lambda net: net.fc.register_forward_hook(lambda *_: None),
        "len(Net.fc._forward_hooks) was 0 and is 1.",
    ),
    "pre hook": (
        lambda net: net.register_forward_pre_hook(lambda *_: None),
        "len(Net._forward_pre_hooks) was 0 and is 1.",
    ),
    "backward hook": (
        lambda net: net.register_full_backward_hook(lambda *_: None),
        "Net._is_full_backward_hook was None and is True.",
    ),
    "forward": (
        lambda net: setattr(net, "forward", lambda x: x),
        "Net.forward was absent and is a function.",
    ),
    "class": (lambda net: setattr(net.dropout, "__class__", nn.Identity), "Net.dropout.__class__"),
    "dict": (lambda net: setattr(net.dropout, "__dict__", dict(net.dropout.__dict__)), "Net.dropout.__dict__"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_of_a_module_is_seen(kind: str, x: torch.Tensor) -> None:
    net = Net()
    watch = watch_of(net, x)
    change, sentence = CHANGES[kind]
    change(net)
    changed = watch.changed()
    assert changed is not None and changed.startswith(sentence)
    assert watch.changed() == changed
    watch.rebase()
    assert watch.changed() is None


def test_what_is_no_change_of_a_module_is_not_seen(x: torch.Tensor) -> None:
    net = Net()
    watch = watch_of(net, x)
    net.scale = float("1.0")
    net.dropout.p = 0.1
    net.sizes[0] = 4
    net.train()
    net.fc.weight.data = torch.zeros(4, 4)
    net.load_state_dict(net.state_dict())
    net.register_forward_hook(lambda *_: None).remove()
    net.something_new = 1
    for _ in range(3):
        assert watch.changed() is None


def test_a_global_hook_of_modules_is_seen(x: torch.Tensor) -> None:
    net = Net()
    watch = watch_of(net, x)
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert "_global_forward_hooks" in str(watch.changed())
    finally:
        handle.remove()
    assert watch.changed() is None


def test_a_method_of_the_class_that_is_replaced_is_seen(x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    watch = watch_of(net, x)
    monkeypatch.setattr(Net, "forward", lambda self, x: x)
    assert watch.changed() == "Net.forward was one function and is another."


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_optimizers(kind: str, x: torch.Tensor) -> None:
    net = Net()
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()

    step(x)
    watch = watch_of(step, x, optimizers=[optimizer])
    step(x)
    assert watch.changed() is None
    schedule.step()
    assert watch.changed() == "optimizer.param_groups[0]['lr'] was 0.1 and is 0.05."
    watch.rebase()
    optimizer.param_groups[0]["weight_decay"] = 0.5
    assert watch.changed() == "optimizer.param_groups[0]['weight_decay'] was 0 and is 0.5."
    watch.rebase()
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    assert watch.changed() == "len(optimizer.param_groups) was 1 and is 2."
    watch.rebase()
    optimizer.param_groups[0]["params"][0] = nn.Parameter(torch.ones(1))
    assert watch.changed() == "optimizer.param_groups[0]['params'][0] was one Parameter and is another."
    watch.rebase()
    optimizer.register_step_post_hook(lambda *_: None)
    assert "_optimizer_step_post_hooks" in str(watch.changed())


def test_a_loaded_state_of_an_optimizer_is_seen(x: torch.Tensor) -> None:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())

    def step(x: torch.Tensor) -> None:
        net(x).sum().backward()
        optimizer.step()

    step(x)
    watch = watch_of(step, x)
    optimizer.load_state_dict(optimizer.state_dict())
    assert watch.changed() is not None


def test_defaults_and_code(x: torch.Tensor) -> None:
    def scaled(x: torch.Tensor, factor: float = 2.0, *, bias: float = 1.0) -> torch.Tensor:
        return x * factor + bias

    def other(x: torch.Tensor, factor: float = 2.0, *, bias: float = 1.0) -> torch.Tensor:
        return x - factor + bias

    watch = watch_of(scaled, x)
    scaled.__defaults__ = (float("2.0"),)
    assert watch.changed() is None
    scaled.__defaults__ = (3.0,)
    assert "__defaults__ was (2.0,) and is (3.0,)." in str(watch.changed())
    watch.rebase()
    assert scaled.__kwdefaults__ is not None
    scaled.__kwdefaults__["bias"] = 5.0
    assert "__kwdefaults__['bias'] was 1.0 and is 5.0." in str(watch.changed())
    watch.rebase()
    scaled.__code__ = other.__code__
    assert "__code__ was one code and is another." in str(watch.changed())


def test_closed_over_values(x: torch.Tensor) -> None:
    factor, sizes, config = 2.0, [1], Config()

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * factor + sizes[0] * config.scale

    watch = watch_of(scaled, x)
    factor = float("2.0")
    assert watch.changed() is None
    factor = 3.0
    assert watch.changed() == "factor was 2.0 and is 3.0."
    watch.rebase()
    sizes[0] = 7
    assert watch.changed() == "sizes[0] was 1 and is 7."
    watch.rebase()
    config.unread = 1
    assert watch.changed() is None
    config.scale = 0.5
    assert watch.changed() == "config.scale was 3.0 and is 0.5."
    watch.rebase()
    config = Config()
    assert watch.changed() == "config was one Config and is another."


def reads_globals(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE + PAIR[0] + SIZES[0] + TABLE["scale"] + len(FLAGS) + helper(x)


def helper(x: torch.Tensor) -> torch.Tensor:
    return x * CONFIG.scale * Config.limit * SETTINGS.rate * math.pi * SLOTTED.scale + LONG[0]


GLOBALS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "number": (lambda set_: set_("SCALE", 4.0), "SCALE was 2.0 and is 4.0."),
    "nan": (lambda set_: set_("SCALE", math.nan), "SCALE was 2.0 and is nan."),
    "tuple": (lambda set_: set_("PAIR", (1, (2.0, "y"))), "PAIR was (1, (2.0, 'x')) and is (1, (2.0, 'y'))."),
    "list": (lambda set_: set_("SIZES", [1, 2, 3]), "SIZES was one list and is another."),
    "dict": (lambda set_: set_("TABLE", {}), "TABLE was one dict and is another."),
    "builtin": (lambda set_: set_("len", lambda x: 0), "len was absent and is a function."),
    "function": (lambda set_: set_("helper", lambda x: x), "helper was one function and is another."),
    "of a function that it calls": (lambda set_: set_("CONFIG", Config()), "CONFIG was one Config and is another."),
    "slots": (lambda set_: set_("SLOTTED", Slotted(1.0)), "SLOTTED was one Slotted and is another."),
}


@pytest.mark.parametrize("kind", GLOBALS)
def test_globals(kind: str, x: torch.Tensor, names: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watch_of(reads_globals, x)
    change, sentence = GLOBALS[kind]
    if kind == "builtin":
        monkeypatch.setitem(globals(), "len", lambda x: 0)
    else:
        change(names)
    assert watch.changed() == sentence
    monkeypatch.undo()
    assert watch.changed() is None


def test_equal_globals_are_no_change(x: torch.Tensor, names: Any) -> None:
    watch = watch_of(reads_globals, x)
    names("SCALE", float("2.0"))
    names("PAIR", (int("1"), (float("2.0"), "".join("x"))))
    names("LOOP", 5)
    for _ in range(10):
        names("LOOP", object())
        assert watch.changed() is None


CONTENTS: dict[str, tuple[Any, str, Any, str]] = {
    "object": (CONFIG, "scale", 9.0, "CONFIG.scale was 3.0 and is 9.0."),
    "module of Python": (SETTINGS, "rate", 2.0, "SETTINGS.rate was 1.0 and is 2.0."),
    "class": (Config, "limit", 11, "Config.limit was 10 and is 11."),
    "slots": (SLOTTED, "scale", 2.0, "SLOTTED.scale was 1.0 and is 2.0."),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_attributes_of_globals(kind: str, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watch_of(reads_globals, x)
    thing, name, value, sentence = CONTENTS[kind]
    monkeypatch.setattr(thing, name, value)
    assert watch.changed() == sentence


def test_containers(x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watch_of(reads_globals, x)
    deep: Any = TABLE["deep"]
    monkeypatch.setitem(deep, "bias", 2)
    assert watch.changed() == "TABLE['deep']['bias'] was 1 and is 2."
    monkeypatch.undo()
    FLAGS.add("c")
    assert watch.changed() == "len(FLAGS) was 2 and is 3."
    FLAGS.discard("c")
    assert watch.changed() is None
    FLAGS.discard("b")
    FLAGS.add("z")
    assert str(watch.changed()).startswith("FLAGS")
    FLAGS.clear()
    FLAGS.update(("a", "b"))  # in the order in which it was made: a loop over it may see another one else
    assert watch.changed() is None
    SIZES.append(4)
    assert watch.changed() == "len(SIZES) was 3 and is 4."
    SIZES.pop()
    SIZES[:] = [3, 2, 1]
    assert watch.changed() == "SIZES[0] was 1 and is 3."
    SIZES[:] = [1, 2, 3]
    assert watch.changed() is None
    assert "LONG is long: only its length is watched." in watch.unwatched()
    LONG[1] = -1
    assert watch.changed() is None
    LONG.append(0)
    assert watch.changed() == "len(LONG) was 100 and is 101."
    LONG.pop()


class Trainer:
    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.config = Config()
        self.layers = [net]

    @property
    def factor(self) -> float:
        return self.config.scale

    def step(self, x: torch.Tensor) -> torch.Tensor:
        config = self.config
        return self.net(x) * self.factor + sum(config.limit for _ in self.layers)


def test_bound_methods_and_what_self_holds(x: torch.Tensor) -> None:
    trainer = Trainer(Net())
    watch = watch_of(trainer.step, x)
    trainer.config.unread = 4
    assert watch.changed() is None
    trainer.config.scale = 4.0
    assert watch.changed() == "Trainer.config.scale was 3.0 and is 4.0."
    watch.rebase()
    trainer.config.limit = 3
    assert watch.changed() == "Trainer.config.limit was absent and is 3."
    watch.rebase()
    trainer.net.dropout.p = 0.7
    assert watch.changed() == "Trainer.net.dropout.p was 0.1 and is 0.7."
    watch.rebase()
    trainer.layers.append(trainer.net)
    assert watch.changed() == "len(Trainer.layers) was 1 and is 2."
    watch.rebase()
    trainer.net = Net()
    assert watch.changed() == "Trainer.net was one Net and is another."


@pytest.mark.parametrize("static", [False, True])
def test_partial_functions_and_callables(static: bool, x: torch.Tensor) -> None:
    class Callable_:  # noqa: N801
        def __init__(self) -> None:
            self.scale = 1.0

        def __call__(self, net: nn.Module, x: torch.Tensor) -> torch.Tensor:
            return net(x) * self.scale

    thing, net = Callable_(), Net()
    partial = functools.partial(thing, net)
    watch = Watch(partial, []) if static else watch_of(partial, x)
    thing.scale = 2.0
    assert watch.changed() == "Callable_.scale was 1.0 and is 2.0."
    watch.rebase()
    net.dropout.p = 0.3
    assert watch.changed() == "Net.dropout.p was 0.1 and is 0.3."


def test_without_the_functions_that_ran_names_are_followed(x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(reads_globals, [], [], [])
    assert watch.changed() is None
    monkeypatch.setattr(CONFIG, "scale", 7.0)
    assert watch.changed() == "CONFIG.scale was 3.0 and is 7.0."
    trainer = Trainer(Net())
    watch = Watch(trainer.step)
    trainer.net.scale = 7.0  # type: ignore[assignment]
    assert watch.changed() == "Trainer.net.scale was 1.0 and is 7.0."


def test_a_freed_module_is_a_change_and_is_not_kept(x: torch.Tensor) -> None:
    net = Net()
    alive = weakref.ref(net)
    weight = weakref.ref(net.fc.weight)
    watch = watch_of(net, x)
    del net
    gc.collect()
    assert alive() is None and weight() is None
    assert watch.changed() == "Net was freed."


def test_a_replaced_object_at_the_same_address_is_seen(x: torch.Tensor) -> None:
    config = Config()

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * config.scale if config else x

    watch = watch_of(scaled, x)
    address = id(config)
    for _ in range(100):
        config = None  # type: ignore[assignment]
        config = Config()
        if id(config) == address:
            break
    else:
        pytest.skip("The address was not used again.")
    assert watch.changed() is not None


def test_what_a_call_makes_for_itself_may_go(x: torch.Tensor) -> None:
    @dataclasses.dataclass
    class Result:
        value: torch.Tensor

        def get(self) -> torch.Tensor:
            return self.value

    def function(x: torch.Tensor) -> torch.Tensor:
        def inner(depth: int) -> torch.Tensor:  # refers to itself: a cycle
            return x if depth == 0 else inner(depth - 1)

        return Result(nn.ReLU()(inner(3))).get() + sum(y * SCALE for y in (1, 2))

    watch = watch_of(function, x)
    gc.collect()
    assert watch.changed() is None
    function(x)
    gc.collect()
    assert watch.changed() is None


def test_nothing_of_the_users_is_run(x: torch.Tensor) -> None:
    ran: list[str] = []

    class Touchy:
        def __init__(self) -> None:
            self.value = 1.0

        def __getattr__(self, name: str) -> Any:
            ran.append(name)
            raise AttributeError(name)

        def __eq__(self, other: object) -> bool:
            ran.append("eq")
            return True

        def __hash__(self) -> int:
            ran.append("hash")
            return 1

        def __repr__(self) -> str:
            ran.append("repr")
            return "Touchy"

        @property
        def area(self) -> float:
            ran.append("area")
            return 1.0

    touchy = Touchy()
    held = {touchy: touchy}

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * touchy.value * touchy.area * len(held) * getattr(touchy, "other", 1.0)

    with functions_run() as calls:
        function(x)
    ran.clear()
    watch = Watch(function, [], [], calls)
    assert watch.changed() is None
    touchy = Touchy()
    assert watch.changed() == "touchy was one Touchy and is another."
    watch.rebase()
    held.clear()
    assert watch.changed() == "len(held) was 1 and is 0."
    watch.watched()
    assert ran == []


@pytest.mark.parametrize("static", [False, True])
def test_an_object_that_finds_attributes_by_code_is_watched_whole(static: bool, x: torch.Tensor) -> None:
    class Mapped:
        names = {"size": "hidden"}  # noqa: RUF012

        def __init__(self) -> None:
            self.hidden = 4

        def __getattribute__(self, name: str) -> Any:
            if name == "size":
                name = "hidden"
            return super().__getattribute__(name)

    class Wrapped:
        def __init__(self) -> None:
            self.__dict__["values"] = {"rate": 0.5}

        def __getattr__(self, name: str) -> Any:
            return self.__dict__["values"][name]

    mapped, wrapped = Mapped(), Wrapped()

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * mapped.size * wrapped.rate

    watch = Watch(function) if static else watch_of(function, x)
    mapped.hidden = 5
    assert watch.changed() == "mapped.hidden was 4 and is 5."
    watch.rebase()
    wrapped.__dict__["values"]["rate"] = 0.25
    assert watch.changed() == "wrapped.values['rate'] was 0.5 and is 0.25."
    assert not any("code of its own" in line for line in watch.unwatched())


def test_an_object_that_hides_its_attributes_is_told(x: torch.Tensor) -> None:
    class Hidden:
        __slots__ = ("__weakref__", "_value")

        def __init__(self) -> None:
            self._value = 1.0

        def __getattr__(self, name: str) -> Any:
            return self._value

    hidden = Hidden()

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * hidden.scale

    watch = Watch(function)
    assert watch.unwatched() == ["hidden.scale: Hidden finds its attributes by code of its own."]
    watch = watch_of(function, x)  # its code was seen to read _value
    hidden._value = 2.0
    assert watch.changed() == "Hidden._value was 1.0 and is 2.0."


def test_what_cannot_be_watched_is_told(x: torch.Tensor) -> None:
    draw = random.random

    def function(x: torch.Tensor) -> torch.Tensor:
        print("recording")
        return x * random.random() * draw() + time.time() - time.monotonic()

    told = "\n".join(watch_of(function, x).unwatched())
    for name in ("print", "random", "draw", "time"):
        assert f"{name}, in " in told
    assert "draws numbers" in told and "reads the clock" in told and "test_watch.py" in told


def test_what_the_function_sets_is_told(x: torch.Tensor) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.last = x
            return x

    told = "\n".join(watch_of(Counting(), x).unwatched())
    assert "self.calls is set by " in told and "self.last is set by " in told


def test_what_the_function_counts_is_seen_across_a_call(x: torch.Tensor) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.last: Any = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.last = x * self.calls
            return self.last  # type: ignore[no-any-return]

    net = Counting()
    watch = watch_of(net, x)
    watch.rebase()
    assert watch.numbers_changed() == []
    net(x)
    assert watch.numbers_changed() == ["Counting.calls was 1 and is 2."]


def test_what_changes_at_each_call_is_volatile(x: torch.Tensor) -> None:
    net = Net()
    watch = watch_of(net, x)
    for step in range(3):
        assert watch.volatile == []
        net.scale = 5.0 + step
        sentence = watch.changed()
        assert sentence is not None
        if step < 2:
            if step == 0:
                watch = Watch(net, [net], after=watch)
            else:
                watch.rebase()
    assert watch.volatile == ["Net.scale"]
    assert sentence.startswith("Net.scale changed before each of the last 3 calls")
    watch.rebase()
    assert watch.changed() is None


def test_what_changes_now_and_then_is_not_volatile(x: torch.Tensor) -> None:
    net = Net()
    watch = watch_of(net, x)
    for step in range(6):
        net.scale = 5.0 + step
        assert watch.changed() is not None
        watch.rebase()
        assert watch.native.same()
    assert watch.volatile == []


def test_what_is_watched_is_told(x: torch.Tensor) -> None:
    watched = watch_of(reads_globals, x).watched()
    for name in ("SCALE", "SIZES[0]", "TABLE['scale']", "CONFIG.scale", "SETTINGS.rate", "Config.limit"):
        assert name in watched
    net = Net()
    watched = watch_of(net, x).watched()
    for name in ("Net.training", "Net.dropout.p", "Net.fc.weight", "Net._forward_hooks"):
        assert name in watched


def test_a_profile_function_goes_on(x: torch.Tensor) -> None:
    events: list[str] = []

    def profile(frame: types.FrameType, event: str, _: Any) -> None:
        events.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        with functions_run() as calls:
            assert sys.getprofile() is profile
            helper(x)
        assert sys.getprofile() is profile
        helper(x)
    finally:
        sys.setprofile(None)
    assert events.count("helper") == 4  # each call and each return
    assert [ran.code for ran in calls.functions() if ran.code.co_name == "helper"] == [helper.__code__]
    with functions_run():
        pass
    assert sys.getprofile() is None


def test_functions_within_functions_are_of_both(x: torch.Tensor) -> None:
    with functions_run() as outer:
        with functions_run() as inner:
            helper(x)
        reads_globals(x)
    assert {ran.code.co_name for ran in inner.functions()} == {"helper"}
    assert {ran.code.co_name for ran in outer.functions()} == {"helper", "reads_globals"}


def test_functions_that_ran_are_not_kept(x: torch.Tensor) -> None:
    dead: list[weakref.ref[Any]] = []

    def function(x: torch.Tensor) -> None:
        big = x * 2

        def inner() -> torch.Tensor:
            return big

        inner()
        dead.append(weakref.ref(big))

    with functions_run() as calls:
        function(x)
        assert dead[0]() is None
    assert "inner" in {ran.code.co_name for ran in calls.functions()}


def test_a_watch_can_be_made_and_dropped_without_end(x: torch.Tensor) -> None:
    net = Net()
    watch_of(net, x)
    gc.collect()
    before = len(gc.get_objects()), weakref.getweakrefcount(net.fc.weight), sys.getrefcount(net)
    for _ in range(50):
        watch_of(net, x)
    gc.collect()
    after = len(gc.get_objects()), weakref.getweakrefcount(net.fc.weight), sys.getrefcount(net)
    assert after[1:] == before[1:]
    assert after[0] - before[0] < 100


class Sheet:
    """A state of which a full picture can be taken, to compare with."""

    def __init__(self) -> None:
        self.number: Any = 0.0
        self.items: Any = [1, 2]
        self.table: Any = {"a": (1, 2.0)}
        self.names: Any = {"x"}
        self.inner: Any = Config()
        self.net: Any = nn.Dropout(0.5)

    def picture(self) -> Any:
        return (
            repr(self.number),
            (id(self.items), [repr(item) for item in self.items]),
            (id(self.table), [repr(item) for item in self.table.items()]),
            (id(self.names), sorted(self.names)),
            (id(self.inner), repr(self.inner.scale)),
            (id(self.net), repr(self.net.p), self.net.training),
        )

    def mutate(self, draw: random.Random) -> None:
        """One that may be a change, may be none, and may undo the one before."""
        number = draw.choice((0, 0.0, -0.0, 1, True, 1.0, "x", (1, 2.0), None))
        steps: list[Callable[[], Any]] = [
            lambda: setattr(self, "number", number),
            lambda: setattr(self, "unread", object()),
            lambda: self.items.append(number) if len(self.items) < 4 else self.items.pop(),
            lambda: self.items.__setitem__(0, number),
            lambda: self.items.reverse(),
            lambda: setattr(self, "items", list(self.items)),
            lambda: self.table.__setitem__("a", number),
            lambda: self.table.__setitem__("b", number),
            lambda: self.table.pop("b", None),
            lambda: self.names.symmetric_difference_update({draw.choice("xyz")}),
            lambda: setattr(self.inner, "scale", number),
            lambda: setattr(self, "inner", Config()),
            lambda: setattr(self.net, "p", draw.choice((0.5, 0.25))),
            lambda: self.net.train(draw.random() < 0.5),
            lambda: setattr(self, "net", nn.Dropout(0.5)),
            lambda: gc.collect() if draw.random() < 0.01 else None,
        ]
        draw.choice(steps)()


@pytest.mark.parametrize("seed", range(20))
def test_any_change_is_seen_and_nothing_else(seed: int, x: torch.Tensor) -> None:
    draw = random.Random(seed)
    sheet = Sheet()

    def function(x: torch.Tensor) -> torch.Tensor:
        _ = sheet.number, sheet.items, sheet.table, sheet.names, sheet.inner.scale
        return sheet.net(x)  # type: ignore[no-any-return]

    watch = watch_of(function, x)
    was = sheet.picture()
    for _ in range(300):
        for _ in range(draw.choice((1, 1, 2, 5))):
            sheet.mutate(draw)
        changed = watch.changed()
        if sheet.picture() != was:
            assert changed is not None
            # What differs by address alone may be new at an old address: only the watch knows.
        elif changed is not None:
            assert "one " in changed or "freed" in changed
        if draw.random() < 0.5:
            watch.rebase()
            was = sheet.picture()
            assert watch.changed() is None


def namespaces() -> Iterator[Any]:
    yield collections.OrderedDict(a=1)
    yield collections.defaultdict(int, a=1)
    yield {"a": 1}


@pytest.mark.parametrize("table", list(namespaces()), ids=lambda table: type(table).__name__)
def test_kinds_of_dicts(table: Any, x: torch.Tensor) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * table["a"]

    watch = watch_of(function, x)
    table["a"] = 2
    assert watch.changed() == "table['a'] was 1 and is 2."
    table["a"] = 1
    assert watch.changed() is None
    table["b"] = 1
    assert watch.changed() == "len(table) was 1 and is 2."
    del table["b"]
    assert watch.changed() is None


def test_code_in_a_namespace_of_its_own(x: torch.Tensor) -> None:
    names: dict[str, Any] = {"scale": 1.0, "__name__": "nowhere"}
    exec("def function(x):\n    return x * scale", names)
    watch = watch_of(names["function"], x)
    names["scale"] = 2.0
    assert watch.changed() == "scale was 1.0 and is 2.0."
