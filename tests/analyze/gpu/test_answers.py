"""All answers at once: of a step, of a device, and of reels that lack what a question needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import torchreel
from tests.analyze.gpu.by_hand import START, call, kernel, reel_of
from tests.synthetic import Process, write_reel
from tests.synthetic import call as op
from torchreel.errors import OptionError

TABLES = [
    "devices",
    "streams",
    "launches",
    "copies",
    "collectives",
    "graphs",
    "idle",
    "kernels",
    "tensor_cores",
    "queue",
    "utilisation",
    "ranges",
    "sequences",
    "counters",
    "stragglers",
    "clocks",
]

NO_DEVICE = (
    "No activity of a device was recorded. To record it: torch.profiler.profile(activities=[ProfilerActivity.CPU, "
    "ProfilerActivity.CUDA]) around the steps, prof.export_chrome_trace('trace.json') after them, then "
    "'torchreel import trace.json -o run.reel'."
)
OF_CPU = "What is said below is of the CPU: when an operator ran, on whatever thread."
NO_STEPS = "No step was recorded: call prof.step() after each, then --step N answers for one of them."
NO_BLOCKS = "No kernel says its blocks per SM or its occupancy, which only CUDA's traces have."


def rows(answers: torchreel.analyze.gpu.answers.Gpu) -> dict[str, int]:
    """How many rows each table has, where there are any."""
    tables = {name: getattr(answers, name) for name in TABLES}
    assert all(isinstance(table, pa.Table) for table in tables.values())
    return {name: table.num_rows for name, table in tables.items() if table.num_rows}


def test_a_step_has_the_activities_that_were_launched_in_it(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path / "run.reel",
        {
            "steps": [{"step": 1, "start_ns": START, "end_ns": START + 20}, {"step": 2, "start_ns": START + 20}],
            "ops": [call(0, 2, step=1), call(10, 12, step=1), call(20, 22, step=2)],
            "kernels": [
                kernel(30, 40, launch=0, step=1),
                kernel(50, 60, launch=1, step=1, device="cuda:1"),
                kernel(70, 80, launch=2, step=2),
                kernel(0, 5),
            ],
        },
    )
    whole = torchreel.gpu(reel)
    assert [(row["device"], row["span_ns"]) for row in whole.devices.to_pylist()] == [("cuda:0", 80), ("cuda:1", 10)]
    of_step = torchreel.gpu(reel, step=1)
    assert [(row["device"], row["span_ns"]) for row in of_step.devices.to_pylist()] == [("cuda:0", 10), ("cuda:1", 10)]
    assert of_step.launches["pairs"].to_pylist() == [2]
    of_device = torchreel.gpu(reel, device="cuda:1")
    assert of_device.devices["span_ns"].to_pylist() == [10] and of_device.launches["pairs"].to_pylist() == [1]
    assert torchreel.gpu(reel, step=2, device="cuda:1").missing == ["No activity was launched there."]
    with pytest.raises(OptionError, match=r"has no step 3: it has steps 1 to 2\.$"):
        torchreel.gpu(reel, step=3)
    with pytest.raises(OptionError, match=r"has no device 'cuda:2': it has cuda:0, cuda:1\.$"):
        torchreel.gpu(reel, device="cuda:2")
    with pytest.raises(OptionError, match="A gap of -1 ns makes no sense"):
        torchreel.gpu(reel, gap_ns=-1)
    assert repr(whole).endswith("run.reel': 2 devices, 4 activities>")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path / "run.reel",
        {
            "processes": [{"complete": False}],
            "kernels": [kernel(0, 5), kernel(5, 9, kind="communication", name="nccl")],
        },
    )
    answers = torchreel.gpu(reel, gap_ns=0)
    assert answers.missing == [
        "The recording of host-0 ends early: what came after is not counted.",
        NO_STEPS,
        "2 activities of 2 have no launch in the recording: the time counts, but op, module and step are unknown. "
        "Record a step more before the first that matters (schedule(warmup=1)), and with ProfilerActivity.CPU.",
        NO_BLOCKS,
        "Of 1 of 1 communication kernel neither group nor bytes are recorded, so their bus bandwidth is unknown: "
        "newer versions of torch write them.",
        "One rank alone does not show who was late: 'torchreel import rank0.json rank1.json ... -o job.reel'.",
    ]
    assert set(rows(answers)) == {"devices", "streams", "collectives", "kernels", "tensor_cores", "queue"} | {
        "utilisation",
        "ranges",
    }
    assert torchreel.gpu(reel, step=4).missing == [NO_STEPS, "No activity was launched there."]


def test_a_reel_of_a_cpu(tmp_path: Path) -> None:
    """main: 10-30 mm in a module, 40-45 c10d in a range; other: 0-12 add. Idle from 30 to 40."""
    path = write_reel(
        tmp_path / "run.reel",
        Process(
            {
                "main": [
                    op("nn.Module: Net", 10, op("aten::mm", 20), kind="module"),
                    op("range", 10, op("c10d::allreduce_", 5), kind="range"),
                ],
                "other": [op("aten::add", 12)],
            },
            rank=2,
        ),
    )
    answers = torchreel.gpu(torchreel.load(path))
    assert answers.missing == [NO_DEVICE, OF_CPU] and answers.of_cpu
    assert rows(answers) == {"devices": 1}
    (row,) = answers.devices.to_pylist()
    names = ("rank", "device", "span_ns", "busy_ns", "idle_ns", "compute_ns", "exposed_communication_ns", "overlap_ns")
    # A call's children begin with it here: mm 0-20, c10d 30-35, add 0-12.
    assert tuple(row[name] for name in names) == (2, "cpu", 35, 25, 10, 20, 5, 0)
    assert torchreel.gpu(torchreel.load(path), step=0).missing == [NO_DEVICE, OF_CPU, NO_STEPS]


def test_an_empty_reel(tmp_path: Path) -> None:
    for reel in (reel_of(tmp_path / "none.reel"), reel_of(tmp_path / "one.reel", {})):
        answers = torchreel.gpu(reel)
        assert rows(answers) == {} and answers.missing == [NO_DEVICE]


def test_asking_needs_no_torch(tmp_path: Path) -> None:
    reel_of(tmp_path / "run.reel", {"kernels": [kernel(0, 5)]})
    script = (
        "import sys, torchreel; torchreel.gpu(torchreel.load('run.reel')).devices; assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path).returncode == 0
