from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome
from tests.cli.simulate.cut_snapshot import FIRST, MIB, SECOND, event, events, write
from tests.snapshots import SNAPSHOTS, snapshot

Run = Callable[..., Outcome]


@pytest.fixture
def cut(directory: Path) -> str:
    return str(write(directory / "cut.json").relative_to(directory))


def test_the_recorded_run_stands_beside_the_simulated_one(torchreel: Run, cut: str) -> None:
    outcome = torchreel("simulate", cut, "--conf", "expandable_segments:True")
    assert outcome.code == 0
    assert outcome.out == (
        "cuda:0                        recorded  simulated\n"
        "----------------------------- --------- ---------\n"
        "peak reserved                  640 MiB    440 MiB\n"
        "tensors at their peak          440 MiB    440 MiB\n"
        "their blocks, rounded up                  440 MiB\n"
        "unused when most is reserved     31.2%       0.0%\n"
        "retries                                         0\n"
        "out of memory                       no         no\n"
        "\n"
        "With expandable_segments:True it reserves 440 MiB at its peak: 200 MiB (31.2%) less than with the recorded "
        "setting.\n"
        "\n"
        "Next: torchreel simulate cut.json --sweep  which setting would be best\n"
    )


def test_without_another_setting_the_recorded_one_is_simulated(torchreel: Run, cut: str) -> None:
    outcome = torchreel("simulate", cut)
    assert "With PyTorch's default, as it was recorded, the run reserves 640 MiB at its peak." in outcome.out


def test_a_device_that_is_too_small_is_named_with_the_line_that_fails(torchreel: Run, cut: str) -> None:
    outcome = torchreel("simulate", cut, "--capacity", "500MiB")
    assert outcome.code == 0
    assert (
        "The run does not fit in the memory of 500 MiB with PyTorch's default: a request of 320 MiB fails at "
        "src/train.py:33\nmain, when 320 MiB are reserved.\n"
    ) in outcome.out
    found = json.loads(torchreel("simulate", cut, "--capacity", "500MiB", "--format", "json").out)["cuda:0"]
    assert found["simulated"]["first_oom"] == {
        "event": 6,
        "size": 320 * MIB,
        "reserved": 320 * MIB,
        "line": "src/train.py:33 main",
    }
    assert found["simulated"]["ooms"] == 1
    assert found["recorded"]["ooms"] == 0


def test_a_device_that_is_large_enough(torchreel: Run, cut: str) -> None:
    outcome = torchreel("simulate", cut, "--capacity", "1GiB")
    assert (
        "The run fits in 1 GiB. With PyTorch's default it reserves 640 MiB at its peak: as much as with the recorded "
        "setting." in " ".join(outcome.out.split())
    )


def test_other_forms(torchreel: Run, cut: str) -> None:
    document = json.loads(torchreel("simulate", cut, "--conf", "max_split_size_mb:20", "--format", "json").out)
    assert list(document) == ["cuda:0"]
    assert list(document["cuda:0"]) == ["recorded", "as_recorded", "simulated", "sentences", "notes"]
    assert document["cuda:0"]["recorded"] == {
        "conf": "",
        "peak_reserved": 640 * MIB,
        "peak_requested": 440 * MIB,
        "fragmentation": 0.3125,
        "ooms": 0,
    }
    assert document["cuda:0"]["simulated"]["conf"] == "max_split_size_mb:20"
    assert document["cuda:0"]["simulated"]["peak_reserved"] == 440 * MIB
    rows = list(csv.DictReader(io.StringIO(torchreel("simulate", cut, "--format", "csv").out)))
    assert [(row["run"], row["peak_reserved"]) for row in rows] == [
        ("recorded", str(640 * MIB)),
        ("as_recorded", str(640 * MIB)),
        ("simulated", str(640 * MIB)),
    ]
    markdown = torchreel("simulate", cut, "--format", "markdown").out
    assert markdown.splitlines()[:3] == [
        "| cuda:0 | recorded | simulated |",
        "| --- | ---: | ---: |",
        "| peak reserved | 640 MiB | 640 MiB |",
    ]


