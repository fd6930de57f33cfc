"""TorchScript: each op at its module and line, whether torch keeps what a backward needs or not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchreel
from tests.edge.formats import zoo
from tests.edge.formats.sources import functions, locations, locations_of_the_source
from tests.edge.formats.zoo import ZOO, Entry
from tests.edge.nets import Net, batch, calls, on_thread
from tests.record.rows import rows
from torchreel import EdgeProfiler
from torchreel.edge.formats.formats import load
from torchreel.errors import EdgeError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

every_entry = pytest.mark.parametrize("entry", ZOO.values(), ids=ZOO.keys())


def script(model: nn.Module) -> Any:
    return torch.jit.script(model)


@every_entry
@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
def test_the_places_of_all_ops_are_those_of_the_source(entry: Entry, grad: bool) -> None:
    model = script(entry.model())
    with torch.set_grad_enabled(grad), EdgeProfiler(model, with_modules=True, with_stack=True) as profiler:
        model(*entry.inputs())
    assert locations(profiler.result()) == locations_of_the_source(entry)
    assert functions(profiler.result()) & {"<unknown>", "<forward op>"} == set()


@every_entry
def test_a_model_that_was_saved_and_loaded_has_its_places(entry: Entry, tmp_path: Path) -> None:
    model = load(zoo.save_script(entry, tmp_path / "model.pt")).module
    with torch.no_grad(), EdgeProfiler(model, with_modules=True, with_stack=True) as profiler:
        model(*entry.inputs())
    assert locations(profiler.result()) == locations_of_the_source(entry)


@every_entry
@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
def test_after_torch_has_optimized_the_model_every_op_still_has_a_place(entry: Entry, grad: bool) -> None:
    model = script(entry.model())
    with torch.set_grad_enabled(grad):
        for _ in range(4):
            model(*entry.inputs())
        with EdgeProfiler(model, with_modules=True, with_stack=True) as profiler:
            model(*entry.inputs())
    reel = profiler.result()
    assert "aten::linear" in reel.ops.column("name").to_pylist()
    assert rows(reel, "select name from ops where kind = 'op' and module is null") == []
    paths = {row["path"] for row in rows(reel, "select path from modules")}
    name = type(entry.model()).__name__
    assert paths <= {name, *(f"{name}.{part}" for part, _ in entry.model().named_modules() if part)}


class Looping(nn.Module):
    """Control flow, a list of modules, a dict of modules and a function."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.named = nn.ModuleDict({"last": nn.Linear(4, 2)})

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        if x.sum() > 1e9:
            x = x.exp()
        return self.named["last"](torch.nn.functional.softplus(x))


def test_lists_and_dicts_of_modules() -> None:
    model = script(Looping().eval())
    with torch.no_grad(), EdgeProfiler(model, with_modules=True) as profiler:
        model(batch())
    found = rows(
        profiler.result(),
        """select m.path from ops o join modules m on o.module = m.id
           where o.name in ('aten::linear', 'aten::softplus') order by o.id""",
    )
    assert [row["path"] for row in found] == [
        "Looping.layers.0",
        "Looping.layers.1",
        "Looping",
        "Looping.named.last",
    ]


def test_a_traced_model() -> None:
    model: Any = torch.jit.trace(Net().eval(), batch())
    with torch.no_grad(), EdgeProfiler(model, with_modules=True, with_stack=True) as profiler:
        model(batch())
    found = rows(
        profiler.result(),
        """select m.path from ops o join modules m on o.module = m.id
           where o.name in ('aten::linear', 'aten::relu') order by o.id""",
    )
    assert [row["path"].split(".")[-1] for row in found] == ["first", "Net", "second"]


class Held(nn.Module):
    """Modules in lists that no call names: of two lists of the same class it cannot be told which one it is."""

    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.groups = nn.ModuleList([nn.ModuleList([nn.LayerNorm(4)]), nn.ModuleDict({"last": nn.GELU()})])
        self.left = nn.ModuleList([nn.Tanh()])
        self.right = nn.ModuleList([nn.Tanh()])

    def forward(self, x: Tensor) -> Tensor:
        for linear in self.linears:
            x = linear(x)
        x = self.groups[1]["last"](self.groups[0][0](x))
        return self.right[0](self.left[0](x))


