"""`torchreel diff`, as a person and as a program sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.analyze.gpu.traces import Trace
from tests.cli.conftest import Outcome
from tests.synthetic import Process, call, write_reel

Run = Callable[..., Outcome]


def reels(directory: Path) -> None:
    stack = (("/home/me/train.py", 10, "main"),)
    before = [call("aten::mm", 1_000_000, stack=stack), call("aten::sin", 2_000, stack=stack)]
    after = [call("aten::mm", 1_500_000, stack=stack), call("aten::relu", 1_000, stack=stack)]
    for name, calls, peak in (("a", before, 1 << 20), ("b", after, 3 << 20)):
        write_reel(directory / f"{name}.reel", Process({"MainThread": calls}, allocs=[("alloc", peak)]))


def test_the_greatest_change_comes_first(torchreel: Run, directory: Path) -> None:
    reels(directory)
    assert torchreel("diff", "a.reel", "b.reel") == Outcome(
        0,
        "a.reel and b.reel, compared as a whole, as not both have steps.\n"
        "Wall time: 1.002ms to 1.501ms (+49.8%).\n"
        "Self time: 1.002ms to 1.501ms (+49.8%).\n"
        "Ops: 2 to 2 (+0.0%).\n"
        "Peak memory: 1.00 MiB to 3.00 MiB (+200.0%).\n"
        "\n"
        "Name        A Self CPU  B Self CPU      Change  Change %  A Calls  B Calls\n"
        "----------- ----------- ----------- ----------- --------- -------- -------- ----\n"
        "aten::mm       1.000ms     1.500ms  +500.000us    +50.0%        1        1\n"
        "aten::sin      2.000us                -2.000us                  1           gone\n"
        "aten::relu                 1.000us    +1.000us                           1  new\n",
        "",
    )


def test_a_broken_limit_is_an_exit_code_of_its_own(torchreel: Run, directory: Path) -> None:
    reels(directory)
    outcome = torchreel("diff", "a.reel", "b.reel", "--fail-on", "self +60%, peak +2%, ops +0", "--limit", "1")
    assert outcome.code == 3
    assert outcome.err == "The limit 'peak +2%' is broken: peak went from 1.00 MiB to 3.00 MiB (+200.0%).\n"
    assert "These are 1 of 3 rows: --limit 0 shows all.\n" in outcome.out
    assert torchreel("diff", "a.reel", "b.reel", "--fail-on", "self +60%").code == 0


def test_json_has_all_rows_and_the_broken_limits(torchreel: Run, directory: Path) -> None:
    reels(directory)
    outcome = torchreel("diff", "a.reel", "b.reel", "--by", "line", "--format", "json", "--fail-on", "ops +0, self +1%")
    found = json.loads(outcome.out)
    assert outcome.code == 3 and found["broken_limits"] == ["self +1%"]
    assert found["self_ns"] == {
        "a": 1_002_000.0,
        "b": 1_501_000.0,
        "spread": 0.0,
        "change": 499_000.0,
        "percent": 100 * 499 / 1002,
    }
    assert [(row["line"], row["change_ns"]) for row in found["rows"]] == [("me/train.py:10 main", 499_000.0)]


def test_markdown_and_csv(torchreel: Run, directory: Path) -> None:
    reels(directory)
    markdown = torchreel("diff", "a.reel", "b.reel", "--format", "markdown").out.splitlines()
    assert markdown[6] == "| Name | A Self CPU | B Self CPU | Change | Change % | A Calls | B Calls |  |"
    assert markdown[9] == "| aten::sin | 2.000us |  | -2.000us |  | 1 |  | gone |"
    header = torchreel("diff", "a.reel", "b.reel", "--format", "csv").out.splitlines()[0]
    assert header.startswith("name,a_calls,b_calls,a_self_ns,b_self_ns")


def test_wrong_limits_and_reels_are_a_sentence(torchreel: Run, directory: Path) -> None:
    reels(directory)
    outcome = torchreel("diff", "a.reel", "b.reel", "--fail-on", "time +5%")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("Error: The limit 'time +5%' cannot be read: give one of self, wall, peak, ops")
    assert torchreel("diff", "a.reel", "missing.reel").code == 1
    assert torchreel("diff", "a.reel").code == 2


def test_kernels_that_were_renamed_are_compared_by_what_they_do(torchreel: Run, directory: Path) -> None:
    for name, kernel, end in (("a", "ampere_sgemm", 5_000), ("b", "nvjet_hsh", 3_000)):
        trace = Trace()
        trace.call("aten::mm", 0, 100)
        trace.kernel(kernel, 1_000, end, trace.launch(10, 20))
        trace.write(directory / f"{name}.reel")
    outcome = torchreel("diff", "a.reel", "b.reel", "--by", "kernel")
    assert (outcome.code, outcome.err) == (0, "")
    assert "\nDevice time: 4.000us to 2.000us (-50.0%).\n" in outcome.out
    assert outcome.out.splitlines()[-1].split() == (
        ["aten::mm", "nvjet_hsh", "gemm", "4.000us", "2.000us", "-2.000us", "1", "1", "another", "kernel"]
    )
    found = json.loads(torchreel("diff", "a.reel", "b.reel", "--by", "kernel", "--format", "json").out)
    assert (found["device_ns"]["change"], found["rows"][0]["match"], found["device_notes"]) == (-2000.0, "family", [])


def test_reels_without_kernels_say_how_to_record_them(torchreel: Run, directory: Path) -> None:
    reels(directory)
    outcome = torchreel("diff", "a.reel", "b.reel", "--by", "kernel")
    assert outcome.code == 0 and "There are no kernels in this reel: record with torch.profiler" in outcome.out
    assert "Device time" not in outcome.out
