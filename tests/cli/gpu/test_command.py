"""`torchreel gpu`: the screen and the JSON, whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.analyze.gpu.by_hand import START, call, collective, kernel, reel_of
from tests.cli.conftest import Outcome

RUN = {
    "processes": [{"rank": 3}],
    "devices": [{"device": "cuda:0", "model": "NVIDIA A100"}],
    "steps": [
        {"step": 1, "start_ns": START, "end_ns": START + 9_000},
        {"step": 2, "start_ns": START + 9_000, "end_ns": START + 40_000},
    ],
    "threads": [{"os_id": 1, "torch_id": 1, "name": "main"}],
    "ops": [
        call(0, 9_000, "aten::mm", "op", step=1),
        call(1_000, 3_000, parent=0, step=1),
        call(9_000, 40_000, "aten::add", "op", step=2),
        call(30_000, 31_000, parent=2, step=2),
        call(31_000, 32_000, "cudaGraphLaunch", parent=2, step=2),
    ],
    "process_groups": [{"name": "world", "size": 8}],
    "collectives": [collective("allreduce", 6_000, 10_000, bytes=8_000, seq=0, kernel=1)],
    "kernels": [
        kernel(4_000, 8_000, name="ampere_s16816gemm", launch=1, op=0, step=1, occupancy=25.0, blocks_per_sm=0.5),
        kernel(6_000, 10_000, name="ncclAllReduce", kind="communication", stream=9, collective=0),
        kernel(10_000, 10_500, name="Memcpy HtoD", kind="copy", stream=9, direction="HtoD", bytes=5_000),
        kernel(35_000, 36_000, name="add", launch=3, op=2, step=2),
        kernel(36_000, 37_000, name="add", launch=4, op=2, step=2),
    ],
}

SCREEN = """\
run.reel: where the time of cuda:0 (NVIDIA A100) of rank 3 went
25.8 % of 33.000us busy, 50 % of communication behind compute.
                                               Exposed         Exposed                                      SM  Tensor
Rank  Device      Span         Compute   communication          memory             Idle  Occupancy  efficiency   cores
----- ------- --------- --------------- --------------- --------------- ---------------- ---------- ----------- ------
   3  cuda:0  33.000us  6.000us 18.2 %  2.000us 6.06 %  0.500us 1.52 %  24.500us 74.2 %       25 %      6.06 %    40 %

Why idle: 24.500us
launch bound 100 %.
    Idle   Share  Cause         Op
--------- ------- ------------- ---------
24.500us  100.0%  launch bound  aten::add

Critical path: 40.000us
On the path  Share  What
------------ ------ ---------
   31.000us  77.5%  aten::add
    9.000us  22.5%  aten::mm

Kernels
   Time  Share  Calls  Average  Kind           Name
-------- ------ ------ -------- -------------- -----------------
4.000us  38.1%      1  4.000us  compute        ampere_s16816gemm
4.000us  38.1%      1  4.000us  communication  ncclAllReduce
2.000us  19.0%      2  1.000us  compute        add
0.500us   4.8%      1  0.500us  copy           Memcpy HtoD

Streams
Stream  Activities     Busy      Idle  by the host  back to back    other  Longest queue
------- ----------- -------- --------- ------------ ------------- -------- -------------
7                3  6.000us  27.000us     27.000us       0.000us  0.000us              1
9                2  4.500us   0.000us      0.000us       0.000us  0.000us              0

Launches
2 launches took 3.000us of the host for 5.000us of devices; 0 % of the activities are shorter than the call that
launched them. From the end of a call to its activity: 1.000us in the median.

Collectives
Name       Group  Count     Bytes     Time  Exposed  Bus GB/s
---------- ------ ------ --------- -------- -------- --------
allreduce  world      1  7.81 KiB  4.000us  2.000us       3.5

Copies
Direction  Count     Bytes     Time  GB/s
---------- ------ --------- -------- ----
HtoD           1  4.88 KiB  0.500us  10.0

Graphs
1 launch of graphs ran 1 activity.

Replayed graphs
0 of 1 activity of 1 replay of graphs were attributed to captured launches.
The capture of the graph is not in the recording: record it with torch.profiler as well, and import both files into one
reel.

What the recording lacks
2 activities of 5 have no launch in the recording: the time counts, but op, module and step are unknown. Record a step
more before the first that matters (schedule(warmup=1)), and with ProfilerActivity.CPU.
One rank alone does not show who was late: 'torchreel import rank0.json rank1.json ... -o job.reel'.
The trace has no synchronisation events, so the path does not know which streams waited for each other: it guesses that
a kernel did if it began right after one of another stream. To know it, give torch.profiler the experimental option
enable_cuda_sync_events=True.

Next: torchreel report run.reel --by kernel                all kernels
      torchreel report run.reel --by module --sort device  by nn.Module: what its calls launched
      torchreel gpu run.reel --if 'gemm=2x'                what faster kernels, ops or modules would gain
      torchreel gpu run.reel --step 2                      one step
      torchreel view run.reel                              the timeline, in a browser
