"""Modules whose forward() is called directly, not through their call."""

from __future__ import annotations

from pathlib import Path

import torch

import torchreel
from tests.record.rows import rows


class Base(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


class Part(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).cos()


class Whole(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Part()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part.forward(x).exp()


class NoModule:
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.tan()


def modules(reel: torchreel.Reel) -> dict[str, str | None]:
    query = "select o.name, m.path from ops o left join modules m on o.module = m.id where o.kind = 'op' order by o.id"
    return {row["name"]: row["path"] for row in rows(reel, query)}


def calls(reel: torchreel.Reel) -> list[str]:
    query = "select m.path from ops o join modules m on o.module = m.id where o.kind = 'module' order by o.id"
    return [row["path"] for row in rows(reel, query)]


def test_a_module_is_seen_by_its_forward(tmp_path: Path) -> None:
    model, x = Whole(), torch.ones(3)
    with torchreel.record(tmp_path / "a.reel", modules=True):
        model.forward(x)
        NoModule().forward(x)
    reel = torchreel.load(tmp_path / "a.reel")
    found = modules(reel)
    assert found["aten::sin"] == found["aten::cos"] == "Whole.part"
    assert found["aten::exp"] == "Whole"
    assert found["aten::tan"] is None
    assert calls(reel) == ["Whole", "Whole.part"]


def test_a_call_is_one_call(tmp_path: Path) -> None:
    model, x = Whole(), torch.ones(3)
    with torchreel.record(tmp_path / "a.reel", modules=True):
        model(x)
        model.part(x)
    assert calls(torchreel.load(tmp_path / "a.reel")) == ["Whole", "Whole.part", "Whole.part"]


def test_beside_calls_of_python(tmp_path: Path) -> None:
    model, x = Whole(), torch.ones(3)
    with torchreel.record(tmp_path / "a.reel", modules=True, python=True):
        model.forward(x)
        torch.ones(3).tan()
    reel = torchreel.load(tmp_path / "a.reel")
    assert calls(reel) == ["Whole", "Whole.part"]
    assert modules(reel)["aten::tan"] is None
    assert rows(reel, "select sum(open::int)::int as open from ops") == [{"open": 0}]
