from __future__ import annotations

import pyarrow as pa
import pytest

from torchreel.export.timeline.kineto import PythonCallers, category, device_args, kernel_category
from torchreel.export.timeline.tracks import ProcessTrack, Track


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        *(("op", "cpu_op"), ("backward", "cpu_op"), ("torchscript", "cpu_op"), ("other", "cpu_op")),
        *(("range", "user_annotation"), ("python", "python_function"), ("module", "python_function")),
    ],
)
def test_categories(kind: str, expected: str) -> None:
    assert category(kind) == expected


def test_categories_of_kernels() -> None:
    names = ["Memcpy DtoH (Device -> Pinned)", "Memset (Device)", "void gemm<float>()"]
    assert [kernel_category(name) for name in names] == ["gpu_memcpy", "gpu_memset", "kernel"]


def test_devices() -> None:
    assert device_args("cpu") == '"Device Id": -1, "Device Type": 0'
    assert device_args("cuda:3") == '"Device Id": 3, "Device Type": 1'


def test_the_caller_of_a_python_call_is_a_python_call() -> None:
    track = Track(ProcessTrack(0, 1, "python", "CPU"), 7, "thread 7")
    rows = {"id": [1, 2, 3, 4], "start_ns": [0, 10, 20, 100], "dur_ns": [100, 50, 5, 5]}
    callers = PythonCallers()
    found = callers(track, pa.record_batch(rows), [True, False, True, True])
    assert found == [
        '"Python id": 2, "Python parent id": null, "Python thread": 7',
        None,
        '"Python id": 4, "Python parent id": 2, "Python thread": 7',
        '"Python id": 5, "Python parent id": null, "Python thread": 7',
    ]
