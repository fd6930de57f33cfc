"""What Python reads: objects and how they are reached."""

from __future__ import annotations

import abc
import contextvars
import dataclasses
import enum
import functools
import types
import typing
import weakref
from typing import Any

import torch

from tests.graphs.guards.kinds.registry import Box, attribute, item, kind, patched
from tests.graphs.guards.lockstep import Case, Change, Given, module_of, sample

Tensor = torch.Tensor


def _idle(change: Change) -> Change:
    return dataclasses.replace(change, idle=True)


@kind
def object_reached_by_a_loop() -> Any:
    parts = [Box(k=1.0), Box(k=2.0)]

    def function(x: Tensor) -> Tensor:
        for part in parts:
            x = x * part.k
        return x

    return function, attribute(parts[1], "k", 5.0), Change(lambda: parts.append(Box(k=3.0)), parts.pop)


@kind
def object_reached_by_an_item() -> Any:
    table = {"a": [Box(k=1.0)]}
    return lambda x: x * table["a"][-1].k, attribute(table["a"][0], "k", 5.0), item(table, "a", [Box(k=7.0)])


@kind
def object_given_to_a_helper() -> Any:
    config = Box(inner=Box(k=1.0))

    def scaled(x: Tensor, by: Any) -> Tensor:
        return x * by.k

    return lambda x: scaled(x, config.inner), attribute(config.inner, "k", 5.0), attribute(config, "inner", Box(k=2.0))


@kind
def object_given_to_a_helper_by_keyword() -> Any:
    config = Box(k=1.0)

    def scaled(x: Tensor, *, by: Any = None) -> Tensor:
        return x * by.k

    return lambda x: scaled(by=config, x=x), attribute(config, "k", 5.0)


@kind
def object_among_the_arguments() -> Any:
    config = Box(k=1.0)
    return Case(
        lambda x, config: x * config.k, [attribute(config, "k", 5.0)], given=lambda n: Given(sample(n), config=config)
    )


@kind
def list_among_the_arguments() -> Any:
    numbers = [1.0, 2.0]
    change = Change(lambda: numbers.append(3.0), numbers.pop)
    return Case(lambda x, numbers: x * sum(numbers), [change], given=lambda n: Given(sample(n), numbers))


@kind
def object_in_a_dict_in_a_list_among_the_arguments() -> Any:
    config = [{"a": Box(k=1.0)}]
    change = attribute(config[0]["a"], "k", 5.0)
    return Case(lambda x, c: x * c[0]["a"].k, [change], given=lambda n: Given(sample(n), config))


@kind
def closure_of_a_closure() -> Any:
    def outer() -> Any:
        state = {"k": 1.0}

        def middle() -> Any:
            def inner(x: Tensor) -> Tensor:
                return x * state["k"]

            return lambda x: inner(x) + 1

        return middle(), item(state, "k", 5.0)

    return outer()


@kind
def cell_that_is_assigned_anew() -> Any:
    scale = 1.0

    def put(value: float) -> None:
        nonlocal scale
        scale = value

    def inner(x: Tensor) -> Tensor:
        return x * scale

    return lambda x: inner(x), Change(lambda: put(5.0), lambda: put(1.0))


@kind
def contents_of_a_cell_set_from_outside() -> Any:
    scale = 1.0

    def inner(x: Tensor) -> Tensor:
        return x * scale

    (cell,) = inner.__closure__ or ()
    return (
        lambda x: inner(x),
        Change(lambda: setattr(cell, "cell_contents", 5.0), lambda: setattr(cell, "cell_contents", 1.0)),
    )


@kind
def cell_that_is_empty_at_times() -> Any:
    scale = 2.0

    def inner(x: Tensor) -> Tensor:
        try:
            return x * scale
        except NameError:
            return x - 1

    (cell,) = inner.__closure__ or ()
    return inner, Change(lambda: delattr(cell, "cell_contents"), lambda: setattr(cell, "cell_contents", 2.0))


@kind
def method_whose_first_parameter_is_not_self() -> Any:
    class Scaled:
        def __init__(this) -> None:  # noqa: N805
            this.k = 1.0

        def times(this, x: Tensor) -> Tensor:  # noqa: N805
            return x * this.k

    scaled = Scaled()
    return (
        lambda x: scaled.times(x),
        attribute(scaled, "k", 5.0),
        attribute(Scaled, "times", lambda this, x: x - this.k),
    )


