"""The decoder, the pickle reader, the simulator, the heap and the recorder, watched by the compiler's sanitizers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.alone import run_alone
from tests.native.sanitized import ADDRESS, THREAD, extensions, program, run, run_watched
from torchreel import _decode

HEAP = ("heap_threads.cpp", "memory/heap.cpp", "memory/tally.cpp")
RECORDER = ("recording", "stream", "spool", "names", "counters", "termination")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a recording leaves of a process, before it is converted."""
    directory = tmp_path_factory.mktemp("spool") / "process"
    run_alone(
        "import sys; from pathlib import Path; from tests.reel.test_spool import record_spool\n"
        "record_spool(Path(sys.argv[1]))",
        directory,
    )
    return directory


def watch(function: str, *arguments: object) -> None:
    call = f"from tests.native import watched\nwatched.{function}(*map(int, sys.argv[1:]))"
    run_watched(call, *arguments, libraries=extensions("_decode", "_simulator"))


def watch_spools(process: Path, first: int, count: int) -> None:
    call = "from tests.native import watched\nwatched.spools(sys.argv[1], *map(int, sys.argv[2:]))"
    run_watched(call, process, first, count, libraries=extensions("_decode", "_simulator"))


@pytest.mark.long  # compiles the decoder anew; the heap is the sample of make test
def test_a_sample_of_spools(process: Path) -> None:
    watch_spools(process, 0, 15)


@pytest.mark.long
def test_many_spools(process: Path) -> None:
    watch_spools(process, 1000, 3000)


@pytest.mark.long
@pytest.mark.parametrize(("function", "count"), [("pickles", 60), ("programs", 4)])
def test_a_sample(function: str, count: int) -> None:
    watch(function, 1, count)


@pytest.mark.long
@pytest.mark.parametrize(("function", "count"), [("pickles", 4000), ("programs", 400)])
def test_many(function: str, count: int) -> None:
    watch(function, 1000, count)


@pytest.mark.parametrize("sanitizers", [ADDRESS, THREAD])
def test_a_sample_of_the_heap(sanitizers: str) -> None:
    assert "allocs" in run(program(*HEAP, sanitizers=sanitizers), 1, 3, 2000)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 14))
@pytest.mark.parametrize("sanitizers", [ADDRESS, THREAD])
def test_the_heap(sanitizers: str, seed: int) -> None:
    assert "allocs" in run(program(*HEAP, sanitizers=sanitizers), seed, 6, 60_000)


@pytest.mark.long
@pytest.mark.parametrize(("seed", "threads", "rounds"), [(1, 3, 20_000), (2, 6, 8000), (3, 12, 4000), (4, 2, 60_000)])
@pytest.mark.parametrize("sanitizers", [ADDRESS, THREAD])
def test_the_recorder(sanitizers: str, seed: int, threads: int, rounds: int, tmp_path: Path) -> None:
    """Streams, the flusher, the ring and the end of threads, without torch. What is left on disk is whole."""
    sources = (f"record/{name}.cpp" for name in RECORDER)
    built = program("recorder_threads.cpp", *sources, sanitizers=sanitizers, stand_ins="recorder_alone")
    for line in run(built, seed, threads, rounds, tmp_path).splitlines():
        name, written, complete = line.split()
        found = marks_of(tmp_path / name)
        assert (name, found) == (name, int(written)) if complete == "all" else 0 < found <= int(written)
    for number in range(4):
        assert marks_of(tmp_path / f"dump{number}") > 0


def marks_of(spool: Path) -> int:
    decoder = _decode.Spool(bytes(spool))
    count = 0
    while (batches := decoder.next()) is not None:
        count += pa.record_batch(batches["marks"]).num_rows if "marks" in batches else 0
    return count


@pytest.mark.parametrize("sanitizers", [ADDRESS, THREAD])
def test_a_sanitizer_finds_what_is_wrong(sanitizers: str) -> None:
    """The build works: a mistake that is made on purpose ends the program."""
    mistaken = program("mistakes.cpp", sanitizers=sanitizers)
    with pytest.raises(AssertionError, match="heap-use-after-free" if sanitizers == ADDRESS else "data race"):
        run(mistaken, sanitizers)
