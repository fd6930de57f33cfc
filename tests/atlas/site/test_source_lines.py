"""The lines of a source."""

from __future__ import annotations

import re

from tests.atlas.site.example_facts import recorded_file_facts
from torchreel.atlas.model import Costs, FileFacts, LineOp, Symbol
from torchreel.atlas.site.source_lines import line_count, line_link, source_lines


def test_each_line_has_its_id_its_symbols_and_its_cost() -> None:
    lines = source_lines(recorded_file_facts()).split("\n")
    assert lines[0] == '<div class="block">'
    assert lines[2] == '<div id="L2"><a href="#L2">2</a></div>'
    name = '<span class="k">class</span> <span class="d">Net</span>:'
    assert lines[3] == f'<div id="L3"><a href="#L3">3</a><a id="d.Net"></a>{name}</div>'
    title = (
        "self: forward 1.00 ms, backward 2.00 ms\ntotal: forward 1.60 ms, backward 2.40 ms\n"
        "allocated 2.00 KiB\n5.00 K FLOPs\n"
        "aten::mm (backward): 2.00 ms, 8 calls\naten::mm: 1.00 ms, 4 calls"
    )
    bars = (
        '<svg width="44" height="10" aria-hidden="true"><rect class="f" width="11.0" height="10"/>'
        '<rect class="b" x="11.0" width="22.0" height="10"/><rect class="tf" x="33.0" width="6.6" height="10"/>'
        '<rect class="tb" x="39.6" width="4.4" height="10"/></svg>'
    )
    code = '        <span class="k">return</span> x @ self.<a href="#d.Net.weight">weight</a>'
    assert "\n".join(lines[6:]) == (
        f'<div id="L6"><a href="#L6">6</a><span title="{title}">{bars}<i>3.00 ms</i><i>4.00 ms</i>'
        f'<i>2.40 ms</i><i>12</i></span><a id="d.Net.weight"></a>{code}</div>\n</div>\n'
    )


def test_zero_is_blank() -> None:
    facts = FileFacts("r", "p.py", "p.html", "python", 2, 4, "00", body="a\nb\n")
    facts.line_costs = {1: Costs(), 2: Costs(0, 0, 0, 0, 7)}
    first, second = re.findall(r"<div id.*</div>", source_lines(facts))
    assert first == '<div id="L1"><a href="#L1">1</a>a</div>'
    assert "<i></i><i>7 ns</i><i></i><i></i></span>b</div>" in second
    assert 'title="self: forward 0, backward 0">' in second  # of the total it is not known


def test_costs_and_symbols_of_lines_that_are_not_there() -> None:
    facts = FileFacts("r", "p.py", "p.html", "python", 1, 1, "00", body="a")
    facts.line_costs = {7: Costs(1, 1, 1, 0, 1)}
    facts.symbols, facts.anchors = [Symbol("x", "", "variable", 9, 9)], ["d.x"]
    line = '<div id="L1"><a href="#L1">1</a><a id="d.x"></a>a</div>'
    assert source_lines(facts) == f'<div class="block">\n{line}\n</div>\n'
    assert line_link(7, 1) == "7"
    assert line_link(1, 1) == '<a href="#L1">1</a>'


def test_a_long_file_is_in_blocks() -> None:
    facts = FileFacts("r", "p.py", "p.html", "python", 401, 802, "00", body="x\n" * 401)
    page = source_lines(facts)
    assert page.count('<div class="block">') == 3
    assert [int(one) for one in re.findall(r'id="L(\d+)"', page)] == list(range(1, 402))


def test_names_of_ops_are_escaped_in_the_gutter() -> None:
    facts = FileFacts("r", "p.py", "p.html", "python", 1, 1, "00", body="a")
    facts.line_costs = {1: Costs(1, 1, 1, 0, 1)}
    facts.line_ops = [LineOp(1, '"><b>', "", False, 1, 1, 0, None)]
    assert "&quot;&gt;&lt;b&gt;: 1 ns, 1 call" in source_lines(facts)


def test_a_newline_at_the_end_begins_no_line() -> None:
    assert line_count("") == 0
    assert line_count("\n") == 1
    assert line_count("a\n\nb") == 3
    assert line_count("a\n\nb\n") == 3
