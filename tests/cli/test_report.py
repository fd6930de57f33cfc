"""`torchreel report`: whole outputs of small reels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.analyze.findings.steps import run_of
from tests.cli.conftest import Outcome
from tests.synthetic import Process, call, write_reel
from torchreel.analyze.time.averages import GROUPS, KINDS, SORTS
from torchreel.cli import report
from torchreel.cli.terminal.table import WIDTH_OF_A_FILE

Torchreel = Callable[..., Outcome]

PLAIN = """\
plain.reel: 4.000us, 2 ops on 1 thread of 1 process.
Of the recorded time: other ops 100%.

Name       Self CPU %  Self CPU  CPU total %  CPU total  CPU time avg  # of Calls
---------- ----------- --------- ------------ ---------- ------------- ----------
aten::add      75.00%   3.000us       75.00%    3.000us       3.000us           1
aten::mul      25.00%   1.000us       25.00%    1.000us       1.000us           1

Next: torchreel view plain.reel  timeline, flame graph, memory and source, in a browser
      torchreel sql plain.reel   the tables, for questions of your own
"""

FULL = """\
run.reel: 56.000us, 8 ops on 2 threads of 1 process, 1 step.
Peak memory: 96 B on cpu.

Name            Self CPU %  Self CPU  CPU total %  CPU total  CPU time avg  CPU Mem  Self CPU Mem  # of Calls  KFLOPs
--------------- ----------- --------- ------------ ---------- ------------- -------- ------------- ----------- ------
aten::mm            45.05%  50.000us       45.05%   50.000us      50.000us                                  1
aten::addmm         27.03%  30.000us       27.03%   30.000us      30.000us     64 B          64 B           1  48.000
aten::linear         9.01%  10.000us       36.04%   40.000us      40.000us     64 B           0 B           1
step                 7.21%   8.000us       49.55%   55.000us      55.000us     96 B           0 B           1
aten::relu           6.31%   7.000us        6.31%    7.000us       7.000us     32 B          32 B           1
AddmmBackward0       5.41%   6.000us       50.45%   56.000us      56.000us                                  1

Next: torchreel report run.reel --by inputs  by the shapes of the arguments
      torchreel report run.reel --by module  by nn.Module
      torchreel report run.reel --by line    by the line of your source
      torchreel view run.reel                timeline, flame graph, memory and source, in a browser
      torchreel sql run.reel                 the tables, for questions of your own
"""

BY_MODULE = """\
Module       Self CPU %  Self CPU  CPU total %  CPU total  CPU time avg  CPU Mem  Self CPU Mem  # of Calls  KFLOPs
------------ ----------- --------- ------------ ---------- ------------- -------- ------------- ----------- ------
Net.fc           87.39%  97.000us       87.39%   97.000us      97.000us     64 B          64 B           1  48.000
Net               8.11%   9.000us       95.50%  106.000us     106.000us     96 B          32 B           1
(no module)       4.50%   5.000us       49.55%   55.000us      55.000us     96 B           0 B           1
"""

BY_STACK = """\
                               Self CPU      Self  CPU total        CPU  CPU time   CPU  Self CPU   # of
Source Location                       %       CPU          %      total       avg   Mem       Mem  Calls  KFLOPs
------------------------------ --------- --------- ---------- ---------- --------- ----- --------- ------ ------
(no stack)                       57.66%  64.000us    100.00%  111.000us  37.000us  96 B       0 B      3
/src/model.py(5): Net.forward    42.34%  47.000us     42.34%   47.000us  15.667us  96 B      96 B      3  48.000
/src/train.py(10): main
"""

BY_INPUTS = """\
                Self CPU      Self  CPU total       CPU  CPU time   CPU  Self CPU   # of
