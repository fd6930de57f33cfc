"""The reader of C++ as a whole: complete on real files, unmoved by hostile ones."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

from tests.atlas import pytorch_sources
from tests.atlas.read.cpp.reading import headers, read
from torchreel.atlas.model import Parsed
from torchreel.atlas.read.cpp.source import parse

LEGACY = "torch/csrc/autograd/profiler_legacy.cpp"
EDGE = "torch/csrc/jit/mobile/profiler_edge.h"
SNAPSHOT = "torch/csrc/cuda/memory_snapshot.cpp"

# Written by hand, from the files: line, kind and name, scopes without the namespace of the file.
EXPECTED = {
    LEGACY: """
        25 namespace torch::autograd::profiler
        119 using ActiveProfilerType
        120 using ProfilerStateBase
        122 struct ProfilerLegacyThreadLocalState
        123 method ProfilerLegacyThreadLocalState::ProfilerLegacyThreadLocalState
        126 method ProfilerLegacyThreadLocalState::~ProfilerLegacyThreadLocalState
        128 method ProfilerLegacyThreadLocalState::getTLS
        135 method ProfilerLegacyThreadLocalState::consolidate?
        137 method ProfilerLegacyThreadLocalState::mark?
        139 method ProfilerLegacyThreadLocalState::setOrAddRemoteProfiledEvents?
        142 method ProfilerLegacyThreadLocalState::pushRange?
        147 method ProfilerLegacyThreadLocalState::popRange?
        149 method ProfilerLegacyThreadLocalState::reportMemoryUsage?
        156 method ProfilerLegacyThreadLocalState::profilerType
        160 method ProfilerLegacyThreadLocalState::leakHandle
        165 method ProfilerLegacyThreadLocalState::getEventList?
        168 field ProfilerLegacyThreadLocalState::state_mutex_
        170 field ProfilerLegacyThreadLocalState::event_lists_map_
        172 field ProfilerLegacyThreadLocalState::remoteProfiledEvents_
        175 method ProfilerLegacyThreadLocalState::consolidate
        192 method ProfilerLegacyThreadLocalState::mark
        210 method ProfilerLegacyThreadLocalState::setOrAddRemoteProfiledEvents
        221 method ProfilerLegacyThreadLocalState::pushRange
        270 method ProfilerLegacyThreadLocalState::popRange
        294 method ProfilerLegacyThreadLocalState::reportMemoryUsage
        312 method ProfilerLegacyThreadLocalState::getEventList
        330 enum EventIValueIdx
        331 enumerator EventIValueIdx::KIND
        332 enumerator EventIValueIdx::NAME
        333 enumerator EventIValueIdx::THREAD_ID
        334 enumerator EventIValueIdx::HANDLE
        335 enumerator EventIValueIdx::NODE_ID
        336 enumerator EventIValueIdx::CPU_MEM_USAGE
        337 enumerator EventIValueIdx::CPU_NS
        338 enumerator EventIValueIdx::CUDA_RECORDED
        339 enumerator EventIValueIdx::CUDA_MEM_USAGE
        340 enumerator EventIValueIdx::CUDA_DEVICE
        341 enumerator EventIValueIdx::CUDA_US
        342 enumerator EventIValueIdx::SHAPES
        343 enumerator EventIValueIdx::NUM_EVENT_IVALUE_IDX
        346 variable disable_cuda_profiling
        363 function pushProfilingCallbacksLegacy
        412 function enableProfilerLegacy
        431 function disableProfilerLegacy
        463 function addEventList
        469 method LegacyEvent::record
        477 method LegacyEvent::fromIValue
        534 method LegacyEvent::toIValue
        566 method LegacyEvent::cudaElapsedUs
        581 variable event_template
        592 function writeProfilerEventsToStream
        605 struct writeProfilerEventsToStream::PairHash
        606 method writeProfilerEventsToStream::PairHash::operator()
        643 method RecordProfile::RecordProfile
        647 method RecordProfile::RecordProfile
        652 method RecordProfile::init
        657 method RecordProfile::~RecordProfile
        674 method RecordProfile::processEvents
    """,
    EDGE: """
        5 namespace torch::jit::mobile
        10 class KinetoEdgeCPUProfiler
        52 method KinetoEdgeCPUProfiler::KinetoEdgeCPUProfiler?
        64 method KinetoEdgeCPUProfiler::disableProfiler?
        66 method KinetoEdgeCPUProfiler::getProfilerResult?
        67 method KinetoEdgeCPUProfiler::recordBackendEvent?
        73 method KinetoEdgeCPUProfiler::recordBackendMemoryEvent?
        80 method KinetoEdgeCPUProfiler::~KinetoEdgeCPUProfiler?
        87 field KinetoEdgeCPUProfiler::m_
        88 field KinetoEdgeCPUProfiler::trace_file_name_
        89 field KinetoEdgeCPUProfiler::profiler_result_
        92 function getCurrentEdgeProfiler?
        94 macro RECORD_BACKEND_EVENT_TO_EDGE_PROFILER
        101 macro RECORD_BACKEND_MEMORY_EVENT_TO_EDGE_PROFILER
        109 macro RECORD_BACKEND_EVENT_TO_EDGE_PROFILER
        112 macro RECORD_BACKEND_MEMORY_EVENT_TO_EDGE_PROFILER
    """,
    SNAPSHOT: """
        9 namespace torch::cuda
        11 using Dict
        12 using IValue
        13 using Pickler
        15 using SegmentInfo
        18 function write_pickle
        31 function new_dict
        34 function new_list
        38 function ivalue_symbolize
        82 function gather
        86 function gather_with_cpp
        90 function getFromContext
        100 function _initRecordAnnotations
        122 function _record_memory_history
        147 function checkOptionIn
        155 function _record_memory_history
        198 function _memory_snapshot_pickled
    """,
}


@pytest.mark.parametrize("path", EXPECTED)
def test_every_symbol_of_three_files(path: str) -> None:
    parsed = parse((pytorch_sources.directory() / path).read_text())
    namespace = f"{parsed.symbols[0].scope}::{parsed.symbols[0].name}"
    found = [
        f"{one.line} {one.kind} {one.scope}::{one.name}{'?' if one.declaration else ''}".replace(
            f" {namespace}::", " "
        ).replace(" ::", " ")
        for one in parsed.symbols
    ]
    assert found == dedent(EXPECTED[path]).strip().split("\n")
    assert parsed.errors == []


def test_includes_and_words_of_a_real_file() -> None:
    parsed = parse((pytorch_sources.directory() / LEGACY).read_text())
    assert [(one.line, one.target) for one in parsed.imports] == [
        (1, "torch/csrc/autograd/profiler_legacy.h"),
        *((3, "torch/csrc/autograd/function.h"), (4, "torch/csrc/jit/frontend/tracer.h")),
        *((5, "torch/csrc/jit/runtime/interpreter.h"), (6, "torch/csrc/jit/runtime/operator.h")),
        *((8, "ATen/code_template.h"), (9, "ATen/core/op_registration/op_registration.h"), (10, "torch/library.h")),
        *((12, "fstream"), (13, "mutex"), (14, "string"), (15, "vector"), (17, "ATen/record_function.h")),
        *((18, "c10/core/Allocator.h"), (19, "c10/util/ApproximateClock.h")),
        *((20, "c10/util/ThreadLocalDebugInfo.h"), (21, "c10/util/irange.h"), (23, "iostream")),
    ]
    assert parsed.doc.startswith("We decompose the profiler logic into the following components:\n\nThreadLocalDebug")
    assert "Consolidate remote events if applicable as well." in parsed.prose
    known = {use.name: parsed.symbols[use.symbol].line for use in parsed.uses if use.symbol >= 0}
    assert known["disable_cuda_profiling"] == 346
    assert known["state_mutex_"] == 168
    assert known["PairHash"] == 605
    assert not {"registration_state_ptr", "evt", "shapes", "fn", "kv"} & {use.name for use in parsed.uses}


Tag = tuple[str, int]


def ctags_of(paths: list[Path]) -> dict[Path, list[tuple[Tag, str]]]:
    """What ctags finds: name and line, and the kind."""
    if shutil.which("ctags") is None:
        pytest.skip("there is no ctags to compare with: install Universal Ctags")
    command = ["ctags", "--language-force=C++", "--kinds-C++=+pxNA", "--fields=+nK", "--output-format=json", "-f", "-"]
    done = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, errors="replace", check=True)
    found: dict[Path, list[tuple[Tag, str]]] = {path: [] for path in paths}
    for tag in map(json.loads, done.stdout.splitlines()):
        name = tag["name"].replace("operator ", "operator")
        found[Path(tag["path"])].append(((name, tag["line"]), tag["kind"]))
    return found


def tags_of(parsed: Parsed) -> Counter[Tag]:
    """The same for ours. In ctags, `namespace a::b` is two, and there is no blank in `operator bool`."""
    found = Counter[Tag]()
    for one in parsed.symbols:
        found[one.name.replace("operator ", "operator"), one.line] += 1
        if one.kind == "namespace":
            found.update((part, one.line) for part in one.scope.split("::"))
    return found


def missed(paths: list[Path]) -> tuple[list[tuple[str, str, Tag]], int]:
    """What ctags finds and we do not, and how much ctags finds.

    Not counted are what ctags makes up for what has no name, and calls of macros, which it takes for functions.
    """
    missing, count = [], 0
    for path, tags in ctags_of(paths).items():
        ours = tags_of(parse(path.read_text(errors="replace")))
        for tag, kind in tags:
            macro = kind in ("function", "prototype") and (tag[0].isupper() or "_DE" in tag[0])
            if tag[0].startswith("__anon") or macro:
                continue
            count += 1
            ours[tag] -= 1
            if ours[tag] < 0:
                missing.append((path.name, kind, tag))
    return missing, count


def test_what_ctags_finds_in_the_neighbours() -> None:
    paths = sorted(path for path in pytorch_sources.directory().rglob("*") if path.suffix in (".h", ".cpp"))
    missing, count = missed(paths)
    assert count > 2800
    # Names of types within functions are local names to us; the rest is what ctags gets wrong.
    assert sorted(missing) == [
        ("collection.h", "typedef", ("extra_fields_t", 383)),
        ("file_format.h", "struct", ("statbuf", 137)),  # struct stat statbuf {}
        ("profiler_python.cpp", "alias", ("pybind11", 33)),  # namespace py = pybind11
        ("profiler_python.cpp", "typedef", ("stack_t", 980)),
    ]


def test_what_is_found_beside_what_ctags_finds() -> None:
    """Nothing is made up: what ctags does not list are forward declarations, the other branch of a conditional, and
    what it misses. They are here because someone has looked at each."""
    paths = sorted(path for path in pytorch_sources.directory().rglob("*") if path.suffix in (".h", ".cpp"))
    more = []
    for path, tags in ctags_of(paths).items():
        theirs = Counter(tag for tag, _ in tags)
        for one in parse(path.read_text()).symbols:
            tag = (one.name.replace("operator ", "operator"), one.line)
            theirs[tag] -= 1
            forward = one.declaration and one.kind in ("class", "struct", "enum")
            if theirs[tag] < 0 and one.kind != "macro" and not forward:
                more.append((path.name, one.kind, *tag))
    assert sorted(more) == [
        ("combined_traceback.h", "function", "symbolize", 66),
        ("combined_traceback.h", "method", "~CapturedTraceback", 34),
        ("function.h", "using", "operator()", 712),
        ("interpreter.h", "function", "operator<<", 78),
        ("kineto_shim.h", "variable", "kKinetoAvailable", 35),
        ("pickler.h", "function", "getWriteableTensorData", 113),
        ("profiler_kineto.cpp", "method", "ProfilerResult", 1083),
        ("profiler_python.cpp", "alias", "py", 33),
        ("profiler_python.cpp", "method", "~PythonTracer", 676),
    ]


def test_what_ctags_finds_in_headers() -> None:
    missing, count = missed(headers(240, seed=7))
    assert count > 2500
    assert len(missing) <= 0.02 * count, missing


def check(text: str) -> Parsed:
    """What holds for every text."""
    parsed = parse(text)
    lines = text.split("\n")
    assert len(parsed.lines) == len(parsed.columns) == len(parsed.slots)
    for line, column, slot in zip(parsed.lines, parsed.columns, parsed.slots, strict=True):
        assert lines[line - 1].startswith(parsed.uses[slot].name, column)
    assert set(parsed.slots) == set(range(len(parsed.uses)))
    ends = [0, *(end for _, end, _ in parsed.tokens)]
    assert all(ends[i] <= start < end for i, (start, end, _) in enumerate(parsed.tokens))
    assert [text[start:end] for start, end, kind in parsed.tokens if kind >= 0] == [
        parsed.uses[slot].name for slot in parsed.slots
    ]
    assert [one.line for one in parsed.symbols] == sorted(one.line for one in parsed.symbols)
    for one in parsed.symbols:
        assert one.end_line >= 1 and one.name and "\n" not in one.signature
        assert one.name.startswith(("operator", "~")) or lines[one.line - 1].startswith(one.name, one.column)
    return parsed


HOSTILE = {
    "brackets": "(" * 5000,
    "brackets and what is in them": "int x = " + "(" * 5000 + "1" + ")" * 5000 + ";\nint y;",
    "braces": "{" * 200_000,
    "all brackets": "({[<" * 20_000,
    "arguments within arguments": "a<" * 50_000,
    "launches": "<<<a " * 100_000,
    "namespaces": "namespace a {" * 5000,
    "a long line": "x" * 1_000_000,
    "a line of words": "foo bar " * 50_000,
    "quotes": '\\"' * 300_000,
    "raw strings": 'R"(' * 1000,
    "conditionals": "#if A\n#else\n" * 20_000,
    "defines": "#define A(x) x \\\n" * 50_000,
    "calls of macros": "AB_C(" * 100_000,
    "what the parser takes long for": "& ,\n" * 10_000,
    "more of it": "@a " * 50_000,
    "JSON": '{"a": [1, 2, {"b": "c"}],' * 5000,
    "English": "This isn't C++: it's a text (with brackets); see below.\n" * 1000,
    "declarators": "int " + ", ".join(f"a{i}" for i in range(20_000)) + ";  // all of them",
    "a long name": "namespace " + "n" * 100_000 + " { int a; }",
    "blanks in a comment": "/*" + " " * 300_000 + "x */",
    "registrations": 'TORCH_LIBRARY(a, m) { m.def("x"); ' * 5000,
    "NUL": "int x;\0\0int y;\n" * 100,
    "half characters": "int \ud800x;",
    "a mark of the byte order": "\ufeffint x;",
    "other line ends": "int x;\r\n// a\r\nvoid f();\r\n",
    "nothing": "",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_texts(what: str) -> None:
    check(HOSTILE[what])


def test_what_comes_after_hostile_brackets_is_found() -> None:
    found = read(HOSTILE["brackets and what is in them"]).symbols
    assert [(one.name, one.line) for one in found] == [("x", 1), ("y", 2)]


def test_random_pieces_of_real_files() -> None:
    """Nothing raises, and places are right, whatever is cut out of a file or put into it."""
    source = random.Random(11)
    texts = [path.read_text(errors="replace") for path in headers(40, seed=12)]
    for _ in range(400):
        text = source.choice(texts)
        start = source.randrange(len(text))
        text = text[start : start + source.choice((20, 200, 3000))]
        for _ in range(source.randrange(4)):
            place = source.randrange(len(text) + 1)
            put = source.choice(["", *"(){}[]<>;:,\"'#\\/*~=&"])
            text = text[:place] + put + text[place + source.choice((0, 1, 5, 50)) :]
        check(text)


def test_travels_between_processes() -> None:
    parsed = parse((pytorch_sources.directory() / EDGE).read_text())
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(parsed), type=Parsed) == parsed
