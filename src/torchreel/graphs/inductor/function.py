"""The ops of a job as a function of tensors, in Python: to be traced, and to be held against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchreel._torch.dispatch import schema_of
from torchreel.graphs.inductor.job import Job
from torchreel.program.model import Device, Named, Op, Ref
from torchreel.program.text.call import NUMBERS_FOR_TENSORS


def function_of(job: Job) -> Callable[..., list[torch.Tensor]]:
    """The ops as a function of the inputs."""

    def run(*given: torch.Tensor) -> list[torch.Tensor]:
        values: dict[int, Any] = {
            number: slot.number for number, slot in enumerate(job.slots) if slot.number is not None
        }
        for slot, tensor in zip(job.inputs, given, strict=True):
            values[slot] = tensor.clone() if slot in job.discarded else tensor
        for op in job.ops:
            _call(op, values)
        return [values[slot] for slot in job.outputs]

    return run


def _call(op: Op, values: dict[int, Any]) -> None:
    space, _, rest = op.name.partition("::")
    name, _, overload = rest.partition(".")
    function = getattr(getattr(getattr(torch.ops, space), name), overload or "default")
    args, kwargs = [], {}
    for argument, value in zip(schema_of(function).arguments, op.args, strict=True):
        given = _value(value, values)
        if isinstance(value, Ref) and not isinstance(given, torch.Tensor) and name not in NUMBERS_FOR_TENSORS:
            given = torch.scalar_tensor(given, dtype=torch.float64 if isinstance(given, float) else None)
        if argument.kwarg_only:
            kwargs[argument.name] = given
        else:
            args.append(given)
    if name == "copy_":
        # Traced, a copy of a tensor is the tensor itself, whatever is written to that one afterwards.
        args[1] = args[1].clone() if isinstance(args[1], torch.Tensor) else args[1]
    results = function(*args, **kwargs)
    for name_of, result in _pairs(op.results, results):
        values[name_of] = result


def _value(value: Any, values: dict[int, Any]) -> Any:
    if isinstance(value, list):
        return [_value(part, values) for part in value]
    if isinstance(value, Ref):
        return values[value.slot]
    if isinstance(value, Named):
        return getattr(torch, value.name)
    return torch.device(value.name) if isinstance(value, Device) else value


def _pairs(names: list[Any], results: Any) -> Iterator[tuple[int, torch.Tensor]]:
    given = [results] if len(names) == 1 else list(results)
    for name, result in zip(names, given, strict=True):
        if isinstance(name, list):
            yield from ((part.slot, each) for part, each in zip(name, result, strict=True) if part is not None)
        elif name is not None:
            yield name.slot, result
