"""Ids of symbols: each its own, and the same as long as name, scope and file are."""

from __future__ import annotations

from torchreel.atlas.model import Symbol
from torchreel.atlas.symbols import anchors_of, first_sentence, ids_of


def symbol(name: str, scope: str = "") -> Symbol:
    return Symbol(name, scope, "function", 1, 1)


def test_anchors() -> None:
    found = anchors_of([symbol("f"), symbol("f"), symbol("g", "A.B"), symbol("operator new", "a::b"), symbol("f")])
    assert found == ["d.f", "d.f~2", "d.A.B.g", "d.a::b.operator-new", "d.f~3"]


def test_ids_do_not_depend_on_what_stands_before() -> None:
    few, more = ids_of(3, ["d.f", "d.g"]), ids_of(3, ["d.new", "d.f", "d.g"])
    assert more[1:] == few
    assert len(set(more)) == 3
    assert ids_of(4, ["d.f"]) != ids_of(3, ["d.f"])
    assert all(0 <= one < 1 << 63 for one in (*more, *ids_of((1 << 24) - 1, ["d.f"])))
    many = [f"d.{number}" for number in range(20_000)]
    assert len(set(ids_of(0, many))) == len(many)


def test_first_sentences() -> None:
    assert first_sentence("One.  Two.") == "One."
    assert first_sentence("A line\nthat goes on. More.\n\nEnd.") == "A line that goes on."
    assert first_sentence("Uses torch.nn, e.g. Linear. And more") == "Uses torch.nn, e.g. Linear."
    assert first_sentence("====\n== Structs. ====") == "== Structs."
    assert first_sentence("") == ""