@kind
def bound_method_kept_in_a_list() -> Any:
    class Scaled:
        def __init__(self, k: float) -> None:
            self.k = k

        def times(self, x: Tensor) -> Tensor:
            return x * self.k

    scaled = Scaled(1.0)
    steps = [scaled.times]
    return lambda x: steps[0](x), attribute(scaled, "k", 5.0), item(steps, 0, Scaled(3.0).times)


@kind
def class_method() -> Any:
    class Base:
        k = 1.0

        @classmethod
        def times(cls, x: Tensor) -> Tensor:
            return x * cls.k

    class Derived(Base):
        pass

    return lambda x: Derived.times(x), attribute(Base, "k", 5.0), attribute(Derived, "k", 7.0)


@kind
def static_method() -> Any:
    table = [1.0]

    class Owner:
        @staticmethod
        def times(x: Tensor) -> Tensor:
            return x * table[0]

    owner = Owner()
    return lambda x: owner.times(x), item(table, 0, 5.0), patched(Owner, "times", staticmethod(lambda x: x + 9))


@kind
def property_of_a_hidden_attribute() -> Any:
    class Owner:
        def __init__(self) -> None:
            self._k = {"value": 1.0}

        @property
        def k(self) -> float:
            return self._k["value"]

    owner = Owner()
    return lambda x: x * owner.k, item(owner._k, "value", 5.0), patched(Owner, "k", property(lambda self: 8.0))


@kind
def property_whose_getter_is_of_c() -> Any:
    import operator

    class Owner:
        k = property(operator.attrgetter("_k"))

    owner = Owner()
    owner._k = 1.0  # type: ignore[attr-defined]
    return lambda x: x * owner.k, attribute(owner, "_k", 5.0)


@kind
def descriptor_with_get() -> Any:
    class Scale:
        def __init__(self) -> None:
            self.of: dict[str, float] = {"k": 1.0}

        def __get__(self, owner: Any, kind: Any = None) -> float:
            return self.of[owner.name]

    class Owner:
        scale = Scale()
        name = "k"

    owner, descriptor = Owner(), Owner.__dict__["scale"]
    return lambda x: x * owner.scale, item(descriptor.of, "k", 5.0)


@kind
def instance_attribute_hides_that_of_the_class() -> Any:
    class Owner:
        k = 1.0

    owner = Owner()
    return lambda x: x * owner.k, attribute(owner, "k", 5.0), attribute(Owner, "k", 6.0)


@kind
def data_descriptor_added_to_a_class_later() -> Any:
    class Owner:
        def __init__(self) -> None:
            self.k = 1.0

    owner = Owner()
    put = property(lambda self: 6.0, lambda self, value: None)
    return lambda x: x * owner.k, Change(lambda: setattr(Owner, "k", put), lambda: delattr(Owner, "k"))


@kind
def attribute_found_by_getattr_of_its_class() -> Any:
    class Owner:
        def __init__(self) -> None:
            self.table = {"k": 1.0}

        def __getattr__(self, name: str) -> float:
            return self.table[name]

    owner = Owner()
    return lambda x: x * owner.k, item(owner.table, "k", 5.0), attribute(owner, "k", 6.0)


@kind
def getattr_added_to_a_class_later() -> Any:
    class Owner:
        pass

    owner = Owner()

    def function(x: Tensor) -> Tensor:
        return x * getattr(owner, "k", 1.0)

    return function, attribute(Owner, "__getattr__", lambda self, name: 5.0)


@kind
def getattribute_of_a_class() -> Any:
    table = {"k": 1.0}

    class Owner:
        def __getattribute__(self, name: str) -> Any:
            return table[name]

    owner = Owner()
    return lambda x: x * owner.k, item(table, "k", 5.0)  # type: ignore[attr-defined]


@kind
def getattribute_added_to_a_class_later() -> Any:
    class Owner:
        k = 1.0

    owner = Owner()
    return lambda x: x * owner.k, attribute(Owner, "__getattribute__", lambda self, name: 5.0)


@kind
def metaclass_with_state() -> Any:
    class Meta(type):
        scale = 1.0

        @property
        def k(cls) -> float:
            return cls.scale * 2

        def __call__(cls, x: Tensor) -> Tensor:
            return x * cls.scale

    class Owner(metaclass=Meta):
        pass

    return lambda x: Owner(x) * Owner.k, attribute(Meta, "scale", 5.0), attribute(Owner, "scale", 6.0)


