"""AOTInductor packages: their calls, the places of their kernels, and packages that cannot be loaded."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchreel
from tests.edge.formats import zoo
from tests.edge.formats.told import Told
from tests.edge.formats.zoo import Entry
from torchreel.edge.formats.aotinductor import adapter as aotinductor
from torchreel.edge.formats.aotinductor.adapter import AotInductor
from torchreel.edge.formats.aotinductor.kernels import Kernels
from torchreel.edge.formats.exported import adapter as exported
from torchreel.errors import EdgeError

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs a C++ compiler"),
]

SEEN = {"cpp.enable_kernel_profile": True, "trace.provenance_tracking_level": 1}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        x = torch.sin(x)
        return self.down(x)


class Small(nn.Module):
    """Compiling takes long: the least that has two modules, ops of torch and a kernel of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x)


def small() -> nn.Module:
    torch.manual_seed(0)
    return Small().eval()


def batch() -> tuple[Tensor, ...]:
    return (torch.ones(4, 8),)


SMALL = Entry("small", small, batch)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.save_aotinductor(SMALL, tmp_path_factory.mktemp("aotinductor") / "small.pt2", SEEN)


def names_in_a_run(model: Any) -> list[str]:
    """What torch itself records of one call."""
    with torch.no_grad(), torch.profiler.profile() as profile:
        model(*batch())
    return [event.name for event in profile.events()]


def test_load_runs_the_model(package: Path) -> None:
    deployed = exported.load(package)
    assert aotinductor.adapts(deployed.module)
    torch.testing.assert_close(deployed.run(batch()), SMALL.expected(), rtol=1e-4, atol=1e-5)


def test_it_adapts_no_other_models() -> None:
    assert not aotinductor.adapts(small())
    assert not aotinductor.adapts(zoo.exported(SMALL))


def test_calls_are_told(package: Path) -> None:
    model, told = aotinductor.load(package).module, Told()
    original = type(model)
    undo = AotInductor(model).watch(told)
    model(*batch())
    assert (told.entered, told.left) == (1, 1)
    with pytest.raises(RuntimeError):
        model()
    assert (told.entered, told.left) == (2, 2)
    undo()
    model(*batch())
    assert told.entered == 2
    assert type(model) is original


def test_kernels_have_the_places_of_the_source(package: Path) -> None:
    model = aotinductor.load(package).module
    adapter = AotInductor(model)
    assert adapter.name == "small"
    assert adapter.remark is None
    names = names_in_a_run(model)
    kernels = [name for name in names if "cpp_fused" in name or name.startswith("aoti_torch")]
    lines = Path(__file__).read_text().split("\n")
    seen = []
    for index, name in enumerate(kernels):
        location = adapter.location_of_kernel(name, kernels[:index].count(name))
        assert location is not None
        frame = next(frame for frame in location.frames if frame.file == __file__)
        seen.append((location.modules[-1:], lines[frame.line - 1].strip()))
    assert seen[0] == ((("block.up", ""),), "x = self.up(x)")
    assert seen[-1] == ((("block.down", ""),), "return self.down(x)")
    assert ((), "x = torch.sin(x)") in seen


def test_a_kernel_that_is_not_known_has_no_place(package: Path) -> None:
    adapter = AotInductor(aotinductor.load(package).module)
    assert adapter.location_of_kernel("aten::mm", 0) is None
    assert adapter.location_of_kernel("graph_0_cpp_fused_sin_0", 1000) is None


def test_a_profile_has_the_kernels_in_their_modules(package: Path, tmp_path: Path) -> None:
    deployed = aotinductor.load(package)
    with torchreel.EdgeProfiler(deployed.module, tmp_path / "trace.json", with_modules=True) as profiler:
        deployed.run(batch())
        deployed.run(batch())
    rows = profiler.result().sql(
        """
        select modules.path from ops join modules on modules.id = ops.module
        where ops.name like 'aoti_torch_cpu_%' order by ops.start_ns
        """
    )
    paths = [row["path"] for row in rows.to_pylist()]
    assert paths == ["small.block.up", "small.block.down"] * 2