def test_an_option_that_does_nothing_is_said_to(torchreel: Run, cut: str) -> None:
    outcome = torchreel("simulate", cut, "--conf", "garbage_collection_threshold:0.8")
    assert "garbage_collection_threshold does nothing here" in outcome.out
    limited = ("--capacity", "1GiB", "--fraction", "0.9")
    outcome = torchreel("simulate", cut, "--conf", "garbage_collection_threshold:0.8", *limited)
    assert "does nothing" not in outcome.out
    outcome = torchreel("simulate", cut, "--conf", "max_non_split_rounding_mb:64")
    assert "max_non_split_rounding_mb does nothing here" in outcome.out


def test_the_sweep_ends_with_the_line_to_use(torchreel: Run, cut: str) -> None:
    outcome = torchreel("simulate", cut, "--sweep")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert "Setting" in lines[1]
    assert any(line.startswith("(default) <- current") for line in lines)
    assert lines[-1].startswith("PYTORCH_CUDA_ALLOC_CONF=")
    assert "the run would reserve 440 MiB at its peak instead of 640 MiB: 200 MiB less (31.2%)." in outcome.out
    assert outcome.err == ""


def test_the_sweep_of_a_small_device(torchreel: Run, cut: str) -> None:
    outcome = torchreel("simulate", cut, "--sweep", "--capacity", "500MiB")
    assert "The run does not fit in 500 MiB with PyTorch's default." in outcome.out
    assert "The smallest device on which it fits has 440 MiB for the allocator" in outcome.out
    document = json.loads(torchreel("simulate", cut, "--sweep", "--capacity", "500MiB", "--format", "json").out)
    assert list(document) == ["capacity", "needed", "settings", "smallest", "advice"]
    assert document["capacity"] == 500 * MIB
    assert document["needed"] == 440 * MIB
    assert document["smallest"]["capacity"] == 440 * MIB
    assert document["advice"]["line"] == f"PYTORCH_CUDA_ALLOC_CONF={document['advice']['conf']}"
    assert {row["conf"]: row["fits"] for row in document["settings"]}[""] is False


def test_the_sweep_in_other_forms(torchreel: Run, cut: str) -> None:
    rows = list(csv.DictReader(io.StringIO(torchreel("simulate", cut, "--sweep", "--format", "csv").out)))
    assert rows[0]["peak_reserved"] == str(440 * MIB)
    assert [row["conf"] for row in rows if row["current"] == "True"] == [""]
    assert torchreel("simulate", cut, "--sweep", "--format", "markdown").out.startswith("| Setting | Peak reserved |")


def test_a_run_that_failed_leads_to_the_question_of_its_device(torchreel: Run, directory: Path) -> None:
    failed = {**event("oom", 0, 320, 34), "device_free": 100 * MIB}
    del failed["addr"]
    write(directory / "failed.json", device_traces=[[*events(), failed]])
    outcome = torchreel("simulate", "failed.json", "--sweep")
    assert (
        "The recorded run ran out of memory on cuda:0, where its allocator had 740 MiB: --capacity 740MiB tells which "
        "settings would have fitted there." in " ".join(outcome.out.split())
    )


def test_verify_says_what_came_out(torchreel: Run, cut: str) -> None:
    outcome = torchreel("simulate", cut, "--verify")
    assert outcome.code == 0
    assert " ".join(outcome.out.split()) == (
        "cuda:0: 3 of 3 allocations at their recorded addresses, 2 of 2 segment events, peak reserved 640 MiB as "
        "recorded; history complete."
    )


def test_verify_for_programs(torchreel: Run, cut: str) -> None:
    outcome = torchreel("simulate", cut, "--verify", "--format", "json")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert list(found) == ["cuda:0"]
    assert list(found["cuda:0"].items())[:4] == [
        ("allocs", {"matched": 3, "total": 3}),
        ("segment_events", {"matched": 2, "total": 2}),
        ("peak_reserved", {"recorded": 640 * MIB, "simulated": 640 * MIB}),
        ("history", "complete"),
    ]
    rows = list(csv.DictReader(io.StringIO(torchreel("simulate", cut, "--verify", "--format", "csv").out)))
    assert rows[0]["allocs_matched"] == "3"
    assert "| cuda:0 | 3 of 3 | 2 of 2 |" in torchreel("simulate", cut, "--verify", "--format", "markdown").out