"""


def test_the_screen(torchreel: Callable[..., Outcome], directory: Path) -> None:
    reel_of(directory / "run.reel", RUN)
    assert torchreel("gpu", "run.reel") == Outcome(0, SCREEN, "")


# The names that programs rely on.
KEYS = {
    "devices": "process rank device model span_ns busy_ns idle_ns compute_ns communication_ns memory_ns"
    " exposed_communication_ns exposed_memory_ns overlap_ns occupancy_percent sm_efficiency_percent",
    "streams": "process device stream activities busy_ns idle_ns idle_host_ns idle_back_to_back_ns idle_other_ns"
    " queue_max",
    "launches": "process pairs call_ns kernel_ns delay_ns delay_median_ns shorter_than_call before_call",
    "copies": "direction count bytes ns",
    "collectives": "name group count bytes ns exposed_ns bus_gbps",
    "graphs": "process launches activities",
    "idle": "cause ns op line",
    "critical_path": "what ns percent",
    "what_if": "process kernels calls before_ns after_ns saved_ns percent speedup refused",
}


def test_the_names_of_the_json(torchreel: Callable[..., Outcome], directory: Path) -> None:
    reel_of(directory / "run.reel", RUN)
    outcome = torchreel("gpu", "run.reel", "--format", "json", "--if", "gemm=2x")
    assert (outcome.code, outcome.err) == (0, "")
    document = json.loads(outcome.out)
    assert list(document) == [*KEYS, "modules", "lines", "roofline", "replays", "mfu", "missing"]
    assert {name: " ".join(document[name][0]) for name in KEYS} == KEYS
    assert document["devices"][0]["idle_ns"] == 24_500 and document["idle"][0]["ns"] == 24_500


def test_options_choose_what_is_shown(torchreel: Callable[..., Outcome], directory: Path) -> None:
    reel_of(directory / "run.reel", RUN)
    of_step = torchreel("gpu", "run.reel", "--step", "2", "--device", "cuda:0", "--limit", "1")
    assert of_step.out.startswith(
        "run.reel: where the time of cuda:0 (NVIDIA A100) of rank 3 went, what was launched in step 2\n"
        "100 % of 2.000us busy.\n"
    )
    assert "Kernels: 1 of 4 names\n" in torchreel("gpu", "run.reel", "--limit", "1").out
    few = json.loads(torchreel("gpu", "run.reel", "--gap", "0 ns", "--format", "json").out)
    assert few["streams"][0]["idle_back_to_back_ns"] == 0


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (("--step", "9"), 1, "Error: run.reel has no step 9: it has steps 1 to 2.\n"),
        (("--device", "cuda:1"), 1, "Error: run.reel has no device 'cuda:1': it has cuda:0.\n"),
        (("--gap", "30"), 2, "'30' is no time: give a whole number and its unit, as in 30us.\n"),
        (("--gap", "-1us"), 2, "'-1us' is no time: give a whole number and its unit, as in 30us.\n"),
        (("--format", "csv"), 2, "'csv' is not one of 'table', 'json'.\n"),
    ],
)
def test_wrong_options(
    torchreel: Callable[..., Outcome], directory: Path, options: tuple[str, ...], code: int, sentence: str
) -> None:
    reel_of(directory / "run.reel", RUN)
    outcome = torchreel("gpu", "run.reel", *options)
    assert (outcome.code, outcome.out) == (code, "") and outcome.err.endswith(sentence)


def test_a_reel_of_a_cpu(torchreel: Callable[..., Outcome], plain_reel: Path) -> None:
    assert torchreel("gpu", str(plain_reel)) == Outcome(
        0,
        "No activity of a device was recorded. To record it: torch.profiler.profile(activities=[ProfilerActivity.CPU,\n"
        "ProfilerActivity.CUDA]) around the steps, prof.export_chrome_trace('trace.json') after them, then "
        "'torchreel import\ntrace.json -o run.reel'.\n"
        "What is said below is of the CPU: when an operator ran, on whatever thread.\n"
        "\n"
        "plain.reel: where the time of cpu went\n"
        "100 % of 4.000us busy.\n"
        "Device     Span         Compute            Idle\n"
        "------- -------- --------------- --------------\n"
        "cpu     4.000us  4.000us  100 %  0.000us    0 %\n"
        "\n"
        "Next: torchreel report plain.reel  where the time of the CPU went\n",
        "",
    )


def test_an_empty_reel(torchreel: Callable[..., Outcome], directory: Path) -> None:
    reel_of(directory / "run.reel")
    outcome = torchreel("gpu", "run.reel")
    assert outcome.code == 0 and outcome.out.startswith("No activity of a device was recorded.")
    document = json.loads(torchreel("gpu", "run.reel", "--format", "json").out)
    assert {name for name, rows in document.items() if rows} == {"missing"}


def test_what_if(torchreel: Callable[..., Outcome], directory: Path) -> None:
    """The second launch begins at 9 + 22 / 2 = 20 us, its kernel 5 us later, as before, and takes 0.5 us."""
    reel_of(directory / "run.reel", RUN)
    assert torchreel("gpu", "run.reel", "--if", "aten::add=2x").out.startswith(
        "If aten::add 2 times faster\n"
        "40.000us would become 25.500us: 36.2 % less, 1.569 times as fast; 2 kernels and 3 calls found.\n\n"
    )
    assert torchreel("gpu", "run.reel", "--if", "gemm") == Outcome(
        1,
        "",
        "Error: 'gemm' cannot be read: give an expression and how many times faster, as in 'gemm=2x'.\n",
    )
