"""`torchreel memory`: whole outputs of small histories, and what a person is told where there is little to tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.analyze.memory.traces import BACKWARD_CALL, MODULE_CALL, STEP_CALL, Trace, user
from tests.cli.conftest import Outcome
from tests.snapshots import SNAPSHOTS, snapshot
from torchreel.analyze.memory.model.device import GROUPS
from torchreel.cli.memory import command as memory

Torchreel = Callable[..., Outcome]

MIB = 1 << 20
FORWARD = (user(12, "forward", "/home/user/model.py"), MODULE_CALL, user(30))
BACKWARD = (BACKWARD_CALL, user(31))
STEP = (STEP_CALL, user(32))
ADAM = "Optimizer.step#Adam.step"


def trained(trace: Trace, leak: bool = False) -> Trace:
    """Eight steps of a training on a GPU, with its final state."""
    trace.event("segment_alloc", 0, 60 * MIB)
    trace.alloc(0, 8 * MIB, user(3, "__init__", "/home/user/model.py"), user(20))
    for step in range(8):
        trace.alloc(8 * MIB, 16 * MIB, *FORWARD)
        if leak:
            trace.alloc((100 + step) * MIB, MIB, user(40, "keep"))
        trace.alloc(24 * MIB, 8 * MIB, *BACKWARD)
        trace.free(8 * MIB, 16 * MIB)
        trace.annotate(ADAM, "START")
        if step == 0:
            trace.alloc(32 * MIB, 16 * MIB, *STEP)
        trace.alloc(48 * MIB, 1024, *STEP)
        trace.free(48 * MIB, 1024)
        trace.annotate(ADAM, "END")
        trace.alloc(48 * MIB, 4, user(33))
        trace.free(48 * MIB, 4)
        trace.free(24 * MIB, 8 * MIB)
    trace.segment(
        0,
        60 * MIB,
        *(
            (8 * MIB, "active_allocated"),
            (24 * MIB, "inactive"),
            (16 * MIB, "active_allocated"),
            (12 * MIB, "inactive"),
        ),
    )
    if leak:
        for step in range(8):
            trace.block((100 + step) * MIB, MIB)
    return trace


WHOLE = """\
run.reel: cuda:0
34 allocs in 98.000us, 8 steps (ends of Optimizer.step#Adam.step). Bytes are those that the program asked for.
                               Bytes        At  Step  Where
-------------------------- ---------- --------- ----- ---------------------
Peak allocated and active  48.00 MiB  16.000us     1  backward
                                                      user/train.py:31 main
Peak reserved              60.00 MiB   0.000us     0

Who holds the peak: 48.00 MiB in 4 blocks
By category: optimizer state 16.00 MiB (33 %), activation 16.00 MiB (33 %), parameter 8.00 MiB (17 %), gradient 8.00 MiB
(17 %).
    Bytes  Share  Blocks    Largest  Category         Line
---------- ------ ------- ---------- ---------------- ------------------------
16.00 MiB  33.3%       1  16.00 MiB  activation       user/model.py:12 forward
16.00 MiB  33.3%       1  16.00 MiB  optimizer state  user/train.py:32 main
 8.00 MiB  16.7%       1   8.00 MiB  parameter        user/model.py:3 __init__
 8.00 MiB  16.7%       1   8.00 MiB  gradient         user/train.py:31 main

Fragmentation at the end
Of 60.00 MiB reserved in 1 segment, 36.00 MiB or 60 % is unused: 36.00 MiB split (between blocks that live), 0 B cached
(could be returned). The largest free piece is 24.00 MiB; rounding takes 0 B.
While 60.00 MiB were reserved, the most, up to 48.00 MiB were allocated.
1 segment that is mostly empty cannot be returned because of a few blocks; they pin 36.00 MiB (below). Make these blocks
before the large ones, or free them earlier.
Expandable segments return free memory page by page: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may help, and
'torchreel simulate' tells by how much (below).
   Pinned  Segments  Blocks  Their bytes  Line
---------- --------- ------- ------------ ------------------------
24.00 MiB         1       1    16.00 MiB  user/train.py:32 main
12.00 MiB         1       1     8.00 MiB  user/model.py:3 __init__

Leaks
None: no line has more and more blocks over 6 steps (ends of Optimizer.step#Adam.step) after the first two.

Spikes: short-lived blocks above the level around them
Without spikes the peak would be 32.00 MiB, 16.00 MiB lower.
    Above    Reaches        At  Step    Lasts  Times  Line
---------- ---------- --------- ----- -------- ------ ------------------------
16.00 MiB   the peak  16.000us     1  2.000us      8  user/model.py:12 forward
 8.00 MiB  32.00 MiB   7.000us     0  7.000us      1  user/train.py:32 main

Next: torchreel memory run.reel --by category                      what it is for
      torchreel memory run.reel --by module                        by nn.Module
      torchreel simulate run.reel --conf expandable_segments:True  what these would reserve
      torchreel simulate run.reel --sweep                          which settings would need less
"""


def stripped(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def test_a_training(torchreel: Torchreel, directory: Path) -> None:
    trained(Trace()).write(directory / "run.reel")
    outcome = torchreel("memory", "run.reel")
    assert (outcome.code, outcome.err) == (0, "")
    assert stripped(outcome.out) == WHOLE


def test_a_leak_comes_first(torchreel: Torchreel, directory: Path) -> None:
    trained(Trace(), leak=True).write(directory / "run.reel")
    out = torchreel("memory", "run.reel").out
    assert "Memory grows by 1.00 MiB in each step, over 6 steps" in out
    assert out.index("user/train.py:40 keep") < out.index("Who holds the peak")


def test_json_is_for_programs(torchreel: Torchreel, directory: Path) -> None:
    trained(Trace()).write(directory / "run.reel")
    result = json.loads(torchreel("memory", "run.reel", "--format", "json", "--by", "category").out)
    assert list(result) == ["source", "by", "devices"]
    (device,) = result["devices"]
    assert list(device) == [
        *("process", "process_name", "device", "history", "events", "allocs", "lost_events", "unknown_frees", "note"),
        *("duration_ns", "steps", "steps_source", "final_allocated", "final_blocks", "held", "held_blocks"),
        *("older_blocks", "older_bytes", "has_stacks", "has_backward", "by", "settings", "without_spikes", "peak"),
        *("holders", "categories", "out_of_memory", "fragmentation", "leaks", "spikes"),
    ]
    peak = device["peak"]["allocated"]
    assert (peak["bytes"], peak["event"], peak["since_start_ns"], peak["step"]) == (48 * MIB, 16, 16_000, 1)
    assert device["peak"]["reserved"]["bytes"] == device["fragmentation"]["reserved"] == 60 * MIB
    assert [row["name"] for row in device["holders"]] == ["optimizer_state", "activation", "parameter", "gradient"]
    assert device["leaks"] == {"verdict": "none", "steps": 6, "steps_source": f"ends of {ADAM}", "growing": []}


def test_csv_has_the_holders(torchreel: Torchreel, directory: Path) -> None:
    trained(Trace()).write(directory / "run.reel")
    assert torchreel("memory", "run.reel", "--format", "csv", "--limit", "1").out == (
        "process,device,name,bytes,percent,blocks,largest,categories\n"
        "host-1,cuda:0,user/model.py:12 forward,16777216,33.333333333333336,1,16777216,activation\n"
    )


def test_markdown(torchreel: Torchreel, directory: Path) -> None:
    trained(Trace()).write(directory / "run.reel")
    out = torchreel("memory", "run.reel", "--format", "markdown", "--limit", "2").out
    assert out.startswith("### run.reel: cuda:0\n\n34 allocs in ")
    assert "| 16.00 MiB | 33.3% | 1 | 16.00 MiB | activation | user/model.py:12 forward |\n" in out
    assert "### Who holds the peak: 48.00 MiB in 4 blocks; the first 2 of 4 lines\n" in out


@pytest.mark.parametrize("by", GROUPS)
def test_every_grouping(torchreel: Torchreel, directory: Path, by: str) -> None:
    trained(Trace()).write(directory / "run.reel")
    assert torchreel("memory", "run.reel", "--by", by).code == 0
    assert memory.BY == GROUPS


def test_modules_and_ops_that_are_not_known_are_said_to_be_so(torchreel: Torchreel, directory: Path) -> None:
    trained(Trace()).write(directory / "run.reel")
    assert "Modules are not known here: record with --modules." in torchreel("memory", "run.reel", "--by", "module").out
    assert "Ops are not known here: record with stacks='all'" in torchreel("memory", "run.reel", "--by", "op").out


def test_no_stacks(torchreel: Torchreel, directory: Path) -> None:
    trace = Trace("cpu")
    trace.alloc(0, 100)
    trace.write(directory / "run.reel")
    out = torchreel("memory", "run.reel").out
    assert "No stacks were recorded, so lines are not known: record with --stacks" in out
    assert "Peak reserved               none           the system's allocator reserves nothing" in out
    assert "None: the system's allocator has no segments that blocks could split." in out
    assert "what a GPU's allocator would reserve for it" in out


def test_no_memory_recorded(torchreel: Torchreel, plain_reel: Path) -> None:
    outcome = torchreel("memory", "plain.reel")
    assert outcome.code == 0
    assert outcome.out.startswith("No memory was recorded in plain.reel.\nNext: torchreel record --memory ")
    assert json.loads(torchreel("memory", "plain.reel", "--format", "json").out)["devices"] == []


def test_pain_megatron_bridge_3487_an_empty_history_is_said_to_be_one(torchreel: Torchreel) -> None:
    for name in ("state_only_a", "state_only_c", "state_only_max_split"):
        outcome = torchreel("memory", str(snapshot(name)))
        assert outcome.code == 0
        assert "There is no usable history of allocs, only the final state" in outcome.out
        assert "torch.cuda.memory._record_memory_history() before the part of interest" in outcome.out
        assert "Fragmentation at the end\nOf " in outcome.out
    # the blocks of this one have frames
    assert "pytorch_backend.py:195 allocate" in torchreel("memory", str(snapshot("state_only_a"))).out


def test_several_devices(torchreel: Torchreel) -> None:
    path = str(snapshot("three_gpus_expandable_oom"))
    outcome = torchreel("memory", path)
    assert [line.split()[0] for line in outcome.out.splitlines()[2:5]] == ["cuda:1", "cuda:2", "cuda:0"]
    assert "\nOut of memory\nAt 2.734s: 4.94 GiB were asked for by train/models.py:181 update_nodes;" in outcome.out
    assert f"{path}: cuda:2" in torchreel("memory", path, "--device", "cuda:2").out
    every = torchreel("memory", path, "--device", "cuda").out
    assert all(f"{path}: cuda:{number}" in every for number in range(3))


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    "form", ["table", *(pytest.param(form, marks=pytest.mark.long) for form in ("json", "markdown", "csv"))]
)
def test_every_real_snapshot(torchreel: Torchreel, path: Path, form: str) -> None:
    outcome = torchreel("memory", str(path), "--format", form)
    assert (outcome.code, outcome.err) == (0, "")
    if form == "json":
        json.loads(outcome.out)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("memory", "run.reel", "--device", "cuda:9"), 1, "run.reel has no device 'cuda:9': it has cuda:0."),
        (("memory", "run.reel", "--process", "x"), 1, "run.reel has no process 'x' with memory: it has host-1."),
        (("memory", "nothing.pickle"), 1, "There is no reel and no memory snapshot at nothing.pickle"),
        (("memory", "words.txt"), 1, "words.txt"),
        (("memory", "."), 1, "is not a reel"),
        (("memory", "run.reel", "--by", "colour"), 2, "'colour' is not one of"),
        (("memory", "run.reel", "--limit", "-1"), 2, "-1 is not in the range"),
        (("memory",), 2, "Missing argument 'SOURCE'"),
    ],
)
def test_mistakes_are_sentences(
    torchreel: Torchreel, directory: Path, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    trained(Trace()).write(directory / "run.reel")
    (directory / "words.txt").write_text("these are words")
    outcome = torchreel(*arguments)
    assert outcome.code == code
    assert sentence in outcome.err
    assert "Traceback" not in outcome.err and "fault" not in outcome.err


def test_names_that_would_move_the_cursor(torchreel: Torchreel, directory: Path) -> None:
    trace = Trace("cpu\x1b[2J")
    trace.alloc(0, 100, user(1, "f\x1b[31m[bold]", "/x/\x07y.py"))
    trace.write(directory / "run.reel")
    out = torchreel("memory", "run.reel").out + torchreel("memory", "run.reel", "--format", "markdown").out
    assert "\x1b" not in out and "\x07" not in out
    assert "[bold]" in out
