"""Numbers on pages are those of benchmarks/results.json, with what they were measured with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks import document
from benchmarks.question import NAMES, OPTIONAL
from benchmarks.result import Result, Spread

PLACES = [(page, name) for page in document.pages() for name in document.places(page.read_text())]


@pytest.mark.parametrize("page", document.pages(), ids=lambda page: page.name)
def test_tables_are_those_of_the_results(page: Path) -> None:
    text = page.read_text()
    assert document.rendered(text, document.read()) == text, "run 'python -m benchmarks.document'"


def test_everything_measured_stands_on_one_page() -> None:
    names = [name for _, name in PLACES]
    assert len(names) == len(set(names)) > 15
    assert set(document.read()) <= set(names) <= {*NAMES, *OPTIONAL}


@pytest.mark.parametrize(("page", "name"), PLACES, ids=lambda value: value if isinstance(value, str) else value.name)
def test_a_table_says_what_it_was_measured_with(page: Path, name: str) -> None:
    entry = document.read().get(name)
    (block,) = re.findall(rf"<!-- {name} -->\n(.*?)<!-- end of {name} -->", page.read_text(), re.DOTALL)
    if entry is None:
        assert block == "Not measured yet.\n"
        return
    assert re.fullmatch(r"(by )?20\d\d-\d\d-\d\d", entry["date"])
    assert re.fullmatch(
        r"\d+\.\d+\.\d+\S*, revision [0-9a-f]{7,}( with changes)?, build [0-9a-f]{8}", entry["machine"]["torchreel"]
    )
    for word in (entry["date"], entry["machine"]["torchreel"], f"torch {entry['machine']['torch']}"):
        assert word in block


@pytest.mark.parametrize("name", ["caching", "history"])
def test_the_allocator_and_the_history_are_measured(name: str) -> None:
    results = document.read()[name]["results"]
    assert results and all(result["measured"] for result in results)
    ((page, _),) = [place for place in PLACES if place[1] == name]
    (block,) = re.findall(rf"<!-- {name} -->\n(.*?)<!-- end of {name} -->", page.read_text(), re.DOTALL)
    assert all(result["what"] in block for result in results) and "Not measured yet." not in block


def test_a_number_that_is_changed_by_hand_is_found() -> None:
    page, name = next((page, name) for page, name in PLACES if name == "op_cost")
    text, measured = page.read_text(), document.read()
    start = text.index(f"<!-- {name} -->")
    changed = text[:start] + re.sub(r"0\.29", "0.19", text[start:], count=1)
    assert changed != text and document.rendered(changed, measured) == text
    # The other way round: results that were not brought to the page.
    result = {**measured[name]["results"][0], "measured": {"median": 5.0, "low": 4.0, "high": 6.0, "count": 2}}
    other = {**measured, name: {**measured[name], "results": [result]}}
    assert document.rendered(text, other) != text
    assert "Not measured yet." in document.rendered(text, {key: measured[key] for key in measured if key != name})


def test_writing_keeps_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- size -->\nold\n<!-- end of size -->\nb\n<!-- edge -->\nold\n<!-- end of edge -->\n")
    (tmp_path / "results.json").write_text(
        '{"edge": {"date": "by 2020-01-01", "machine": {"torch": "1"}, "table": [["x"], ["7"]]}}'
    )
    monkeypatch.setattr(document, "pages", lambda: [page])
    monkeypatch.setattr(document, "RESULTS", tmp_path / "results.json")
    document.write("size", [Result("bytes", Spread(3.0, 3.0, 3.0, 1))], {"torch": "2", "torchreel": "0.7.0"})
    text = page.read_text()
    assert "| bytes | 3.00 | n = 1 |" in text and "torchreel 0.7.0" in text
    assert "| x |\n| --- |\n| 7 |\n\nMeasured by 2020-01-01, with: torch 1." in text
    assert document.read()["edge"]["date"] == "by 2020-01-01"
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", document.read()["size"]["date"])
    with pytest.raises(ValueError, match="No page has a place for report"):
        document.write("report", [], {})
