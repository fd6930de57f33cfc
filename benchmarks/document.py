"""Results -> benchmarks/results.json and the tables of docs/overhead.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.result import Result, as_markdown

_HERE = Path(__file__).resolve().parent
RESULTS = _HERE / "results.json"
PAGE = _HERE.parent / "docs" / "overhead.md"


def write(measured: dict[str, list[Result]], machine: dict[str, str]) -> None:
    """Replace what was measured anew; the rest stays, with the machine that it was measured on."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, results in measured.items():
        kept[name] = {"machine": machine, "results": [result.to_json() for result in results]}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    page = PAGE.read_text()
    for name, one in kept.items():
        table = as_markdown([Result.from_json(result) for result in one["results"]])
        page = _replace(page, name, f"{table}\n\n{_provenance(one['machine'])}")
    PAGE.write_text(page)


def _provenance(machine: dict[str, str]) -> str:
    return "Measured on: " + "; ".join(f"{what} {value}" for what, value in machine.items()) + "."


def _replace(page: str, name: str, text: str) -> str:
    """The page with other text between the two comments that name a benchmark."""
    between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    if not between.search(page):
        raise ValueError(f"{PAGE.name} has no place for {name}: it needs the comments '{name}' and 'end of {name}'.")
    return between.sub(lambda match: f"{match[1]}{text}\n{match[2]}", page)
