"""Models measured from their files: what is recorded, and how two are compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.edge.formats.zoo import ZOO, save_exported, save_lite, save_script
from torchreel.edge.by_turns import by_turns, largest_difference, load_both
from torchreel.edge.formats.adapter import Deployed
from torchreel.edge.measure import MeasureOptions, Model, load_model, measure, warm_up
from torchreel.errors import EdgeError, OptionError

OPTIONS = MeasureOptions(repeat=2, warmup=1, threads=1)


def giving(run: Callable[[Any], Any]) -> Model:
    """A model that is a function of one tensor."""
    return Model(Path("x.pt"), Deployed(None, lambda tensors: run(tensors[0])), [torch.ones(2)])


def test_a_model_is_run_as_often_as_asked_for(tmp_path: Path) -> None:
    path = save_script(ZOO["lstm"], tmp_path / "lstm.pt")
    model = load_model(path, ("1x20x16",))
    before = torch.get_num_threads()
    warm_up(model, OPTIONS)
    measurement = measure(model, tmp_path / "run.reel", OPTIONS)
    assert torch.get_num_threads() == before
    runs = measurement.reel.sql("select count(*) from ops where kind = 'module' and parent is null")
    assert runs.column(0).to_pylist() == [2]
    assert (measurement.format, measurement.name, measurement.threads) == ("TorchScript", "Lstm", 1)
    assert (measurement.inputs, measurement.bytes) == (("1x20x16:float32",), path.stat().st_size)


def test_inputs_that_the_file_declares(tmp_path: Path) -> None:
    model = load_model(save_exported(ZOO["transformer"], tmp_path / "transformer.pt2"), ())
    assert [tuple(tensor.shape) for tensor in model.inputs] == [(1, 16)]
    assert model.run().shape == (1, 16, 128)


def test_the_other_model_may_declare_the_inputs(tmp_path: Path) -> None:
    paths = save_script(ZOO["lstm"], tmp_path / "lstm.pt"), save_exported(ZOO["lstm"], tmp_path / "lstm.pt2")
    left, right = load_both(paths, (), threads=None)
    assert left.inputs[0] is right.inputs[0]
    assert largest_difference(left, right, OPTIONS) == pytest.approx(0, abs=1e-6)
    assert all(plain.low_ns <= plain.ns <= plain.high_ns for plain in by_turns([left, right], OPTIONS))


def test_both_must_take_the_inputs(tmp_path: Path) -> None:
    paths = save_lite(ZOO["lstm"], tmp_path / "lstm.ptl"), save_exported(ZOO["lstm"], tmp_path / "lstm.pt2")
    with pytest.raises(EdgeError, match=r"lstm\.ptl does not say what its inputs are"):
        load_both((paths[0], paths[0]), (), threads=None)
    with pytest.raises(OptionError, match=r"lstm\.pt2 takes 1 input \(x as 1x20x16:float32\), and --input was given 2"):
        load_both(paths, ("1", "1"), threads=None)


def test_a_model_without_debug_information(tmp_path: Path) -> None:
    path = save_lite(ZOO["lstm"], tmp_path / "lstm.ptl", debug=False)
    model = load_model(path, ("1x20x16",))
    asked = MeasureOptions(repeat=1, threads=1, modules=True)
    with pytest.raises(EdgeError, match="without debug information"):
        measure(model, tmp_path / "run.reel", asked)
    usual = MeasureOptions(repeat=1, threads=1, modules=True, lenient=True)
    measurement = measure(model, tmp_path / "run.reel", usual)
    assert "without debug information" in (measurement.remark or "")


def test_differences() -> None:
    def apart(left: Callable[[Any], Any], right: Callable[[Any], Any]) -> float | str:
        return largest_difference(giving(left), giving(right), OPTIONS)

    assert apart(lambda x: x, lambda x: x.numpy() + 0.25) == 0.25
    assert apart(lambda x: {"a": [x, (x, 3)]}, lambda x: [x, x - 2]) == 2
    assert apart(lambda x: x.half(), lambda x: x.double()) == 0
    assert apart(lambda x: x / 0 * 0, lambda x: x / 0 * 0) == 0  # not a number, in both
    assert apart(lambda x: x * 1j, lambda x: x * 1j + 3) == 3
    assert apart(lambda x: x[:0], lambda x: x[:0]) == 0
    assert apart(lambda x: x > 0, lambda x: x < 0) == 1
    assert apart(lambda x: x, lambda x: (x, x)) == "x.pt gives 1 tensors and x.pt 2"
    assert apart(lambda x: x, lambda x: x.sum()) == "output 1 has the sizes 2 and of a number"
    assert apart(lambda x: "text", lambda x: np.zeros(())) == "x.pt gives 0 tensors and x.pt 1"


def test_what_a_model_raises_is_one_sentence() -> None:
    def failing(tensor: Any) -> Any:
        raise RuntimeError("first\n  File in the middle\nRuntimeError: the reason.\n")

    with pytest.raises(EdgeError) as error:
        giving(failing).run()
    assert str(error.value) == (
        "x.pt cannot run on --input 2:float32: the reason. Check the sizes, dtypes and values of its inputs."
    )


def test_a_model_without_inputs() -> None:
    deployed = Deployed(None, lambda tensors: torch.ones(1), inputs=())
    assert Model(Path("x.pt"), deployed, []).run().tolist() == [1]
