"""`torchreel report` of a reel with devices: --by kernel, --sort device, and the columns of devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.analyze.gpu.by_hand import reel_of
from tests.cli.conftest import Outcome
from tests.cli.gpu.test_command import RUN


def table(out: str) -> str:
    """The part of a report that is the table."""
    return out.partition("\n\n")[2].partition("\n\n")[0]


def test_by_kernel(torchreel: Callable[..., Outcome], directory: Path) -> None:
    reel_of(directory / "run.reel", RUN)
    shown = torchreel("report", "run.reel", "--by", "kernel", "--limit", "3")
    assert (shown.code, shown.err) == (0, "")
    assert table(shown.out).endswith(
        "Name               Kind           Device %   Device      Min      Max  Average  # of Calls\n"
        "------------------ -------------- --------- -------- -------- -------- -------- ----------\n"
        "ampere_s16816gemm  compute          38.10%  4.000us  4.000us  4.000us  4.000us           1\n"
        "ncclAllReduce      communication    38.10%  4.000us  4.000us  4.000us  4.000us           1\n"
        "add                compute          19.05%  2.000us  1.000us  1.000us  1.000us           2\n"
        "These are 3 of 4 rows: --limit 0 shows all."
    )
    document = json.loads(torchreel("report", "run.reel", "--by", "kernel", "--format", "json", "--sort", "count").out)
    assert list(document) == ["summary", "step", "findings", "rows"]
    assert document["rows"][0] == {
        "name": "add",
        "kind": "compute",
        "calls": 2,
        "device_ns": 2000,
        "device_percent": 100 * 2000 / 10_500,
        "min_ns": 1000,
        "max_ns": 1000,
        "average_ns": 1000,
    }


def test_columns_of_devices(torchreel: Callable[..., Outcome], directory: Path) -> None:
    reel_of(directory / "run.reel", RUN)
    shown = torchreel("report", "run.reel", "--sort", "device")
    rows = [line.split() for line in shown.out.splitlines()]
    assert ["aten::mm", "1", "4.000us", "4.000us", "1"] in [[row[0], *row[-4:]] for row in rows if len(row) > 5]
    assert "torchreel gpu run.reel " in shown.out
    first = json.loads(torchreel("report", "run.reel", "--sort", "device", "--format", "json").out)["rows"][0]
    assert (first["name"], first["kernels"], first["self_device_ns"], first["device_ns"]) == ("aten::mm", 1, 4000, 4000)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("kernel,name",), "Kernels are grouped by their name alone: give --by kernel without another group."),
        (
            ("kernel", "--sort", "flops"),
            "Kernels have no flops to sort by: give one of self, total, device, count, average.",
        ),
        (("kernel", "--kind", "op"), "--kind chooses calls of the host: --by kernel has no use for it."),
    ],
)
def test_options_that_mean_nothing(
    torchreel: Callable[..., Outcome], directory: Path, options: tuple[str, ...], sentence: str
) -> None:
    reel_of(directory / "run.reel", RUN)
    assert torchreel("report", "run.reel", "--by", *options) == Outcome(1, "", f"Error: {sentence}\n")


def test_a_reel_of_a_cpu(torchreel: Callable[..., Outcome], plain_reel: Path) -> None:
    """It says what is missing, and how to record it."""
    shown = torchreel("report", str(plain_reel), "--by", "kernel")
    assert shown.code == 0 and "No activity of a device was recorded. To record it: torch.profiler" in shown.out
    assert json.loads(torchreel("report", str(plain_reel), "--by", "kernel", "--format", "json").out)["rows"] == []
    by_device = torchreel("report", str(plain_reel), "--sort", "device")
    assert by_device.out == torchreel("report", str(plain_reel)).out
    assert by_device.err.startswith("No activity of a device was recorded.")
    assert by_device.err.endswith("The rows are sorted by self time.\n")
