"""Each model of the zoo answers the same in every format that it is saved in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.edge.formats import zoo
from tests.edge.formats.zoo import ZOO, Entry

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

every_entry = pytest.mark.parametrize("entry", ZOO.values(), ids=ZOO.keys())


def assert_same(entry: Entry, answer: Tensor) -> None:
    torch.testing.assert_close(answer, entry.expected(), rtol=1e-4, atol=1e-5)


@every_entry
def test_a_model_is_the_same_each_time(entry: Entry) -> None:
    assert torch.equal(entry.expected(), entry.expected())
    assert not entry.model().training


@every_entry
@pytest.mark.parametrize("debug", [True, False])
def test_lite(entry: Entry, tmp_path: Path, debug: bool) -> None:
    from torch.jit.mobile import _load_for_lite_interpreter

    module = _load_for_lite_interpreter(str(zoo.save_lite(entry, tmp_path / "model.ptl", debug)))
    assert_same(entry, module(*entry.inputs()))


@every_entry
def test_script(entry: Entry, tmp_path: Path) -> None:
    module = torch.jit.load(str(zoo.save_script(entry, tmp_path / "model.pt")))
    assert_same(entry, module(*entry.inputs()))


@every_entry
def test_exported(entry: Entry, tmp_path: Path) -> None:
    program = torch.export.load(zoo.save_exported(entry, tmp_path / "model.pt2"))
    assert_same(entry, program.module()(*entry.inputs()))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs a C++ compiler")
@every_entry
def test_aotinductor(entry: Entry, tmp_path: Path) -> None:
    model = torch._inductor.aoti_load_package(str(zoo.save_aotinductor(entry, tmp_path / "model.pt2")))
    assert_same(entry, model(*entry.inputs()))


@every_entry
def test_onnx(entry: Entry, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(zoo.save_onnx(entry, tmp_path / "model.onnx")))
    names = [value.name for value in session.get_inputs()]
    feeds = {name: value.numpy() for name, value in zip(names, entry.inputs(), strict=True)}
    assert_same(entry, torch.from_numpy(session.run(None, feeds)[0]))


# Lowering some of them takes half a minute: those are for long runs.
@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, marks=[pytest.mark.long] if name in ("lstm", "transformer") else [], id=name)
        for name, entry in ZOO.items()
    ],
)
@pytest.mark.parametrize("delegate", [False, pytest.param(True, marks=pytest.mark.long)])
def test_executorch(entry: Entry, tmp_path: Path, delegate: bool) -> None:
    runtime = pytest.importorskip("executorch.runtime")
    path = zoo.save_executorch(entry, tmp_path / "model.pte", delegate)
    method = runtime.Runtime.get().load_program(path).load_method("forward")
    assert_same(entry, method.execute(list(entry.inputs()))[0])
