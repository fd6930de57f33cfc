"""FLOPs of models in each of their formats, beside numbers that were computed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchreel
from tests.edge.formats.zoo import ZOO
from tests.record.rows import rows
from tests.sample import sampled
from torchreel import EdgeProfiler

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Convolutions(nn.Module):
    """One multiply and one add for each weight that an output of a convolution meets."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Conv2d(3, 8, 3)
        self.strided = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.grouped = nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.depthwise = nn.Conv2d(16, 16, 5, padding=2, groups=16, bias=False)
        self.dilated = nn.Conv2d(16, 4, 3, dilation=2)
        self.pointwise = nn.Conv2d(4, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.plain(x)
        x = self.strided(x)
        x = self.grouped(x)
        x = self.depthwise(x)
        x = self.dilated(x)
        return self.pointwise(x)


# 2 images of 18x18: plain gives 16x16, strided 8x8, dilated 4x4.
CONVOLUTIONS = [
    2 * 2 * 8 * 16 * 16 * 3 * 9,
    2 * 2 * 16 * 8 * 8 * 8 * 9,
    2 * 2 * 16 * 8 * 8 * 4 * 9,
    2 * 2 * 16 * 8 * 8 * 25,
    2 * 2 * 4 * 4 * 4 * 16 * 9,
    2 * 2 * 10 * 4 * 4 * 4,
]


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 5)
        self.unbiased = nn.Linear(5, 7, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        x = self.unbiased(x)
        y = torch.matmul(x, x.transpose(1, 2))
        return torch.bmm(y, x) + torch.relu(x)


# A batch of 3, each 4x6.
PRODUCTS = [2 * 3 * 4 * 6 * 5, 2 * 3 * 4 * 5 * 7, 2 * 3 * 4 * 7 * 4, 2 * 3 * 4 * 4 * 7]


def lite(model: nn.Module, path: Path) -> Any:
    from torch.jit.mobile import _load_for_lite_interpreter

    torch.jit.script(model)._save_for_lite_interpreter(str(path), _save_mobile_debug_info=True)
    return _load_for_lite_interpreter(str(path))


def exported(model: nn.Module, example: tuple[Tensor, ...]) -> Any:
    return torch.export.export(model, example)


FORMATS: dict[str, Callable[[nn.Module, tuple[Tensor, ...], Path], Any]] = {
    "nn.Module": lambda model, example, path: model,
    "script": lambda model, example, path: torch.jit.script(model),
    "trace": lambda model, example, path: torch.jit.trace(model, example),
    "frozen": lambda model, example, path: torch.jit.freeze(torch.jit.script(model)),
    "lite": lambda model, example, path: lite(model, path / "model.ptl"),
    "exported": lambda model, example, path: exported(model, example),
}

every_format = pytest.mark.parametrize("format", FORMATS)


def profile(format: str, model: nn.Module, example: tuple[Tensor, ...], path: Path, **options: Any) -> torchreel.Reel:
    with torch.no_grad():
        made = FORMATS[format](model.eval(), example, path)
        with EdgeProfiler(made, path / "trace.json", with_flops=True, **options) as profiler:
            profiler.module(*example)
    return profiler.result()


def flops(reel: torchreel.Reel) -> list[int]:
    return [row["flops"] for row in rows(reel, "select flops from ops where flops is not null order by id")]


@every_format
def test_convolutions(format: str, tmp_path: Path) -> None:
    reel = profile(format, Convolutions(), (torch.ones(2, 3, 18, 18),), tmp_path)
    assert flops(reel) == CONVOLUTIONS


@every_format
def test_linear_and_matmul(format: str, tmp_path: Path) -> None:
    reel = profile(format, Products(), (torch.ones(3, 4, 6),), tmp_path)
    assert flops(reel) == PRODUCTS


@every_format
def test_with_places_the_counts_are_the_same(format: str, tmp_path: Path) -> None:
    example = (torch.ones(2, 3, 18, 18),)
    reel = profile(format, Convolutions(), example, tmp_path, with_modules=True, with_stack=True)
    found = rows(
        reel,
        """select m.path, o.flops from ops o join modules m on o.module = m.id
           where o.flops is not null order by o.id""",
    )
    parts = ["plain", "strided", "grouped", "depthwise", "dilated", "pointwise"]
    assert [row["path"].split(".")[-1] for row in found] == parts
    assert [row["flops"] for row in found] == CONVOLUTIONS


@pytest.mark.parametrize(("name", "format"), sampled(product(ZOO, FORMATS), 3, "-".join))
def test_all_formats_of_a_model_have_the_same_total(name: str, format: str, tmp_path: Path) -> None:
    entry = ZOO[name]
    expected = sum(flops(profile("nn.Module", entry.model(), entry.inputs(), tmp_path)))
    (tmp_path / "again").mkdir()
    assert sum(flops(profile(format, entry.model(), entry.inputs(), tmp_path / "again"))) == expected > 0


def test_flops_are_in_the_trace(tmp_path: Path) -> None:
    profile("lite", Products(), (torch.ones(3, 4, 6),), tmp_path)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["args"]["FLOPs"] for event in events if "FLOPs" in event.get("args", {})] == PRODUCTS


def test_not_asked_for_there_are_none() -> None:
    model = Products()
    with EdgeProfiler(model, report_input_shapes=True) as profiler:
        model(torch.ones(3, 4, 6))
    assert flops(profiler.result()) == []


class Trimmed(nn.Module):
    """Calls whose last arguments have their defaults: the lite interpreter's bytecode leaves them out."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 3, 3, 3))
        self.bias = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.conv2d(x, self.weight)
        y = y + torch.conv2d(x, self.weight, self.bias)
        return y.sum() + torch.conv2d(x, self.weight, self.bias, [2, 2], [1, 1]).sum()


TRIMMED = [2 * 4 * 5 * 5 * 27, 2 * 4 * 5 * 5 * 27, 2 * 4 * 4 * 4 * 27]


@every_format
def test_arguments_that_have_their_defaults(format: str, tmp_path: Path) -> None:
    reel = profile(format, Trimmed(), (torch.ones(1, 3, 7, 7),), tmp_path)
    assert flops(reel) == TRIMMED
    if format == "lite":
        given = """select json_array_length(i.dims) as given from ops o join inputs i on o.inputs = i.id
                   where o.name = 'aten::conv2d' order by o.id"""
        # Of the seven: as many as that call has which needs most.
        assert [row["given"] for row in rows(reel, given)] == [5, 5, 5]
