"""The outline of a file."""

from __future__ import annotations

from tests.atlas.site.example_facts import COSTS
from torchreel.atlas.model import Costs, FileFacts, Symbol
from torchreel.atlas.site.outline import full_name, landmarks, outline
from torchreel.atlas.symbols import anchors_of


def file_of(symbols: list[Symbol], language: str = "python") -> FileFacts:
    facts = FileFacts("r", "p", "files/r/p.html", language, 9, 9, "00")
    facts.symbols, facts.anchors = symbols, anchors_of(symbols)
    return facts


def depths(facts: FileFacts) -> list[tuple[str, int]]:
    return [(entry.symbol.name, entry.depth) for entry in outline(facts)]


def test_depth_in_python() -> None:
    symbols = [
        Symbol("a", "", "variable", 1, 1),
        Symbol("b", "", "variable", 1, 1),
        Symbol("A", "", "class", 2, 9),
        Symbol("f", "A", "method", 3, 5),
        Symbol("inner", "A.f", "function", 4, 5),
        Symbol("g", "A", "method", 6, 7),
        Symbol("AB", "", "class", 10, 11),
    ]
    assert depths(file_of(symbols)) == [("a", 0), ("b", 0), ("A", 0), ("f", 1), ("inner", 2), ("g", 1), ("AB", 0)]


def test_depth_in_cpp_counts_what_stands_around() -> None:
    symbols = [
        Symbol("at", "", "namespace", 1, 9),
        Symbol("run", "at::Engine", "method", 2, 3),
        Symbol("Engine", "at", "class", 4, 6),
        Symbol("stop", "at::Engine", "method", 5, 5),
        Symbol("free", "", "function", 10, 10),
    ]
    facts = file_of(symbols, "c++")
    assert depths(facts) == [("at", 0), ("run", 1), ("Engine", 1), ("stop", 2), ("free", 0)]
    assert full_name(symbols[1], "c++") == "at::Engine::run"
    assert full_name(Symbol("f", "A", "method", 1, 1), "c++") == "A::f"
    assert full_name(Symbol("f", "A", "method", 1, 1), "python") == "A.f"


def test_a_function_that_the_run_did_not_enter_cost_nothing_where_the_recording_can_tell() -> None:
    symbols = [Symbol("C", "", "class", 1, 3), Symbol("f", "C", "method", 2, 2), Symbol("g", "C", "method", 3, 3)]
    facts = file_of(symbols)
    assert [entry.costs for entry in outline(facts)] == [None, None, None]
    facts.costs, facts.symbol_costs = COSTS, {2: COSTS}
    assert [entry.costs for entry in outline(facts)] == [None, Costs(), COSTS]
    facts.language = "c++"
    assert [entry.costs for entry in outline(facts)] == [None, None, COSTS]


def test_the_contents_of_a_long_file_name_what_stands_outermost() -> None:
    short = [Symbol("C", "", "class", 1, 9), Symbol("f", "C", "method", 2, 2), Symbol("x", "C", "field", 3, 3)]
    assert [entry.symbol.name for entry in landmarks(outline(file_of(short)))] == ["C", "f"]
    long = short + [Symbol(f"f{n}", "C", "method", 4, 4) for n in range(200)]
    assert [entry.symbol.name for entry in landmarks(outline(file_of(long)))] == ["C"]