@kind
def instance_check_of_a_metaclass() -> Any:
    known = [1.0]

    class Meta(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return instance in known

    class Known(metaclass=Meta):
        pass

    return lambda x: x * (2.0 if isinstance(3.0, Known) else 1.0), Change(lambda: known.append(3.0), known.pop)


@kind
def class_registered_with_an_abc_later() -> Any:
    class Shape(abc.ABC):  # noqa: B024
        pass

    class Round:
        pass

    one = Round()
    return lambda x: x * (2.0 if isinstance(one, Shape) else 1.0), Change(lambda: Shape.register(Round))


@kind
def protocol_that_is_checked_at_run_time() -> Any:
    @typing.runtime_checkable
    class HasK(typing.Protocol):
        k: float

    box = Box()
    return lambda x: x * (2.0 if isinstance(box, HasK) else 1.0), attribute(box, "k", 5.0)


@kind
def bases_of_a_class_changed() -> Any:
    class One:
        k = 1.0

    class Two:
        k = 2.0

    class Owner(One):
        pass

    owner = Owner()
    return lambda x: x * owner.k, attribute(Owner, "__bases__", (Two,))


@kind
def class_of_an_object_changed() -> Any:
    class One:
        def times(self, x: Tensor) -> Tensor:
            return x * 1.5

    class Two:
        def times(self, x: Tensor) -> Tensor:
            return x * 2.5

    one = One()
    return lambda x: one.times(x), attribute(one, "__class__", Two)


@kind
def dict_of_an_object_replaced() -> Any:
    box = Box(k=1.0)
    return lambda x: x * box.k, attribute(box, "__dict__", {"k": 5.0})


@kind
def attribute_deleted() -> Any:
    class Owner:
        k = 1.0

    owner = Owner()
    owner.k = 2.0
    return lambda x: x * owner.k, Change(lambda: delattr(owner, "k"), lambda: setattr(owner, "k", 2.0))


@kind
def slots() -> Any:
    class Owner:
        __slots__ = ("inner", "k")

        def __init__(self) -> None:
            self.k, self.inner = 1.0, [2.0]

    owner = Owner()
    return lambda x: x * owner.k + owner.inner[0], attribute(owner, "k", 5.0), item(owner.inner, 0, 6.0)


@kind
def super_of_a_class_changed() -> Any:
    class Base:
        def scale(self) -> float:
            return 1.0

    class Derived(Base):
        def scale(self) -> float:
            return super().scale() * 2

    one = Derived()
    return lambda x: x * one.scale(), attribute(Base, "scale", lambda self: 5.0)


@kind
def simple_namespace() -> Any:
    space = types.SimpleNamespace(k=1.0, deep=types.SimpleNamespace(k=2.0))
    return lambda x: x * space.k * space.deep.k, attribute(space, "k", 5.0), attribute(space.deep, "k", 5.0)


@kind
def data_class() -> Any:
    @dataclasses.dataclass
    class Config:
        k: float = 1.0
        many: list[float] = dataclasses.field(default_factory=lambda: [1.0])

    config = Config()
    return lambda x: x * config.k + config.many[0], attribute(config, "k", 5.0), item(config.many, 0, 2.0)


@kind
def frozen_data_class_with_slots_replaced() -> Any:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Config:
        k: float = 1.0

    holder = Box(config=Config())
    return lambda x: x * holder.config.k, attribute(holder, "config", dataclasses.replace(holder.config, k=5.0))


@kind
def frozen_data_class_set_by_force() -> Any:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Config:
        k: float = 1.0

    config = Config()
    return (
        lambda x: x * config.k,
        Change(lambda: object.__setattr__(config, "k", 5.0), lambda: object.__setattr__(config, "k", 1.0)),
    )


@kind
def fields_of_a_data_class_as_a_dict() -> Any:
    @dataclasses.dataclass
    class Config:
        k: float = 1.0
        inner: Any = dataclasses.field(default_factory=lambda: [1.0])

    config = Config()

    def function(x: Tensor) -> Tensor:
        values = dataclasses.asdict(config)
        return x * values["k"] + values["inner"][0]

    return function, attribute(config, "k", 5.0), item(config.inner, 0, 3.0)


@kind
def enum_with_an_attribute() -> Any:
    class Mode(enum.Enum):
        PLAIN = 1
        DOUBLE = 2

    holder = Box(mode=Mode.PLAIN)
    Mode.PLAIN.extra = 1.0  # type: ignore[attr-defined]
    return (
        lambda x: x * (1.0 if holder.mode is Mode.PLAIN else 2.0) * Mode(1).extra,  # type: ignore[attr-defined]
        attribute(holder, "mode", Mode.DOUBLE),
        attribute(Mode.PLAIN, "extra", 5.0),
    )


@kind
def weak_reference() -> Any:
    holder = Box(strong=Box(k=1.0))
    reference = weakref.ref(holder.strong)

    def function(x: Tensor) -> Tensor:
        found = reference()
        return x * (found.k if found is not None else -1.0)

    def changed(k: float) -> Any:
        return lambda: setattr(holder.strong, "k", k)  # the change must not keep it alive

    return function, Change(changed(5.0), changed(1.0)), Change(lambda: delattr(holder, "strong"))


@kind
def weak_dictionary() -> Any:
    holder = Box(strong=Box(k=1.0))
    table = weakref.WeakValueDictionary({"a": holder.strong})
    return lambda x: x * (table["a"].k if "a" in table else -1.0), Change(lambda: delattr(holder, "strong"))


@kind
def context_variable() -> Any:
    variable = contextvars.ContextVar("variable", default=1.0)
    tokens: list[Any] = []
    return (
        lambda x: x * variable.get(),
        Change(lambda: tokens.append(variable.set(5.0)), lambda: variable.reset(tokens.pop())),
    )


@kind
def number_of_a_module() -> Any:
    module = module_of("numbers", "K = 1.0\n\ndef function(x):\n    return x * K\n")
    return module.function, attribute(module, "K", 5.0)


@kind
def module_imported_inside() -> Any:
    other = module_of("imported", "K = 1.0\n")

    def function(x: Tensor) -> Tensor:
        import kinds_imported  # type: ignore[import-not-found]

        return x * kinds_imported.K

    import sys

    return function, attribute(other, "K", 5.0), item(sys.modules, "kinds_imported", Box(K=7.0))


@kind
def name_imported_from_a_module_inside() -> Any:
    other = module_of("imported_name", "K = 1.0\n")

    def function(x: Tensor) -> Tensor:
        from kinds_imported_name import K  # type: ignore[import-not-found]

        return x * K

    return function, attribute(other, "K", 5.0)


@kind
def getattr_of_a_module() -> Any:
    module = module_of(
        "lazy",
        "TABLE = {'k': 1.0}\n\ndef __getattr__(name):\n    if name != 'k':\n        raise AttributeError(name)\n"
        "    return TABLE[name]\n",
    )
    return lambda x: x * module.k, item(module.TABLE, "k", 5.0)


@kind
def global_that_hides_a_builtin_later() -> Any:
    module = module_of("hides", "def function(x):\n    return x * abs(-1.0)\n")
    return module.function, attribute(module, "abs", lambda number: 5.0)


@kind
def builtin_that_is_patched() -> Any:
    import builtins

    numbers, real = [1, 2], len  # of all others the length stays what it is: torch asks for it too
    return lambda x: x * len(numbers), patched(builtins, "len", lambda value: 5 if value is numbers else real(value))


@kind
def cached_property() -> Any:
    class Owner:
        k = 1.0

        @functools.cached_property
        def double(self) -> float:
            return self.k * 2

    owner = Owner()

    def forget() -> None:
        owner.__dict__.pop("double", None)
        owner.k = 5.0

    return Case(
        lambda x: x * owner.double, [_idle(attribute(owner, "k", 3.0)), Change(forget)], observe=lambda: vars(owner)
    )


@kind
def least_recently_used_cache() -> Any:
    box = Box(k=1.0)

    @functools.lru_cache
    def scale(name: str) -> float:
        return float(getattr(box, name))

    def cleared() -> None:
        box.k = 5.0
        scale.cache_clear()

    changes = [_idle(attribute(box, "k", 3.0)), Change(cleared)]
    return Case(lambda x: x * scale("k"), changes, observe=lambda: scale.cache_info().currsize)


@kind
def single_dispatch_registered_later() -> Any:
    @functools.singledispatch
    def scale(value: Any) -> float:
        return 1.0

    return lambda x: x * scale(3), Change(lambda: scale.register(int, lambda value: 5.0))


@kind
def partial_whose_keywords_change() -> Any:
    scaled = functools.partial(lambda x, by=1.0: x * by, by=2.0)
    return lambda x: scaled(x), item(scaled.keywords, "by", 5.0)


@kind
def partial_of_an_object_that_changes() -> Any:
    box = Box(k=1.0)
    scaled = functools.partial(lambda box, x: x * box.k, box)
    return scaled, attribute(box, "k", 5.0)


@kind
def partial_method() -> Any:
    class Owner:
        k = 1.0

        def scaled(self, by: float, x: Tensor) -> Tensor:
            return x * by * self.k

        double = functools.partialmethod(scaled, 2.0)

    owner = Owner()
    return lambda x: owner.double(x), attribute(owner, "k", 5.0)


@kind
def object_that_is_called() -> Any:
    class Scaled:
        k = 1.0

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.k

    scaled = Scaled()
    return scaled, attribute(scaled, "k", 5.0), attribute(Scaled, "__call__", lambda self, x: x - 1)


@kind
def object_with_operators() -> Any:
    class Scale:
        def __init__(self, k: float) -> None:
            self.k = k

        def __rmul__(self, x: Any) -> Any:
            return x * self.k

        def __getitem__(self, place: Any) -> float:
            return self.k + place

        def __contains__(self, value: Any) -> bool:
            return value < self.k

        def __len__(self) -> int:
            return int(self.k)

    scale = Scale(1.0)

    def function(x: Tensor) -> Tensor:
        return (x * scale.__rmul__(2.0) + scale[3]) * (2 if 3 in scale else 1) * len(scale)

    return function, attribute(scale, "k", 5.0)


@kind
def iteration_by_getitem() -> Any:
    class Sequence:
        items: typing.ClassVar = [1.0, 2.0]

        def __getitem__(self, place: int) -> float:
            return self.items[place]

    sequence = Sequence()
    change = Change(lambda: Sequence.items.append(3.0), lambda: Sequence.items.pop())
    return lambda x: x * sum(sequence), change  # type: ignore[call-overload]


@kind
def equality_defined_by_a_class() -> Any:
    class Same:
        k = 1.0

        def __eq__(self, other: object) -> bool:
            return self.k == other

        __hash__ = object.__hash__

    same = Same()
    return lambda x: x * (2.0 if [same] == [1.0] else 3.0) * (4.0 if same in [0, 1.0] else 5.0), attribute(
        same, "k", 9.0
    )


@kind
def hash_defined_by_a_class() -> Any:
    class Key:
        k = 1

        def __hash__(self) -> int:
            return hash(self.k)

        def __eq__(self, other: object) -> bool:
            return self.k == other

    key, table = Key(), {1: 2.0, 5: 7.0}
    return lambda x: x * table[key], attribute(key, "k", 5)  # type: ignore[index]


@kind
def match_statement() -> Any:
    box, pair = Box(kind="a", k=1.0), {"op": ["mul", 2.0]}

    def function(x: Tensor) -> Tensor:
        match pair:
            case {"op": ["mul", by]}:
                x = x * by
            case {"op": ["add", by]}:
                x = x + by
        match box:
            case Box(kind="a", k=by):
                return x * by
            case _:
                return -x

    return function, item(pair["op"], 0, "add"), item(pair["op"], 1, 3.0), attribute(box, "kind", "b")


@kind
def dict_of_functions() -> Any:
    steps = {"a": torch.sin, "b": lambda x: x * 2}

    def function(x: Tensor) -> Tensor:
        for name in steps:
            x = steps[name](x)
        return x

    def swapped() -> None:
        steps["a"] = steps.pop("a")

    def put_back() -> None:
        steps["b"] = steps.pop("b")

    return function, Change(swapped, put_back), item(steps, "b", torch.cos)


@kind
def state_behind_a_getter_function() -> Any:
    holder: dict[str, Any] = {"now": Box(k=1.0)}

    def current() -> Any:
        return holder["now"]

    return lambda x: x * current().k, attribute(holder["now"], "k", 5.0), item(holder, "now", Box(k=3.0))


@kind
def values_unpacked_from_state() -> Any:
    state = Box(pair=[1.0, 2.0], more={"by": 3.0})

    def scaled(x: Tensor, a: float, b: float, by: float) -> Tensor:
        return x * a + b * by

    def function(x: Tensor) -> Tensor:
        first, *rest = state.pair
        return scaled(x, *state.pair, **state.more) * first + rest[0]

    return function, item(state.pair, 1, 5.0), item(state.more, "by", 6.0)


@kind
def recursion_over_a_tree() -> Any:
    tree = {"k": 1.0, "parts": [{"k": 2.0, "parts": []}, {"k": 3.0, "parts": [{"k": 4.0, "parts": []}]}]}

    def total(node: Any) -> float:
        return float(node["k"]) + sum(total(part) for part in node["parts"])

    leaf: Any = tree["parts"][1]["parts"][0]  # type: ignore[index]
    return (
        lambda x: x * total(tree),
        item(leaf, "k", 9.0),
        Change(lambda: leaf["parts"].append({"k": 1.0, "parts": []})),
    )
