"""The costliest lines and functions."""

from __future__ import annotations

from torchreel.atlas.model import Costs, FileFacts, Symbol
from torchreel.atlas.site.performance import Spent, costliest_functions, costliest_lines, total_backward


def test_costliest_first_by_what_is_below_and_nothing_that_cost_nothing() -> None:
    facts = FileFacts("r", "p.py", "files/r/p.py.html", "python", 3, 9, "00", text="a\n  b\nc")
    below, own = Costs(1, 1, 1, 0, 50), Costs(2, 40, 40, 0, 40)
    facts.line_costs = {1: own, 2: below, 3: Costs(), 9: Costs(0, 0, 0, 0, 0, 64)}
    assert costliest_lines(facts) == [Spent(2, "b", below), Spent(1, "a", own), Spent(9, "", facts.line_costs[9])]


def test_functions_by_their_full_names() -> None:
    facts = FileFacts("r", "p.py", "files/r/p.py.html", "python", 3, 9, "00")
    method, function = Symbol("f", "C", "method", 2, 2), Symbol("g", "", "function", 3, 3)
    facts.symbols = [Symbol("C", "", "class", 1, 3), method, function]
    facts.symbol_costs = {0: Costs(9, 9, 9, 0, 9), 1: Costs(1, 5, 5, 0, 5), 2: Costs()}
    assert costliest_functions(facts) == [Spent(2, "C.f", Costs(1, 5, 5, 0, 5))]


def test_nothing_has_no_backward_part() -> None:
    assert total_backward(Costs()) == 0
    assert total_backward(Costs(1, 5, 5, 0, 5)) is None
    assert total_backward(Costs(1, 5, 5, 0, 5, total_backward_ns=2)) == 2
