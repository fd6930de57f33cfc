"""Module paths of TorchScript and of the lite interpreter, beside those of Python, however a module is reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.record.rows import rows
from torchreel import EdgeProfiler
from torchreel.edge.formats.hierarchy import modules_of, steps_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.top = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)
        self.parts = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4)))

    def through_a_method(self, x: Tensor) -> Tensor:
        return self.other(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.parts(self.through_a_method(self.top(x)))


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.top = Inner()
        self.blocks = nn.ModuleList([Inner(), Inner()])
        self.named = nn.ModuleDict({"la-st": nn.Linear(4, 4), "plain": nn.Linear(4, 4)})

    def forward(self, x: Tensor) -> Tensor:
        x = self.top(x)
        for index, block in enumerate(self.blocks):
            x = block(x) + index
        for block in self.blocks:
            x = block(x)
        for _, layer in self.named.items():
            x = layer(x)
        x = self.blocks[1](x)
        x = self.blocks[1].top(x)
        x = self.top.top(x)
        x = self.top.parts[0](x)
        x = self.top.parts[1](x)
        return self.named["la-st"](self.named["plain"](x))


def lite(model: nn.Module, path: Path) -> Any:
    from torch.jit.mobile import _load_for_lite_interpreter

    torch.jit.script(model)._save_for_lite_interpreter(str(path), _save_mobile_debug_info=True)
    return _load_for_lite_interpreter(str(path))


def loaded(model: nn.Module, path: Path) -> Any:
    torch.jit.script(model).save(str(path))
    return torch.jit.load(str(path))


def paths(model: Any) -> list[str]:
    with torch.no_grad(), EdgeProfiler(model, with_modules=True) as profiler:
        model(torch.ones(2, 4))
    query = "select m.path from ops o join modules m on o.module = m.id where o.name = 'aten::linear' order by o.id"
    return [row["path"] for row in rows(profiler.result(), query)]


@pytest.mark.parametrize("format", ["script", "loaded", "lite"])
def test_paths_are_pythons(format: str, tmp_path: Path) -> None:
    model = Outer().eval()
    made = {
        "script": lambda: torch.jit.script(model),
        "loaded": lambda: loaded(model, tmp_path / "model.pt"),
        "lite": lambda: lite(model, tmp_path / "model.ptl"),
    }[format]()
    found = paths(made)
    assert found == paths(model)
    assert "Outer.blocks.1.parts.1.1" in found
    assert "Outer.named.la-st" in found


def test_a_hierarchy_as_torch_writes_it() -> None:
    text = (
        "top(Net)::<unknown>.features(Sequential)::forward.0(Conv2d)::forward.SELF(Conv2d)::_conv_forward.aten::conv2d"
    )
    steps = steps_of(text)
    assert steps == [("top", "Net"), ("features", "Sequential"), ("0", "Conv2d"), ("SELF", "Conv2d")]
    assert modules_of(steps, []) == (("", "Net"), ("features", "Sequential"), ("features.0", "Conv2d"))


@pytest.mark.parametrize("text", ["", "()", "top", "a.b.c", "::::", "top(", "(X)::", "Model was not saved with debug"])
def test_texts_that_are_no_hierarchy(text: str) -> None:
    assert modules_of(steps_of(text), [text]) == ()
