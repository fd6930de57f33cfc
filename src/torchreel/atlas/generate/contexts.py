"""What the page of a file says that the file does not: who imports it, what is related, what a run cost in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from torchreel.atlas import tree
from torchreel.atlas.generate.reader import Context, is_test
from torchreel.atlas.generate.state import Record
from torchreel.atlas.model import Link
from torchreel.atlas.operators import Operators
from torchreel.atlas.site import paths

if TYPE_CHECKING:
    from torchreel.atlas.costs import RunCosts

_MOST_RELATED = 12


class Contexts:
    """Of some files of a site, all of whose files `records` has."""

    def __init__(
        self,
        records: Mapping[int, Record],
        files: Collection[int],
        roots: Sequence[tree.Root],
        costs: RunCosts | None,
        operators: Operators,
    ) -> None:
        self._records, self._costs, self._operators = records, costs, operators
        self._commits = {root.name: tree.commit_of(root.directory) for root in roots}
        self._importers: dict[int, set[int]] = {file: set() for file in files}
        self._links: dict[int, Counter[int]] = {file: Counter(records[file].links) for file in files}
        self.users: Counter[int] = Counter()
        """How many files refer to each."""
        for file, record in records.items():
            self.users.update(record.links.keys())
            for target in self._importers.keys() & set(record.targets):
                if target != file:
                    self._importers[target].add(file)
            for other in self._links.keys() & record.links.keys():
                self._links[other][file] += record.links[other]

    def of(self, file: int) -> Context:
        record = self._records[file]
        importers = [self._records[one] for one in self._importers.get(file, ()) if one in self._records]
        costs = self._costs
        context = Context(
            file,
            self._commits[record.names.root],
            imported_by=self._linked(record, [one for one in importers if not is_test(one.names.path)]),
            tests=self._linked(record, [one for one in importers if is_test(one.names.path)]),
            related=self._related(record),
            registration_links=[self._operator(record, self._operators.of(one) or "") for one in record.registrations],
        )
        if costs is not None:
            context.recorded = True
            context.state = costs.state_of(file, record.sha256)
            context.costs = costs.of_file(file)
            context.symbol_costs = costs.of_symbols(file, [symbol.id for symbol in record.names.symbols])
            context.line_costs = costs.of_lines(file)
            context.line_kernels, context.line_peaks = costs.kernels_of(file), costs.peaks_of(file)
            context.line_ops = [
                msgspec.structs.replace(one, href=self._operator(record, one.op or "")) for one in costs.ops_of(file)
            ]
        return context

    def _linked(self, record: Record, others: Sequence[Record]) -> list[Link]:
        return [self._link(record, other) for other in sorted(others, key=lambda one: one.key)]

    def _link(self, record: Record, other: Record, note: str = "") -> Link:
        same = other.names.root == record.names.root
        text = other.names.path if same else f"{other.names.root}/{other.names.path}"
        return Link(text, paths.href(record.names.page, other.names.page), note)

    def _related(self, record: Record) -> list[Link]:
        counts = self._links.get(record.id, Counter())
        found = [(count, self._records[other]) for other, count in counts.items() if other in self._records]
        found.sort(key=lambda one: (-one[0], one[1].key))
        return [
            self._link(record, other, f"{count:,} reference{'s' if count > 1 else ''}")
            for count, other in found[:_MOST_RELATED]
        ]

    def _operator(self, record: Record, name: str) -> str:
        """The way to the page of an operator, if it has one."""
        return paths.href(record.names.page, paths.operator_page(name)) if name in self._operators.found else ""
