"""Models of the lite interpreter: each op at its module and line, by the debug maps in the model's own file."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.edge.formats import zoo
from tests.edge.formats.sources import functions, locations, locations_of_the_source
from tests.edge.formats.trap import trap
from tests.edge.formats.zoo import ZOO, Entry
from tests.edge.nets import Net, batch, calls, on_thread
from tests.record.rows import rows
from torchreel import EdgeProfiler
from torchreel.edge.formats.formats import load
from torchreel.errors import EdgeError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

every_entry = pytest.mark.parametrize("entry", ZOO.values(), ids=ZOO.keys())


def save(model: nn.Module, path: Path, debug: bool = True) -> Path:
    torch.jit.script(model.eval())._save_for_lite_interpreter(str(path), _save_mobile_debug_info=debug)
    return path


def read(path: Path) -> Any:
    from torch.jit.mobile import _load_for_lite_interpreter

    return _load_for_lite_interpreter(str(path))


@every_entry
def test_the_places_of_all_ops_are_those_of_the_source(entry: Entry, tmp_path: Path) -> None:
    model = read(zoo.save_lite(entry, tmp_path / "model.ptl"))
    with EdgeProfiler(model, with_modules=True, with_stack=True) as profiler:
        model(*entry.inputs())
    found = locations(profiler.result())
    assert found == locations_of_the_source(entry)
    assert len(found) >= 2
    assert functions(profiler.result()) & {"<unknown>", "<forward op>"} == set()


@every_entry
def test_every_op_has_a_place(entry: Entry, tmp_path: Path) -> None:
    model = read(zoo.save_lite(entry, tmp_path / "model.ptl"))
    with EdgeProfiler(model, with_modules=True, with_stack=True) as profiler:
        model(*entry.inputs())
    reel = profiler.result()
    # Instructions that are no ops, such as prim::TupleUnpack, may have none.
    assert rows(reel, "select name from ops where name like 'aten::%' and (module is null or stack is null)") == []
    assert set(reel.ops.column("kind").to_pylist()) == {"module", "lite"}
    classes = {row["path"]: row["class"] for row in rows(reel, "select path, class from modules")}
    model_class = type(entry.model()).__name__
    parts = {f"{model_class}.{name}": type(part).__name__ for name, part in entry.model().named_modules() if name}
    for path, kind in classes.items():
        assert path == model_class or parts.get(path) == kind


@pytest.mark.parametrize(("modules", "stack"), [(True, False), (False, True)])
def test_modules_or_stack_alone(modules: bool, stack: bool, tmp_path: Path) -> None:
    model = read(save(Net(), tmp_path / "model.ptl"))
    with EdgeProfiler(model, with_modules=modules, with_stack=stack) as profiler:
        model(batch())
    found = rows(
        profiler.result(),
        """select count(distinct module) as modules, count(stack) as stacks from ops where name = 'aten::linear'""",
    )
    assert found == [{"modules": 2 if modules else 1, "stacks": 2 if stack else 0}]


@pytest.mark.parametrize("options", [{"with_modules": True}, {"with_stack": True}])
def test_a_model_without_debug_information_is_refused_with_what_to_do(options: dict[str, bool], tmp_path: Path) -> None:
    model = read(save(Net(), tmp_path / "model.ptl", debug=False))
    with pytest.raises(EdgeError, match=r"saved without debug information.*_save_mobile_debug_info=True"):
        EdgeProfiler(model, **options)
    assert type(model).__name__ == "LiteScriptModule"


def test_a_model_without_debug_information_is_profiled_all_the_same(tmp_path: Path) -> None:
    model = read(save(Net(), tmp_path / "model.ptl", debug=False))
    profiler = EdgeProfiler(model, with_flops=True, profile_memory=True)
    assert profiler.remark is not None
    with profiler:
        model(batch())
    found = rows(profiler.result(), "select name, flops from ops where kind = 'lite' order by id")
    assert [(row["name"], row["flops"]) for row in found] == [
        ("aten::linear", 128),
        ("aten::relu", None),
        ("aten::linear", 64),
    ]
    assert profiler.result().meta["edge"]["remark"] == profiler.remark


def test_each_way_to_call_it_is_seen(tmp_path: Path) -> None:
    model = read(save(Net(), tmp_path / "model.ptl"))
    with EdgeProfiler(model) as profiler:
        model(batch())
        model.forward(batch())
        model.run_method("forward", batch())
    reel = profiler.result()
    assert calls(reel) == 3 * ["nn.Module: Net"]
    names = [name for name in reel.ops.column("name").to_pylist() if name.startswith("aten")]
    assert names == 3 * ["aten::linear", "aten::relu", "aten::linear"]


class Exporting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)

    @torch.jit.export
    def twice(self, x: Tensor) -> Tensor:
        return self.layer(x) * 2


def test_another_method(tmp_path: Path) -> None:
    model = read(save(Exporting(), tmp_path / "model.ptl"))
    with EdgeProfiler(model, with_modules=True, with_stack=True) as profiler:
        model.run_method("twice", batch())
    found = rows(
        profiler.result(),
        """select o.name, m.path from ops o join modules m on o.module = m.id where o.kind = 'lite' order by o.id""",
    )
    assert [(row["name"], row["path"]) for row in found] == [
        ("aten::linear", "Exporting.layer"),
        ("aten::mul", "Exporting"),
    ]


def test_the_object_is_as_it_was_after_it(tmp_path: Path) -> None:
    model = read(save(Net(), tmp_path / "model.ptl"))
    kind, attributes = type(model), dict(vars(model))
    with EdgeProfiler(model):
        model(batch())
        assert isinstance(model, kind)
    assert type(model) is kind
    assert vars(model) == attributes
    with pytest.raises(ZeroDivisionError), EdgeProfiler(model):
        model(batch())
        raise ZeroDivisionError
    assert type(model) is kind
    assert vars(model) == attributes


def test_another_module_of_the_class_is_absent(tmp_path: Path) -> None:
    model, other = read(save(Net(), tmp_path / "model.ptl")), read(tmp_path / "model.ptl")
    with EdgeProfiler(model) as profiler:
        other(batch())
        model(batch())
        other.forward(batch())
    assert len(calls(profiler.result())) == 1
    assert profiler.result().ops.num_rows == 4


def test_on_another_thread(tmp_path: Path) -> None:
    model = read(save(Net(), tmp_path / "model.ptl"))
    with EdgeProfiler(model, with_modules=True) as profiler:
        on_thread(lambda: model(batch()))
    assert profiler.result().ops.num_rows == 4


def test_wrong_inputs_are_torchs_own_error_and_the_next_call_is_right(tmp_path: Path) -> None:
    model = read(save(Net(), tmp_path / "model.ptl"))
    with EdgeProfiler(model) as profiler:
        with pytest.raises(RuntimeError):
            model(torch.ones(3, 3))
        torch.ones(2).tan()
        model(batch())
    reel = profiler.result()
    assert len(calls(reel)) == 2
    names = [name for name in reel.ops.sort_by("id").column("name").to_pylist() if name.startswith("aten")]
    assert names[-3:] == ["aten::linear", "aten::relu", "aten::linear"]
    assert "aten::tan" not in names


def test_memory_of_a_lite_model(tmp_path: Path) -> None:
    model = read(save(Net(), tmp_path / "model.ptl"))
    with EdgeProfiler(model, profile_memory=True) as profiler:
        output = model(batch())
        del output
    totals = [row["total"] for row in rows(profiler.result(), "select total from allocs order by id")]
    assert min(totals) == 0
    assert max(totals) == 2 * 2 * 8 * 4
    assert totals[-1] == 0


@pytest.mark.parametrize("suffix", [".ptl", ".pt"])
def test_a_file_is_loaded_by_what_it_holds(suffix: str, tmp_path: Path) -> None:
    deployed = load(save(Net(), tmp_path / f"model{suffix}"))
    assert type(deployed.module).__name__ == "LiteScriptModule"
    assert deployed.run([batch()]).shape == (2, 2)


def test_nothing_of_its_debug_maps_is_executed(tmp_path: Path) -> None:
    save(Net(), tmp_path / "model.ptl")
    with zipfile.ZipFile(tmp_path / "model.ptl") as source, zipfile.ZipFile(tmp_path / "trap.ptl", "w") as target:
        maps = [name for name in source.namelist() if "debug" in name]
        assert len(maps) >= 2
        pickle.loads(trap(tmp_path / "executed")).close()
        (tmp_path / "executed").unlink()
        for name in source.namelist():
            target.writestr(name, trap(tmp_path / "executed") if name in maps else source.read(name))
    with pytest.raises(EdgeError, match="cannot be loaded by the lite interpreter"):
        load(tmp_path / "trap.ptl")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("keep", [0, 10, 100, 0.5, 0.9, 0.99])
def test_a_file_that_was_cut_short(keep: float, tmp_path: Path) -> None:
    data = save(Net(), tmp_path / "model.ptl").read_bytes()
    (tmp_path / "cut.ptl").write_bytes(data[: int(keep * len(data)) if 0 < keep < 1 else int(keep)])
    with pytest.raises(EdgeError, match=r"cut\.ptl .*"):
        load(tmp_path / "cut.ptl")


def test_bytes_that_are_wrong_within_the_file(tmp_path: Path) -> None:
    """Each either loads or says so in a sentence."""
    data = save(Net(), tmp_path / "model.ptl").read_bytes()
    for position in range(40, len(data), max(1, len(data) // 60)):
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        (tmp_path / "bad.ptl").write_bytes(damaged)
        try:
            deployed = load(tmp_path / "bad.ptl")
            EdgeProfiler(deployed.module)
        except EdgeError as error:
            assert str(error)