def test_lists_of_a_traced_model(tmp_path: Path) -> None:
    torch.jit.trace(Held().eval(), batch()).save(str(tmp_path / "held.pt"))
    model = load(tmp_path / "held.pt").module
    with torch.inference_mode(), EdgeProfiler(model, with_modules=True) as profiler:
        model(batch())
    found = rows(profiler.result(), "select o.name, m.path from ops o join modules m on o.module = m.id order by o.id")
    assert [(row["name"], row["path"]) for row in found if row["name"].startswith("aten::")] == [
        ("aten::linear", "Held.linears.0"),
        ("aten::linear", "Held.linears.1"),
        ("aten::layer_norm", "Held.groups.0.0"),
        ("aten::gelu", "Held.groups.1.last"),
        ("aten::tanh", "Held.0"),
        ("aten::tanh", "Held.0"),
    ]


def test_neither_modules_nor_stack() -> None:
    model = script(Net().eval())
    with torch.no_grad(), EdgeProfiler(model) as profiler:
        model(batch())
    reel = profiler.result()
    assert calls(reel) == ["nn.Module: Net"]
    assert rows(reel, "select count(distinct module) as m, count(stack) as s from ops") == [{"m": 1, "s": 0}]


def test_a_model_that_raises() -> None:
    model = script(Net().eval())
    with torch.no_grad(), EdgeProfiler(model, with_modules=True) as profiler:
        with pytest.raises(RuntimeError):
            model(torch.ones(3, 3))
        torch.ones(2).tan()
        model(batch())
    names = profiler.result().ops.column("name").to_pylist()
    assert len(calls(profiler.result())) == 2
    assert "aten::tan" not in names
    found = rows(
        profiler.result(),
        """select m.path from ops o join modules m on o.module = m.id where o.name = 'aten::linear' order by o.id""",
    )
    assert [row["path"] for row in found][-2:] == ["Net.first", "Net.second"]


def test_on_another_thread() -> None:
    model = script(Net().eval())
    with EdgeProfiler(model, with_modules=True, with_stack=True) as profiler:
        on_thread(lambda: model(batch()))
    assert profiler.result().ops.column("name").to_pylist().count("aten::linear") == 2


def test_hooks_are_gone_after_it() -> None:
    model = script(Net().eval())
    with EdgeProfiler(model):
        model(batch())
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no TorchScript model"),
        (b"PK\x03\x04 and no more", "is no TorchScript model"),
        (b"plain text", "is no TorchScript model"),
    ],
)
def test_a_file_that_is_no_model(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(EdgeError, match=said):
        load(tmp_path / "model.pt")


def test_bytes_that_are_wrong_within_the_file(tmp_path: Path) -> None:
    """Each either loads or says so in a sentence."""
    script(Net().eval()).save(str(tmp_path / "model.pt"))
    data = (tmp_path / "model.pt").read_bytes()
    for position in range(40, len(data), max(1, len(data) // 60)):
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        (tmp_path / "bad.pt").write_bytes(damaged)
        try:
            EdgeProfiler(load(tmp_path / "bad.pt").module)
        except EdgeError as error:
            assert str(error)


def test_weights_are_no_model_and_nothing_of_them_is_run(tmp_path: Path) -> None:
    torch.save(Net().state_dict(), tmp_path / "weights.pt")
    with pytest.raises(EdgeError, match=r"holds no TorchScript but other data.*torch\.jit\.save"):
        load(tmp_path / "weights.pt")


def test_an_exported_program_under_the_wrong_name(tmp_path: Path) -> None:
    path = zoo.save_exported(zoo.ZOO["lstm"], tmp_path / "lstm.pt2").rename(tmp_path / "lstm.pt")
    with pytest.raises(EdgeError, match=r"lstm\.pt holds what torch\.export\.save writes: let its name end in \.pt2\."):
        load(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_rights(tmp_path: Path) -> None:
    path = zoo.save_script(zoo.ZOO["lstm"], tmp_path / "lstm.pt")
    path.chmod(0)
    with pytest.raises(EdgeError, match=r"lstm\.pt cannot be read: Permission denied\. Check its rights\."):
        load(path)


def test_what_is_no_model_at_all(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pt")
    with pytest.raises(EdgeError, match=r"pipe\.pt is no regular file"):
        load(tmp_path / "pipe.pt")
    with torchreel.record(tmp_path / "run.reel"):
        pass
    with pytest.raises(EdgeError, match=r"run\.reel is a reel, not a model: `torchreel report .*run\.reel` shows"):
        load(tmp_path / "run.reel")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(EdgeError, match="There is no model at"):
        load(tmp_path / "missing.pt")
    with pytest.raises(EdgeError, match="is a directory"):
        load(tmp_path)
    (tmp_path / "model.xyz").write_bytes(b"")
    with pytest.raises(EdgeError, match=r"must end in \.pt, \.ptl"):
        load(tmp_path / "model.xyz")
