"""Keywords: what a file defines, what it uses and few others do, and names that its prose writes apart."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from tests.atlas import pytorch_sources
from tests.atlas.made import made, symbol
from torchreel.atlas.keywords import MOST, keywords, names_counted, rarity
from torchreel.atlas.model import Keyword, Parsed, Use
from torchreel.atlas.read import language_of, parse
from torchreel.atlas.read.languages import CPP, PYTHON
from torchreel.atlas.words import STOP_WORDS

SEED = 20_240_609

SOURCE = made(
    [
        symbol("__all__", "variable", 1),
        symbol("DEFAULT_KEY", "variable", 3),
        symbol("Guard", "class", 5),
        symbol("__init__", "method", 6, "Guard"),
        symbol("held", "attribute", 7, "Guard"),
        symbol("info_of_thread", "attribute", 8, "Guard"),
        symbol("release", "method", 10, "Guard"),
        symbol("level", "field", 11, "Guard"),
        symbol("_helper", "function", 20),
        symbol("push", "function", 30),
        symbol("inner", "function", 31, "push"),
    ],
    {
        "push": [40, 41, 42],
        "_helper": [35, 36, 37, 38],
        "release": [32],
        Use("ThreadLocalDebugInfo", path="torch.ThreadLocalDebugInfo"): [21, 22, 33],
        "Tensor": [23, 24, 25, 26],
        "record_function": [27],
        "isinstance": [28],
        "self": [28, 29],
        "plain": [28, 29],
        "ValueError": [29],
        "__class__": [29],
        "This": [29],
        "io": [29],
    },
    prose="The thread-local debug info is pushed. Thread local debug info! Push it. Record. Function of The Guard.",
)


def test_definitions_then_rare_names_then_phrases() -> None:
    assert keywords(SOURCE, {"ThreadLocalDebugInfo": 3, "Tensor": 1500, "record_function": 40}, 2000) == [
        Keyword("push", "defines", 30, 4),
        Keyword("Guard", "defines", 5, 1),
        Keyword("_helper", "defines", 20, 5),
        Keyword("release", "defines", 10, 2),
        Keyword("inner", "defines", 31, 1),
        Keyword("DEFAULT_KEY", "defines", 3, 1),
        Keyword("level", "defines", 11, 1),
        Keyword("__all__", "defines", 1, 1),
        Keyword("__init__", "defines", 6, 1),
        Keyword("ThreadLocalDebugInfo", "uses", 21, 3),
        Keyword("info_of_thread", "defines", 8, 1),
        Keyword("record_function", "uses", 27, 1),
        Keyword("Tensor", "uses", 23, 4),
        Keyword("thread local debug info", "speaks", 21, 2),
    ]


def test_what_counts_when_documents_are_counted() -> None:
    assert names_counted(SOURCE) == {
        "DEFAULT_KEY": 1,
        "Guard": 1,
        "info_of_thread": 1,
        "ThreadLocalDebugInfo": 3,
        "Tensor": 4,
        "record_function": 1,
    }


def test_a_file_of_cpp() -> None:
    parsed = made(
        [
            symbol("torch", "namespace", 1),
            symbol("Profiler", "struct", 2, "torch"),
            symbol("~Profiler", "method", 3, "torch::Profiler"),
            symbol("operator()", "method", 4, "torch::Profiler"),
            symbol("enabled_", "field", 5, "torch::Profiler"),
            symbol("Event", "struct", 6, "torch", declaration=True),
            symbol("enable", "function", 7, "torch::autograd"),
            symbol("RECORD_ALL", "macro", 8),
            symbol("EventList", "using", 9, "torch"),
            symbol("kCPU", "enumerator", 10, "torch::Kind"),
        ],
        {"std": [3], "size_t": [3], "nullptr": [3], "at": [4], "Event": [5]},
        language="c++",
    )
    assert [one.keyword for one in keywords(parsed, {}, 1)] == [
        *("Profiler", "enable", "RECORD_ALL", "Event", "EventList", "enabled_", "kCPU"),
        *("torch", "~Profiler", "operator()"),
    ]


def test_headings_are_phrases_and_plain_english_is_not() -> None:
    headings = ["Background", "CUDAGraph Trees", "The Limits", "Why CUDAGraphs?", "When to use it", "Dynamic Shapes"]
    parsed = made(
        [symbol(heading, "heading", line) for line, heading in enumerate(headings, 1)],
        language="rst",
        prose="Dynamic shapes. The limits of CUDAGraph trees.",
    )
    assert [(one.keyword, one.kind) for one in keywords(parsed, {}, 1)] == [
        ("CUDAGraph Trees", "defines"),
        ("Why CUDAGraphs?", "defines"),
        ("Dynamic Shapes", "defines"),
    ]


def test_a_text_uses_names_and_no_plain_english() -> None:
    uses = {"We": [1], "Note": [2], "NOTE": [2], "CUDAGraph": [3, 4], "mark_step_begin": [5], "CUDA_HOME": [6]}
    assert keywords(made(uses=uses, language="rst"), {}, 1) == [
        Keyword("CUDAGraph", "uses", 3, 2),
        Keyword("CUDA_HOME", "uses", 6, 1),
        Keyword("mark_step_begin", "uses", 5, 1),
    ]


def test_there_are_at_most_100_and_the_most_important_stay() -> None:
    fields = [symbol(f"field_{number}", "field", number, "Guard") for number in range(1, 120)]
    classes = [symbol(f"Class{number}", "class", 200 + number) for number in range(30)]
    uses = {"field_119": [500, 501], "OtherName": [502]}
    found = keywords(made(fields + classes, uses), {}, 1)
    assert len(found) == MOST
    assert [one.keyword for one in found[:31]] == [f"Class{number}" for number in range(30)] + ["field_119"]
    assert found[-1] == Keyword("field_69", "defines", 69, 1)


def test_phrases_have_room_among_many_uses() -> None:
    uses = {f"UsedName{letter}{other}": [1] for letter in "ABCDEFGHIJKLM" for other in "abcdefghijklm"}
    parsed = made(uses={**uses, "DebugInfo": [7]}, prose="debug info")
    found = keywords(parsed, {"DebugInfo": 512}, 1024)
    assert len(found) == MOST
    assert found[-1] == Keyword("debug info", "speaks", 7, 1)
    assert [one.kind for one in found].count("uses") == MOST - 1


def lines_of(slot: int) -> list[int]:
    return [line for line, one in zip(SOURCE.lines, SOURCE.slots, strict=True) if one == slot]


def test_the_order_of_what_was_read_changes_nothing() -> None:
    choices = random.Random(SEED)
    counts = {"ThreadLocalDebugInfo": 3, "Tensor": 1500}
    expected = keywords(SOURCE, counts, 2000)
    for _ in range(20):
        slots = list(range(len(SOURCE.uses)))
        choices.shuffle(slots)
        shuffled = made(
            choices.sample(SOURCE.symbols, len(SOURCE.symbols)),
            {SOURCE.uses[slot]: lines_of(slot) for slot in slots},
            prose=SOURCE.prose,
        )
        assert keywords(shuffled, dict(choices.sample(sorted(counts.items()), 2)), 2000) == expected


def test_rarity_changes_at_powers_of_two_only() -> None:
    assert [rarity(count, 2000) for count in (1, 2, 3, 4, 5, 8, 9, 1024, 1025, 2000)] == [
        12,
        11,
        10,
        10,
        9,
        9,
        8,
        2,
        1,
        1,
    ]
    assert {rarity(7, documents) for documents in range(1025, 2049)} == {9}
    assert rarity(1, 1) == 1 and rarity(0, 0) == 1
    changes = sum(rarity(count, 2048) != rarity(count + 1, 2048) for count in range(1, 2048))
    assert changes == 11


@pytest.mark.parametrize("text", ['f"{Tensor', 'def f(:\n f"{Tensor}'])
def test_names_of_a_broken_file_that_stand_nowhere_are_left_out(text: str) -> None:
    parsed = parse(text, PYTHON)
    assert "Tensor" in {use.name for use in parsed.uses} and not parsed.slots
    assert "Tensor" not in {one.keyword for one in keywords(parsed, {}, 1)}


def test_an_empty_file_has_none() -> None:
    assert keywords(Parsed("python"), {}, 0) == []


@pytest.fixture(scope="module")
def sources() -> dict[str, tuple[str, Parsed]]:
    """Text and structure of sources of PyTorch, by path: Python and C++."""
    folder = pytorch_sources.directory()
    found = {}
    for path in sorted(folder.rglob("*")):
        language = language_of(path.name) if path.is_file() else None
        if language in (PYTHON, *CPP):
            text = path.read_text()
            found[path.relative_to(folder).as_posix()] = (text, parse(text, language))
    return found


@pytest.fixture(scope="module")
def found(sources: dict[str, tuple[str, Parsed]]) -> dict[str, list[Keyword]]:
    counts = Counter(name for _, parsed in sources.values() for name in names_counted(parsed))
    return {path: keywords(parsed, counts, len(sources)) for path, (_, parsed) in sources.items()}


@pytest.mark.parametrize("path", pytorch_sources.FIVE)
def test_all_that_a_file_defines_is_among_them(
    sources: dict[str, tuple[str, Parsed]], found: dict[str, list[Keyword]], path: str
) -> None:
    symbols = sources[path][1].symbols
    defined = {one.name for one in symbols if one.kind not in ("attribute", "parameter")}
    if len(defined) > MOST:
        defined = {one.name for one in symbols if one.kind in ("class", "struct", "function") and not one.scope}
    assert 5 < len(defined) <= MOST
    assert defined - {one.keyword for one in found[path] if one.kind == "defines"} == set()


def test_every_keyword_stands_in_its_file(
    sources: dict[str, tuple[str, Parsed]], found: dict[str, list[Keyword]]
) -> None:
    for path, words in found.items():
        text, parsed = sources[path]
        assert len(words) == len({one.keyword for one in words}) <= MOST
        lines = [*text.split("\n"), ""]
        for one in words:
            assert one.kind == "defines" or one.keyword.lower() not in STOP_WORDS, (path, one)
            if one.kind != "speaks":
                assert one.keyword.removeprefix("~").removeprefix("operator") in lines[one.line - 1], (path, one)
            else:
                assert re.search(r"[\W_]+".join(one.keyword.split()), parsed.prose, re.IGNORECASE), (path, one)


def test_what_one_would_look_for_is_among_them(found: dict[str, list[Keyword]]) -> None:
    legacy = {one.keyword: one.kind for one in found["torch/csrc/autograd/profiler_legacy.cpp"]}
    assert {"ThreadLocalDebugInfo", "RecordFunction", "ProfilerConfig"} <= legacy.keys()
    snapshot = {one.keyword: one.kind for one in found["torch/csrc/cuda/memory_snapshot.cpp"]}
    assert {"CUDACachingAllocator", "_record_memory_history", "_memory_snapshot_pickled"} <= snapshot.keys()
    edge = {one.keyword: one.kind for one in found["torch/csrc/jit/mobile/profiler_edge.h"]}
    assert {"KinetoEdgeCPUProfiler", "RECORD_BACKEND_EVENT_TO_EDGE_PROFILER"} <= edge.keys()
