from __future__ import annotations

from pathlib import Path

import pytest

from torchreel.errors import OptionError
from torchreel.export import export
from torchreel.export.stacks import write_stacks
from torchreel.reel import Reel

from .reels import EPOCH, ProcessBuilder, build


def make(path: Path) -> Reel:
    process = ProcessBuilder("a-1", 1)
    process.add("frames", id=0, file="my model.py", line=1, function="f;g")
    process.add("frames", id=1, file="train.py", line=2, function="<module>")
    process.add("stacks", id=0, frames=[0, 1])
    process.add("stacks", id=1, frames=[1])
    first = process.op("aten::mm", 0, 5_400, stack=0)
    process.op("aten::mm", 6_000, 8_000, stack=0)
    process.op("aten::add", 9_000, 9_999, stack=1)
    process.op("aten::mul", 10_000, 20_000)
    kernel = {"device": "cuda:0", "stream": 7, "name": "gemm", "op": first}
    process.add("kernels", id=0, start_ns=EPOCH, dur_ns=3_000, **kernel)
    return build(path, process)


def test_stacks_are_added_up_and_written_as_torch_does(tmp_path: Path) -> None:
    export(make(tmp_path / "r.reel"), tmp_path / "stacks.txt", "stacks")
    assert (tmp_path / "stacks.txt").read_text() == "train.py(2):_<module>;my_model.py(1):_f_g 7\n"


def test_time_on_a_device(tmp_path: Path) -> None:
    write_stacks(make(tmp_path / "r.reel"), tmp_path / "stacks.txt", "self_cuda_time_total")
    assert (tmp_path / "stacks.txt").read_text() == "train.py(2):_<module>;my_model.py(1):_f_g 3\n"


def test_an_unknown_metric_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="There is no metric 'time' to export stacks by"):
        write_stacks(make(tmp_path / "r.reel"), tmp_path / "x", "time")
