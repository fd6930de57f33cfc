"""Results -> benchmarks/results.json -> the tables of the pages: a page never says what results.json does not.

    python -m benchmarks.document            writes all pages anew from results.json
    python -m benchmarks.document --check    says which of them differ, and exits with 1 if one does

A table stands between the comments `<!-- NAME -->` and `<!-- end of NAME -->`, on whichever page has them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.question import NAMES, OPTIONAL
from benchmarks.result import Result, as_markdown

_HERE = Path(__file__).resolve().parent
RESULTS = _HERE / "results.json"
_NOT_MEASURED = "Not measured yet."
_PLACE = re.compile(r"<!-- (?P<name>\w+) -->\n(?P<text>.*?)\n?<!-- end of (?P=name) -->", re.DOTALL)


def pages() -> list[Path]:
    """Every page that may hold a table."""
    return [_HERE.parent / "README.md", *sorted((_HERE.parent / "docs").glob("*.md"))]


def read() -> dict[str, dict[str, Any]]:
    """All that was measured: by name, when, on which machine, with which build, and the results."""
    measured: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text())
    return measured


def write(name: str, results: list[Result], where: dict[str, str]) -> None:
    """Replace what was measured anew; the rest stays, with the date, machine and build that it was measured on."""
    keep(name, {"machine": where, "results": [result.to_json() for result in results]})


def write_table(name: str, rows: list[list[str]], where: dict[str, str]) -> None:
    """The same for a table of a shape of its own: its headers, and its cells as they are to be read."""
    keep(name, {"machine": where, "table": rows})


def keep(name: str, entry: dict[str, Any]) -> None:
    """Put an entry into results.json, and on its page."""
    if not any(match["name"] == name for page in pages() for match in _PLACE.finditer(page.read_text())):
        raise ValueError(f"No page has a place for {name}: it needs the comments '{name}' and 'end of {name}'.")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    measured = {**read(), name: {"date": today, **entry}}
    RESULTS.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n")
    write_pages()


def write_pages() -> None:
    """Bring all tables on all pages to what results.json says."""
    measured = read()
    for page in pages():
        text = page.read_text()
        fresh = rendered(text, measured)
        if fresh != text:
            page.write_text(fresh)


def rendered(page: str, measured: dict[str, dict[str, Any]]) -> str:
    """The text of a page with the tables that it should have."""
    return _PLACE.sub(lambda match: _block(match["name"], measured.get(match["name"])), page)


def places(page: str) -> list[str]:
    """The names of the tables for which a page has a place."""
    return [match["name"] for match in _PLACE.finditer(page)]


def _block(name: str, entry: dict[str, Any] | None) -> str:
    if name not in (*NAMES, *OPTIONAL):
        raise ValueError(f"There is no benchmark {name!r}, for which a page has a place.")
    text = _NOT_MEASURED if entry is None else f"{_table(entry)}\n\n{_provenance(entry)}"
    return f"<!-- {name} -->\n{text}\n<!-- end of {name} -->"


def _table(entry: dict[str, Any]) -> str:
    if "results" in entry:
        return as_markdown([Result.from_json(result) for result in entry["results"]])
    head, *rows = entry["table"]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


def _provenance(entry: dict[str, Any]) -> str:
    where = "; ".join(f"{what} {value}" for what, value in entry["machine"].items())
    return f"Measured {entry['date']}, with: {where}."


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.document", description="Tables of pages.")
    parser.add_argument("--check", action="store_true", help="change nothing")
    if not parser.parse_args().check:
        write_pages()
        return 0
    measured = read()
    stale = [page.name for page in pages() if rendered(page.read_text(), measured) != page.read_text()]
    for name in stale:
        print(f"{name} has tables that are not those of results.json: run 'python -m benchmarks.document'.")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(_main())
