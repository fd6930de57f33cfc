"""Operators: those that ran, and those that files register, with what is known of them.

A name and an overload lead, by native_functions.yaml, to a schema and to kernels; a kernel's name leads to its
definition in the sources, if they have it. Where there is no torchgen to read that table, and for operators that it
does not have, there is what the reel and the registrations say, and `problem` is the sentence to show.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from torchreel.atlas import arrays
from torchreel.atlas.model import Costs, Registration
from torchreel.atlas.operator_schemas import Derivative, Kernel, Read, Schema, operator_schemas

if TYPE_CHECKING:
    from torchreel.atlas.kernel_costs import OverloadName, Place
    from torchreel.atlas.operator_costs import Ran

STRUCTURED = "TORCH_IMPL_FUNC"
_NAME = re.compile(r"([A-Za-z_]\w*::[A-Za-z_]\w*)(?:\.(\w+))?", re.ASCII)
_OF_TORCH = "aten::"
_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("overload", pa.string()),
        ("schema", pa.string()),
        ("derivative", pa.string()),
        ("kernel", pa.string()),
        ("kernel_file", pa.int32()),
        ("kernel_line", pa.int32()),
        *((name, pa.int64()) for name in Costs.__struct_fields__),
    ]
)


@dataclass(frozen=True)
class PlacedKernel:
    """A kernel for one dispatch key, and where it is defined, if the sources have it."""

    kernel: Kernel
    place: Place | None


@dataclass
class Overload:
    """One overload of an operator."""

    name: str
    """Empty for the one that has none."""
    schema: str | None = None
    kernels: list[PlacedKernel] = field(default_factory=list)
    """The one that plain CPU tensors reach comes first."""
    on_cpu: PlacedKernel | None = None
    derivatives: list[Derivative] = field(default_factory=list)
    registered: list[tuple[int, Registration]] = field(default_factory=list)
    """Files, and the lines of them that register it."""
    costs: Costs | None = None
    """None without a reel; 0 if the run did not call it."""


@dataclass
class Operator:
    """An operator with the overloads that ran or are registered."""

    name: str
    overloads: dict[str, Overload] = field(default_factory=dict)
    ran: Ran | None = None
    """None without a reel."""

    @property
    def costs(self) -> Costs:
        """Of all its calls; nothing without a reel."""
        return self.ran.costs if self.ran is not None else Costs()


@dataclass
class Operators:
    """All of them, by name."""

    found: dict[str, Operator]
    problem: str = ""
    """Why schemas, kernels and derivatives are not known; empty if they are."""
    structured: dict[str, OverloadName] = field(default_factory=dict)
    """The overload for which a TORCH_IMPL_FUNC is written, by the kernel's name."""

    def of(self, registration: Registration) -> str | None:
        """The name of the operator that a line registers, if it is one of these."""
        key = _registered(registration, self.structured)
        return key[0] if key is not None and key[0] in self.found else None

    def kernels(self) -> dict[OverloadName, Place]:
        """For each overload the place of the kernel that runs it on a CPU, where the sources have it."""
        return {
            (operator.name, overload.name): overload.on_cpu.place
            for operator in self.found.values()
            for overload in operator.overloads.values()
            if overload.on_cpu is not None and overload.on_cpu.place is not None
        }

    def table(self) -> pa.Table:
        """A row per overload, with the columns of the atlas's table `operators`."""
        rows = [
            _row(name, overload)
            for name, operator in sorted(self.found.items())
            for _, overload in sorted(operator.overloads.items())
        ]
        columns = [
            arrays.texts(row.get(field.name) for row in rows)
            if field.type == pa.string()
            else arrays.integers((row.get(field.name) for row in rows), field.type)
            for field in _SCHEMA
        ]
        return pa.table(columns, schema=_SCHEMA)


