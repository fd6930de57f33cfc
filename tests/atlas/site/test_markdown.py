"""The Markdown twin and llms.txt."""

from __future__ import annotations

import re

import pytest

from tests.atlas.site.example_facts import EXPECTED, HOSTILE, SITE, TEXTS, file_facts, recorded_file_facts, with_suffix
from tests.atlas.site.test_file_page import HEADINGS, empty_file
from torchreel.atlas.model import Costs, Link, Symbol
from torchreel.atlas.site.markdown import fenced, llms_text, markdown_twin
from torchreel.atlas.site.sections import COMMANDS, NOT_ENTERED

_FENCE = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"(?<![`\\])(`+)(?!`)(?:\\\||[^\n])*?(?<!`)\1(?!`)")


def without_code(text: str) -> str:
    """What a renderer may take for markup."""
    return _CODE.sub("", _FENCE.sub("", text))


@pytest.mark.parametrize("name", TEXTS)
def test_the_whole_text(name: str) -> None:
    facts, text = TEXTS[name]
    assert text(facts(), SITE) == (EXPECTED / name).read_text()


@pytest.mark.parametrize(
    "facts", [file_facts(), recorded_file_facts(), empty_file(), with_suffix(recorded_file_facts())]
)
def test_the_headings_are_those_of_the_contract_in_its_order(facts: object) -> None:
    twin = markdown_twin(facts, SITE)  # type: ignore[arg-type]
    assert re.findall(r"^## (.*)$", _FENCE.sub("", twin), re.MULTILINE) == HEADINGS


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_text_is_no_markup(name: str) -> None:
    facts, text = TEXTS[name]
    page = text(with_suffix(facts()), with_suffix(SITE))
    page.encode()
    assert "onerror" in page
    assert not re.search(r"<(?!br)[a-z/]", without_code(page))


def test_rows_of_tables_have_as_many_cells_as_their_heads() -> None:
    twin = markdown_twin(with_suffix(recorded_file_facts()), with_suffix(SITE))
    tables = re.findall(r"(?:^\|.*\n)+", twin, re.MULTILINE)
    assert len(tables) == 7
    for table in tables:
        cells = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(cells) == 1, table


@pytest.mark.parametrize("text", ["", "plain", "```\ncode\n```\n", "a `` b ````` c", "````", HOSTILE])
def test_a_fence_is_longer_than_any_inside(text: str) -> None:
    first, *inside, last = fenced(text, "python").rstrip("\n").split("\n")
    fence = first.removesuffix("python")
    assert last == fence
    assert set(fence) == {"`"}
    assert fence not in "\n".join(inside)
    assert "\n".join(inside) == text.removesuffix("\n")


def test_the_source_is_whole() -> None:
    facts = file_facts()
    facts.text = "x = '''\n```\n# ## Not a heading\n```\n'''\n"
    assert markdown_twin(facts, SITE).endswith(f"\n## Source\n\n````python\n{facts.text}````\n")


def test_links_lead_to_twins_within_the_sources_and_to_pages_elsewhere() -> None:
    facts = empty_file()
    facts.page = "files/app/nets/net.py.html"
    facts.imported_by = [
        Link("a", "other.py.html"),
        Link("b", "../train.py.html#d.f"),
        Link("c", "../../../ops/aten/mm.html#cost"),
        Link("d", "#L3"),
        Link("e"),
    ]
    section = markdown_twin(facts, SITE).partition("## Imported by\n\n")[2].partition("\n\n")[0]
    assert section.split("\n") == [
        "- [a](other.py.md)",
        "- [b](../train.py.md)",
        "- [c](../../../ops/aten/mm.html#cost)",
        "- [d](#L3)",
        "- e",
    ]


def test_null_and_zero_are_told_apart() -> None:
    facts = file_facts()
    assert "\n".join(COMMANDS) in markdown_twin(facts, SITE)
    assert "Self" not in markdown_twin(facts, SITE)
    facts.recorded, facts.costs = True, Costs()
    twin = markdown_twin(facts, SITE)
    assert NOT_ENTERED in twin
    assert "| 5 | method | `def forward(self, x)` |  | 0 | 0 | 0 | 0 | 0 | 0 B |  |" in twin


def test_code_with_backquotes_in_a_table() -> None:
    facts = empty_file()
    facts.symbols, facts.anchors = [Symbol("f", "", "function", 1, 1, "f(a=`b`,\n  c='|``|')")], ["d.f"]
    assert "| 1 | function | ``` f(a=`b`, c='\\|``\\|') ``` |  |" in markdown_twin(facts, SITE)


def test_a_list_of_nothing() -> None:
    assert llms_text(SITE, []).startswith("# app\n\n> 0 source files.")