def test_a_package_whose_kernels_are_not_seen_says_how_to_see_them(package: Path, tmp_path: Path) -> None:
    """As one that was compiled with no options: its library says nothing of its kernels."""
    model = aotinductor.load(package).module
    folder = Path(shutil.copytree(aotinductor.folder_of(model), tmp_path / "unpacked"))
    (folder / "kernel_information.json").unlink()
    only_modules = Kernels(folder, model.get_constant_fqns())
    assert "lines" in (only_modules.remark or "") and only_modules.are_located
    (source,) = folder.glob("*.wrapper.cpp")
    source.write_text(source.read_text().replace("KernelContextGuard", ""))
    kernels = Kernels(folder, model.get_constant_fqns())
    assert "cpp.enable_kernel_profile" in (kernels.remark or "")
    assert not kernels.are_located
    assert kernels.location("aoti_torch_cpu_addmm_out", 0) is None


def test_places_that_a_package_does_not_have_are_refused(package: Path, tmp_path: Path) -> None:
    """Of two packages that were not loaded by us it cannot be told which is which."""
    other = shutil.copy(package, tmp_path / "other.pt2")
    models = [torch._inductor.aoti_load_package(str(path)) for path in (package, other)]
    with pytest.raises(EdgeError, match="load it alone"):
        torchreel.EdgeProfiler(models[0], with_modules=True)
    with torchreel.EdgeProfiler(models[0]) as profiler:
        models[0](*batch())
    assert "load it alone" in (profiler.remark or "")


def test_two_packages_keep_their_places_apart(package: Path, tmp_path: Path) -> None:
    other = shutil.copy(package, tmp_path / "other.pt2")
    models = [aotinductor.load(path).module for path in (package, Path(other))]
    folders = {aotinductor.folder_of(model) for model in models}
    assert len(folders) == 2
    assert None not in folders


@pytest.mark.parametrize("tensors", [[torch.ones(2, 8)], [torch.ones(4, 8).double()], [torch.ones(1)]])
def test_inputs_of_another_shape_or_type_are_refused(
    package: Path, tensors: list[Tensor], capfd: pytest.CaptureFixture[str]
) -> None:
    """The library would read beyond them."""
    with pytest.raises(RuntimeError, match="input_handles"):
        aotinductor.load(package).run(tensors)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("tensors", [[], [torch.ones(4, 8)] * 2])
def test_another_number_of_inputs(package: Path, tensors: list[Tensor]) -> None:
    with pytest.raises(EdgeError, match=f"takes 1 inputs, and {len(tensors)} were given"):
        aotinductor.load(package).run(tensors)


def changed(package: Path, path: Path, **metadata: str) -> Path:
    """The package with other metadata, and without its library if that is asked for."""
    with zipfile.ZipFile(package) as source, zipfile.ZipFile(path, "w") as target:
        for info in source.infolist():
            content = source.read(info)
            if info.filename.endswith("_metadata.json"):
                content = json.dumps(json.loads(content) | metadata).encode()
            if info.filename.endswith(".so") and not metadata:
                content = b"no library"
            target.writestr(info, content)
    return path


@pytest.mark.parametrize(("key", "value"), [("AOTI_MACHINE", "m68k"), ("AOTI_PLATFORM", "amiga")])
def test_a_package_of_another_machine(package: Path, tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(EdgeError, match=f"was compiled for {value}"):
        aotinductor.load(changed(package, tmp_path / "model.pt2", **{key: value}))


def test_a_library_that_is_none(package: Path, tmp_path: Path) -> None:
    with pytest.raises(EdgeError, match="cannot be loaded"):
        aotinductor.load(changed(package, tmp_path / "model.pt2"))


def test_a_package_without_its_end(package: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(package.read_bytes()[:-3000])
    with pytest.raises(EdgeError, match="end is missing"):
        aotinductor.load(path)


def test_an_exported_program_is_no_package(tmp_path: Path) -> None:
    path = zoo.save_exported(SMALL, tmp_path / "model.pt2")
    with pytest.raises(EdgeError, match="holds 0 models that AOTInductor compiled"):
        aotinductor.load(path)