def operators(
    ran: Mapping[str, Ran] | None,
    registrations: Iterable[tuple[int, Registration]] = (),
    definitions: Mapping[str, Place] | None = None,
) -> Operators:
    """The operators that a run called and that files register.

    `ran` is what `operator_costs` gives, None without a reel; `registrations` come with the ids of their files;
    `definitions` has the places of C++ functions by name. torchgen is asked only if there is an operator of torch's.
    """
    registrations = list(registrations)
    read = _read(ran or {}, registrations)
    structured = _structured(read.schemas)
    found = {name: _called(name, each) for name, each in (ran or {}).items()}
    for file, registration in registrations:
        key = _registered(registration, structured)
        if key is not None:
            _overload(found, key, ran is not None).registered.append((file, registration))
    places = _Places(definitions or {}, registrations)
    for name, operator in found.items():
        for overload in operator.overloads.values():
            schema = read.schemas.get(f"{name}.{overload.name}" if overload.name else name)
            if schema is not None:
                _describe(overload, schema, places)
    return Operators(dict(sorted(found.items())), read.problem, structured)


def _called(name: str, ran: Ran) -> Operator:
    return Operator(name, {each: Overload(each, costs=costs) for each, costs in ran.overloads.items()}, ran)


def _read(ran: Mapping[str, Ran], registrations: Iterable[tuple[int, Registration]]) -> Read:
    """What torchgen knows; nothing, without asking, if no operator of torch's ran or is registered."""
    of_torch = any(name.startswith(_OF_TORCH) for name in ran) or any(
        one.what == STRUCTURED or one.name.startswith(_OF_TORCH) for _, one in registrations
    )
    return operator_schemas() if of_torch else Read()


def _structured(schemas: Mapping[str, Schema]) -> dict[str, OverloadName]:
    found: dict[str, OverloadName] = {}
    for name, schema in schemas.items():
        for kernel in schema.kernels if not schema.delegate else ():
            if kernel.structured:
                base, _, overload = name.partition(".")
                found.setdefault(kernel.name, (base, overload))
    return found


def _registered(registration: Registration, structured: Mapping[str, OverloadName]) -> OverloadName | None:
    """The overload that a line registers; None if it registers something else."""
    if registration.what == STRUCTURED:
        return structured.get(registration.name)
    named = _NAME.fullmatch(registration.name)
    return (named[1], named[2] or "") if named is not None else None


def _overload(found: dict[str, Operator], key: OverloadName, recorded: bool) -> Overload:
    name, overload = key
    if name not in found:
        found[name] = Operator(name, ran=_not_called() if recorded else None)
    operator = found[name]
    return operator.overloads.setdefault(overload, Overload(overload, costs=Costs() if recorded else None))


def _not_called() -> Ran:
    from torchreel.atlas.operator_costs import Ran

    return Ran(Costs())


class _Places:
    """Where kernels are defined."""

    def __init__(self, definitions: Mapping[str, Place], registrations: Iterable[tuple[int, Registration]]) -> None:
        self._definitions = definitions
        self._structured: dict[str, Place] = {}
        for file, one in registrations:
            if one.what == STRUCTURED:
                self._structured.setdefault(one.name, (file, one.line))

    def of(self, kernel: Kernel) -> Place | None:
        if kernel.generated:
            return None
        found = self._structured.get(kernel.name) if kernel.structured else None
        return found or self._definitions.get(kernel.name)


def _describe(overload: Overload, schema: Schema, places: _Places) -> None:
    overload.schema, overload.derivatives = schema.text, schema.derivatives
    overload.kernels = [PlacedKernel(kernel, places.of(kernel)) for kernel in schema.kernels]
    overload.on_cpu = overload.kernels[0] if schema.on_cpu is not None else None


def _row(name: str, overload: Overload) -> dict[str, Any]:
    kernel = overload.on_cpu
    file, line = kernel.place if kernel is not None and kernel.place is not None else (None, None)
    costs = overload.costs
    return {
        "name": name,
        "overload": overload.name,
        "schema": overload.schema,
        "derivative": derivative_text(overload.derivatives) or None,
        "kernel": kernel.kernel.name if kernel is not None else None,
        "kernel_file": file,
        "kernel_line": line,
        **({field: getattr(costs, field) for field in Costs.__struct_fields__} if costs is not None else {}),
    }


def derivative_text(derivatives: Iterable[Derivative]) -> str:
    """Formulas, a line for each: `self: grad`, and `self (AutogradNestedTensor): grad` where it is of one key."""
    return "\n".join(f"{one.arguments}{f' ({one.key})' if one.key else ''}: {one.formula}" for one in derivatives)