Name                   %       CPU          %     total       avg   Mem       Mem  Calls  KFLOPs  Input Shapes
--------------- --------- --------- ---------- --------- --------- ----- --------- ------ ------- ---------------------
aten::mm          45.05%  50.000us     45.05%  50.000us  50.000us                      1          (no inputs)
aten::addmm       27.03%  30.000us     27.03%  30.000us  30.000us  64 B      64 B      1  48.000  [[4], [2, 3], [3, 4]]
aten::linear       9.01%  10.000us     36.04%  40.000us  40.000us  64 B       0 B      1          [[2, 3], [4, 3]]
step               7.21%   8.000us     49.55%  55.000us  55.000us  96 B       0 B      1          (no inputs)
aten::relu         6.31%   7.000us      6.31%   7.000us   7.000us  32 B      32 B      1          [[2, 4]]
AddmmBackward0     5.41%   6.000us     50.45%  56.000us  56.000us                      1          (no inputs)
"""

MARKDOWN = """\
| Name | Self CPU % | Self CPU | CPU total % | CPU total | CPU time avg | # of Calls |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
| aten::add | 75.00% | 3.000us | 75.00% | 3.000us | 3.000us | 1 |
| aten::mul | 25.00% | 1.000us | 25.00% | 1.000us | 1.000us | 1 |
"""

CSV = """\
name,kind,calls,self_ns,self_percent,total_ns,total_percent,average_ns,alloc_bytes,self_alloc_bytes,flops
aten::add,op,1,3000,75.0,3000,75.0,3000,,,
aten::mul,op,1,1000,25.0,1000,25.0,1000,,,
"""


def table(outcome: Outcome) -> str:
    """The part of the output between the summary and what to run next."""
    assert outcome.code == 0
    return outcome.out.split("\n\n")[1] + "\n"


def test_plain_reel(torchreel: Torchreel, plain_reel: Path) -> None:
    assert torchreel("report", "plain.reel") == Outcome(0, PLAIN, "")


def test_everything_recorded(torchreel: Torchreel, reel: Path) -> None:
    assert torchreel("report", "run.reel") == Outcome(0, FULL, "")


def test_by_module(torchreel: Torchreel, reel: Path) -> None:
    assert table(torchreel("report", "run.reel", "--by", "module")) == BY_MODULE


def test_by_stack(torchreel: Torchreel, reel: Path) -> None:
    assert table(torchreel("report", "run.reel", "--by", "stack", "--frames", "2")) == BY_STACK


def test_by_inputs_means_name_and_inputs(torchreel: Torchreel, reel: Path) -> None:
    assert table(torchreel("report", "run.reel", "--by", "inputs")) == BY_INPUTS
    assert table(torchreel("report", "run.reel", "--by", "name,inputs")) == BY_INPUTS
    assert table(torchreel("report", "run.reel", "--by", "name", "--by", "inputs")) == BY_INPUTS


def test_markdown(torchreel: Torchreel, plain_reel: Path) -> None:
    assert torchreel("report", "plain.reel", "--format", "markdown") == Outcome(0, MARKDOWN, "")


def test_csv(torchreel: Torchreel, plain_reel: Path) -> None:
    assert torchreel("report", "plain.reel", "--format", "csv", "--by", "name,kind") == Outcome(0, CSV, "")


def test_json_is_for_programs(torchreel: Torchreel, plain_reel: Path) -> None:
    result = json.loads(torchreel("report", "plain.reel", "--format", "json", "--sort", "count").out)
    recorded = {"shapes": False, "memory": False, "stacks": False, "modules": False, "counters": False}
    add = {"name": "aten::add", "calls": 1, "self_ns": 3000, "self_percent": 75.0, "total_ns": 3000}
    mul = {"name": "aten::mul", "calls": 1, "self_ns": 1000, "self_percent": 25.0, "total_ns": 1000}
    empty = {"alloc_bytes": None, "self_alloc_bytes": None, "flops": None}
    assert result == {
        "summary": {
            "reel": "plain.reel",
            "wall_ns": 4000,
            "ops": 2,
            "threads": 1,
            "steps": 0,
            "processes": 1,
            "incomplete_processes": [],
            "lost_events": 0,
            "peak_memory": [],
            "top_level_ns": {"op": 4000},
            "recorded": recorded,
        },
        "step": {
            "process": 0,
            "steps": 0,
            "wall_ns": 4000,
            "median_ns": 4000,
            "fastest_ns": 4000,
            "slowest_ns": 4000,
            "spread_ns": 0,
            "phase_ns": {"data": 0, "forward": 0, "backward": 0, "optimizer": 0, "other": 4000, "no_op": 0},
        },
        "findings": [],
        "rows": [
            {**add, "total_percent": 75.0, "average_ns": 3000, **empty},
            {**mul, "total_percent": 25.0, "average_ns": 1000, **empty},
        ],
    }


def test_limit_says_what_is_missing(torchreel: Torchreel, reel: Path) -> None:
    assert torchreel("report", "run.reel", "--limit", "2").out.count("aten::") == 2
    assert "These are 2 of 6 rows: --limit 0 shows all.\n" in torchreel("report", "run.reel", "--limit", "2").out
    assert "rows:" not in torchreel("report", "run.reel", "--limit", "0").out
    assert len(json.loads(torchreel("report", "run.reel", "--limit", "2", "--format", "json").out)["rows"]) == 2


def test_kinds(torchreel: Torchreel, reel: Path) -> None:
    names = [row["name"] for row in json.loads(torchreel("report", "run.reel", "--kind", "range,module", "--format", "json").out)["rows"]]  # fmt: skip  # noqa: E501
    assert sorted(names) == ["nn.Module: Linear", "nn.Module: Net", "step"]
    assert "There are no calls to show." in torchreel("report", "run.reel", "--kind", "lite").out


def test_a_broken_recording_is_said_in_sentences(torchreel: Torchreel, directory: Path) -> None:
    dead = Process({"main": [call("aten::add", 5)]}, name="host-2", pid=2, complete=False, lost_events=1200)
    write_reel(directory / "run.reel", Process({"main": []}), dead)
    assert torchreel("report", "run.reel").out.splitlines()[1:3] == [
        "Process host-2 did not close the recording: the last moments before the end may be missing.",
        "1,200 events could not be kept because the disk did not follow: counts and times are too low.",
    ]


def test_it_begins_with_a_step_and_what_would_save_most(torchreel: Torchreel, directory: Path) -> None:
    """The same step five times: 20 ms for data, 60 in a module, 20 in its backward."""
    step = [
        call("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20_000_000, kind="range"),
        call("nn.Module: Net", 0, call("aten::mm", 60_000_000), kind="module"),
        call("MmBackward0", 20_000_000, kind="backward"),
    ]
    run_of(directory / "run.reel", lambda number: step)
    assert torchreel("report", "run.reel", "--limit", "1").out.split("\n\n")[:2] == [
        "run.reel: 500.000ms, 20 ops on 1 thread of 1 process, 5 steps.\n"
        "A step takes 100.000ms (mean of 3): data 20%, forward 60%, backward 20%.",
        "What would save most of a step, at most:\n"
        "  20.0%  Waiting for data: A step waits 20 ms for its DataLoader, 20 % of its time: batches are made by the "
        "training\n"
        "         process itself. Give the DataLoader num_workers, so that batches are made beside the training.",
    ]


def test_nothing_recorded(torchreel: Torchreel, directory: Path) -> None:
    write_reel(directory / "run.reel", Process({"main": []}))
    assert "\nNo ops were recorded.\n" in torchreel("report", "run.reel").out


def test_names_are_shortened_and_numbers_are_not(torchreel: Torchreel, directory: Path) -> None:
    # GIVEN names with markup, colours and wide letters, longer than the table is wide
    names = ["[bold]x[/bold]\x1b[31m" + "n" * 200, "日本語" * 40]
    calls = [call(name, 10**12 - index) for index, name in enumerate(names)]
    write_reel(directory / "run.reel", Process({"main": calls}))
    # WHEN they are drawn, THEN each row fits, with an ellipsis, and no control character arrives
    lines = table(torchreel("report", "run.reel")).splitlines()
    assert [len(line) for line in lines[1:3]] == [WIDTH_OF_A_FILE, WIDTH_OF_A_FILE]
    assert lines[3].startswith("[bold]x[/bold]\\x1b[31mnnn")
    assert lines[4].startswith("日本語日本語")
    for line in lines[3:]:
        assert "…" in line
        assert line.split()[-6:] == ["50.00%", "1000.000s", "50.00%", "1000.000s", "1000.000s", "1"]


def test_the_words_are_those_of_averages() -> None:
    """They stand twice, so that --help need not import what averages needs."""
    assert set(report.BY) == {*GROUPS, "kernel"}
    assert tuple(SORTS) == report.SORT
    assert report.KINDS == KINDS