def test_verify_names_the_first_difference(torchreel: Run, directory: Path) -> None:
    write(directory / "wrong.json", device_traces=[events(last=SECOND + 512)])
    outcome = torchreel("simulate", "wrong.json", "--verify")
    assert outcome.code == 1
    assert "cuda:0: 2 of 3 allocations at their recorded addresses" in outcome.out
    assert "The first difference is at event " in outcome.out
    assert json.loads(torchreel("simulate", "wrong.json", "--verify", "--format", "json").out)["cuda:0"]["mismatch"]


def test_a_snapshot_without_a_history_cannot_be_verified(torchreel: Run, directory: Path) -> None:
    write(directory / "state.json", device_traces=[[]])
    outcome = torchreel("simulate", "state.json", "--verify", "--format", "json")
    assert outcome.code == 1
    found = json.loads(outcome.out)["cuda:0"]
    assert found["history"] == "none"
    assert found["allocs"] == {"matched": 0, "total": 0}
    assert "There is no history to verify" in outcome.err
    assert "_record_memory_history()" in outcome.err
    for options in ((), ("--sweep",)):
        outcome = torchreel("simulate", "state.json", *options)
        assert outcome.code == 1
        assert "state.json holds no history, only the state at one moment" in outcome.err


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.stem)
def test_real_snapshots_are_verified(torchreel: Run, path: Path) -> None:
    outcome = torchreel("simulate", str(path), "--verify", "--format", "json")
    found = json.loads(outcome.out)
    assert outcome.code == (1 if all(device["history"] == "none" for device in found.values()) else 0)
    for device in found.values():
        assert device["allocs"]["matched"] == device["allocs"]["total"]
        assert device["segment_events"]["matched"] == device["segment_events"]["total"]


def test_one_device_of_several(torchreel: Run) -> None:
    path = str(snapshot("three_gpus_expandable_oom"))
    assert list(json.loads(torchreel("simulate", path, "--verify", "--device", "cuda:1", "--format", "json").out)) == [
        "cuda:1"
    ]
    assert list(json.loads(torchreel("simulate", path, "--device", "cuda:2", "--format", "json").out)) == ["cuda:2"]
    assert "These are 3 devices together" in torchreel("simulate", path, "--sweep").out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("--conf", "max_split_size_mb:10"),
            "The allocator option max_split_size_mb is '10': it must be a whole number of MiB, at least 20",
        ),
        (("--conf", "max_split_size:128"), "is max_split_size_mb meant?"),
        (("--conf", "backend:cudaMallocAsync"), "backend:cudaMallocAsync cannot be simulated"),
        (("--conf", "backend:cudaMallocAsync", "--sweep"), "backend:cudaMallocAsync cannot be simulated"),
        (("--capacity", "lots"), "'lots' is not a size"),
        (("--capacity", "0"), "can hold nothing"),
        (("--capacity", "0", "--sweep"), "can hold nothing"),
        (("--capacity", "-1GiB"), "is not a size"),
        (("--capacity", "1GiB", "--fraction", "1.5"), "is not a part of a device's memory"),
        (("--capacity", "1GiB", "--fraction", "nan"), "is not a part of a device's memory"),
        (("--fraction", "0.5"), "--fraction is a part of the device's memory, which this recording lacks"),
        (("--torch", "latest"), "'latest' is not a version of torch"),
        (("--torch", "latest", "--sweep"), "'latest' is not a version of torch"),
        (("--device", "cuda:9"), "There is no device 'cuda:9'"),
        (("--device", "cuda:9", "--verify"), "There is no device 'cuda:9'"),
        (("--device", "cuda:9", "--sweep"), "There is no device 'cuda:9'"),
        (("--verify", "--sweep"), "are different questions"),
        (("--verify", "--conf", "expandable_segments:True"), "--verify replays what was recorded"),
        (("--predict",), "--predict is for a reel that was recorded on the CPU"),
        (("--predict", "--device", "cuda:0"), "--predict answers for one whole device"),
    ],
)
def test_wrong_options_are_a_sentence(torchreel: Run, cut: str, options: tuple[str, ...], sentence: str) -> None:
    outcome = torchreel("simulate", cut, *options)
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("Error: ")
    assert sentence in outcome.err
    assert "fault" not in outcome.err


