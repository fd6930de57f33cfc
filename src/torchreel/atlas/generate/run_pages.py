"""What a run adds to pages that are not of one file: the costliest on the front page, and the tour."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from torchreel.analyze.source.tour import tour
from torchreel.atlas.costs import RunCosts
from torchreel.atlas.generate.line_links import Lines
from torchreel.atlas.generate.run import Run
from torchreel.atlas.generate.state import Record
from torchreel.atlas.model import Costs, Link
from torchreel.atlas.operators import Operators
from torchreel.atlas.site import paths
from torchreel.atlas.site.facts import CostRow, IndexFacts, TourFacts, TourFunction, TourStop
from torchreel.atlas.symbols import qualified

_MOST = 20


def fill_index(
    facts: IndexFacts, run: Run, costs: RunCosts, operators: Operators, lines: Lines, symbols: pa.Table
) -> None:
    """Put the run and the costliest of all kinds on the front page."""
    records = lines.records
    facts.run = run.facts(costs)
    facts.lines = [
        lines.row(facts.page, row["path"], row["line"], _costs(row)) for row in _costliest(costs.lines).to_pylist()
    ]
    facts.functions = _functions(facts.page, costs, symbols, records)
    entered = sorted(costs.files.items(), key=lambda one: (-one[1].self_ns, records[one[0]].key))
    facts.files = [
        CostRow(Link("/".join(records[file].key), paths.href(facts.page, records[file].names.page)), each)
        for file, each in entered[:_MOST]
        if each.calls or each.total_ns
    ]
    called = [one for one in operators.found.values() if one.ran is not None and one.ran.costs.calls]
    called.sort(key=lambda one: (-one.costs.self_ns, one.name))
    facts.ops = [
        CostRow(Link(one.name, paths.href(facts.page, paths.operator_page(one.name))), one.costs)
        for one in called[:_MOST]
    ]


def _costliest(table: pa.Table) -> pa.Table:
    order = pc.sort_indices(table, [("self_ns", "descending"), ("path", "ascending"), ("line", "ascending")])
    kept = table.take(order[:_MOST])
    return kept.filter(pc.greater(kept["self_ns"], 0))


def _costs(row: Mapping[str, int | None]) -> Costs:
    return Costs(**{name: row[name] for name in Costs.__struct_fields__})  # type: ignore[arg-type]


def _functions(page: str, costs: RunCosts, symbols: pa.Table, records: Mapping[int, Record]) -> list[CostRow]:
    """The functions and methods with the most own time, a class's methods by themselves."""
    kinds = pc.is_in(symbols["kind"].cast(pa.string()), pa.array(["function", "method"]))
    candidates = symbols.select(["id", "file", "name", "scope"]).filter(kinds)
    columns = costs.columns_of_symbols(candidates["id"])
    table = candidates.append_column("self_ns", columns["self_ns"])
    table = table.filter(pc.greater(table["self_ns"], 0))
    best = table.take(pc.sort_indices(table, [("self_ns", "descending"), ("id", "ascending")])[:_MOST])
    rows = []
    for row in best.to_pylist():
        record = records[row["file"]]
        place = next(place for place, one in enumerate(record.names.symbols) if one.id == row["id"])
        each = costs.of_symbols(record.id, [row["id"]])[0]
        symbol = record.names.symbols[place]
        name = qualified(symbol.scope, symbol.name, record.names.language)
        text = f"{name} ({record.names.path})"
        rows.append(CostRow(Link(text, paths.href(page, record.names.page, symbol.anchor)), each))
    return rows


def tour_facts(run: Run, costs: RunCosts, lines: Lines) -> TourFacts:
    """The files of the roots in the order in which the run entered them."""
    facts = TourFacts([], run.script.rpartition("/")[2] if run.script else "")
    steps = sorted((row["start_ns"], row["step"]) for row in run.reel.table("steps", ["step", "start_ns"]).to_pylist())
    begin = run.begin_ns
    for row in tour(run.reel).to_pylist():
        file = lines.file(row["file"])
        if file is None:
            continue
        record = lines.records[file]
        at = begin + row["first_ns"]
        facts.stops.append(
            TourStop(
                Link("/".join(record.key), paths.href(facts.page, record.names.page)),
                row["first_ns"],
                costs.of_file(file) or Costs(),
                record.sentence,
                next((step for start, step in reversed(steps) if start <= at), None),
                [
                    _function(facts.page, costs, lines, record, one["line"], one["function"])
                    for one in row["functions"]
                    if one["line"] > 0
                ],
            )
        )
    return facts


def _function(page: str, costs: RunCosts, lines: Lines, record: Record, line: int, name: str) -> TourFunction:
    found = [one for one in record.names.symbols if qualified(one.scope, one.name) == name.replace(".<locals>", "")]
    if len(found) == 1:
        link = Link(name, paths.href(page, record.names.page, found[0].anchor))
        each = costs.of_symbols(record.id, [found[0].id]).get(0)
    else:
        link, each = lines.link(page, (record.id, line), name), None
    return TourFunction(link, line, each or costs.of_lines(record.id).get(line, Costs()))
