"""Results -> benchmarks/results.json and the tables of docs/overhead.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.result import Result, as_markdown

_HERE = Path(__file__).resolve().parent
RESULTS = _HERE / "results.json"
PAGE = _HERE.parent / "docs" / "overhead.md"


def write(name: str, results: list[Result], where: dict[str, str]) -> None:
    """Replace what was measured anew; the rest stays, with the machine and the build that it was measured on."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[name] = {"machine": where, "results": [result.to_json() for result in results]}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    table = f"{as_markdown(results)}\n\n{_provenance(where)}"
    PAGE.write_text(_replace(PAGE.read_text(), name, table))


def _provenance(where: dict[str, str]) -> str:
    return "Measured on: " + "; ".join(f"{what} {value}" for what, value in where.items()) + "."


def _replace(page: str, name: str, text: str) -> str:
    """The page with other text between the two comments that name a benchmark."""
    between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    if not between.search(page):
        raise ValueError(f"{PAGE.name} has no place for {name}: it needs the comments '{name}' and 'end of {name}'.")
    return between.sub(lambda match: f"{match[1]}{text}\n{match[2]}", page)