def test_what_is_no_recording_is_refused(torchreel: Run, directory: Path) -> None:
    (directory / "text.txt").write_text("hello")
    for path in ("text.txt", "nowhere.pickle", str(directory)):
        for options in ((), ("--sweep",), ("--verify",)):
            outcome = torchreel("simulate", path, *options)
            assert outcome.code == 1
            assert outcome.err.startswith("Error: ")
            assert "fault" not in outcome.err


def test_a_name_of_the_users_cannot_reach_the_terminal(torchreel: Run, directory: Path) -> None:
    history = events()
    for one in history:
        one["frames"] = [{"filename": "/src/\x1b[31mtrain.py", "line": 1, "name": "main"}]
    write(directory / "colour.json", device_traces=[history])
    outcome = torchreel("simulate", "colour.json", "--capacity", "500MiB")
    assert "\x1b" not in outcome.out


def cpu_reel(directory: Path, *names: str) -> None:
    """cpu.reel: the same small run in each of the processes."""
    import pyarrow as pa

    from torchreel.reel.meta import write_meta
    from torchreel.reel.write import write_process

    rows: list[dict[str, Any]] = [
        {"id": 0, "action": "preexisting", "addr": FIRST, "size": 4 * MIB, "total": 4 * MIB},
        {"id": 1, "action": "alloc", "addr": SECOND, "size": 30 * MIB, "total": 34 * MIB},
        {"id": 2, "action": "free", "addr": SECOND, "size": 30 * MIB, "alloc": 1, "total": 4 * MIB},
    ]
    allocs = pa.Table.from_pylist([{"device": "cpu", "time_ns": row["id"], "alloc": None, **row} for row in rows])
    (directory / "cpu.reel").mkdir()
    for name in names:
        processes = pa.table({"name": [name], "pid": [1], "complete": [True], "torch_version": ["2.13.0"]})
        write_process(directory / "cpu.reel" / name, {"allocs": allocs, "processes": processes})
    write_meta(directory / "cpu.reel", {"root": names[0]})


def test_a_run_on_the_cpu_is_simulated_as_if_on_a_gpu(torchreel: Run, directory: Path) -> None:
    cpu_reel(directory, "host-1")
    outcome = torchreel("simulate", "cpu.reel")
    assert outcome.code == 0
    assert "A CUDA allocator with PyTorch's default would reserve 50 MiB at its peak." in outcome.out
    outcome = torchreel("simulate", "cpu.reel", "--verify")
    assert outcome.code == 1
    assert "holds nothing of a CUDA allocator that could be verified" in outcome.err


def test_processes_are_told_apart(torchreel: Run, directory: Path) -> None:
    cpu_reel(directory, "host-1", "host-2")
    found = json.loads(torchreel("simulate", "cpu.reel", "--format", "json").out)
    assert {name: one["recorded"]["peak_requested"] for name, one in found.items()} == {
        "0/cpu": 34 * MIB,
        "1/cpu": 34 * MIB,
    }
    failing = json.loads(
        torchreel("simulate", "cpu.reel", "--device", "1/cpu", "--capacity", "40MiB", "--format", "json").out
    )
    assert list(failing) == ["1/cpu"]
    assert failing["1/cpu"]["simulated"]["first_oom"]["event"] == 1


def test_predict_is_asked(torchreel: Run, directory: Path) -> None:
    cpu_reel(directory, "host-1")
    outcome = torchreel("simulate", "cpu.reel", "--predict")
    assert outcome.code == 0
    assert "would reserve" in outcome.out
    document = json.loads(torchreel("simulate", "cpu.reel", "--predict", "--format", "json").out)
    assert {"peak_reserved", "peak_allocated", "gpu_only", "unknown"} <= set(document)
    outcome = torchreel("simulate", "cpu.reel", "--predict", "--format", "csv")
    assert outcome.code == 1
    assert "--predict cannot be printed as csv" in outcome.err
