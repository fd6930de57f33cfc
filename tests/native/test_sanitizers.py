"""The decoder, the pickle reader, the simulator and the heap, watched by the compiler's sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alone import run_alone
from tests.native.sanitized import ADDRESS, THREAD, extensions, program, run, run_watched

HEAP = ("heap_threads.cpp", "memory/heap.cpp", "memory/tally.cpp")


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


@pytest.mark.parametrize("sanitizers", [ADDRESS, THREAD])
def test_a_sanitizer_finds_what_is_wrong(sanitizers: str) -> None:
    """The build works: a mistake that is made on purpose ends the program."""
    mistaken = program("mistakes.cpp", sanitizers=sanitizers)
    with pytest.raises(AssertionError, match="heap-use-after-free" if sanitizers == ADDRESS else "data race"):
        run(mistaken, sanitizers)
