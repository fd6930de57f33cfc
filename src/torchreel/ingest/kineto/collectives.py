"""Collectives and process groups: what the arguments of c10d's calls and of their kernels say."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from torchreel.ingest.kineto.columns import plain
from torchreel.reel.tables import TABLES

# Bytes of one element, by the names that c10 gives dtypes.
_SIZES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8", "Float8_e5m2", "Float8_e4m3fn"), 1),
    **dict.fromkeys(("Float8_e5m2fnuz", "Float8_e4m3fnuz", "Float8_e8m0fnu"), 1),
    **dict.fromkeys(("Short", "Half", "BFloat16", "UInt16"), 2),
    **dict.fromkeys(("Int", "Float", "QInt32", "UInt32", "ComplexHalf"), 4),
    **dict.fromkeys(("Long", "Double", "ComplexFloat", "UInt64"), 8),
    "ComplexDouble": 16,
}
# Calls that record_param_comms writes and that move nothing.
_NO_COLLECTIVES = {"wait", "init", "None", ""}
_POINT_TO_POINT = {"send", "recv", "isend", "irecv", "recvanysource"}


class Groups:
    """The process groups of a file, by name, or by ranks where a trace names none."""

    def __init__(self, distributed: Any) -> None:
        self.rows: list[dict[str, Any]] = []
        self._by_key: dict[Any, int] = {}
        config = distributed.get("pg_config") if type(distributed) is dict else None
        for each in config if type(config) is list else ():
            if type(each) is dict:
                self._add(
                    _text(each.get("pg_name", each.get("uid"))),
                    _text(each.get("pg_desc")),
                    _text(each.get("backend_config")) or _text(each.get("backend")),
                    _ranks(each.get("ranks")),
                    _int(each.get("pg_size")),
                )

    def _add(
        self, name: str | None, about: str | None, backend: str | None, ranks: list[int] | None, size: int | None
    ) -> int:
        key = name if name is not None else tuple(ranks or ())
        number = self._by_key.get(key)
        if number is None:
            number = self._by_key[key] = len(self.rows)
            self.rows.append({"id": number, "name": name})
        row = self.rows[number]
        said = {"description": about, "backend": backend, "ranks": ranks or None, "size": size}
        for column, value in said.items():
            if row.get(column) is None:
                row[column] = value
        if row["size"] is None and row["ranks"]:
            row["size"] = len(row["ranks"])
        return number

    def of(self, args: dict[str, Any]) -> int | None:
        """The group that a collective's arguments name."""
        name = _text(args.get("Process Group Name", args.get("Process Group ID")))
        size = _int(args.get("Group size"))
        ranks = _ranks(args.get("Process Group Ranks"))
        start, stride = _int(args.get("Global rank start")), _int(args.get("Global rank stride"))
        if not ranks and None not in (start, stride, size) and size and 0 < size <= 1_000_000:
            ranks = [(start or 0) + (stride or 0) * index for index in range(size)]
        if name is None and not ranks:
            return None
        return self._add(name, _text(args.get("Process Group Description")), None, ranks, size)

    def table(self) -> pa.Table:
        return _table("process_groups", self.rows)


def collectives_of(
    ops: list[tuple[int, int, dict[str, Any]]],
    kernels: list[tuple[int, int | None, int, int, int, dict[str, Any] | None]],
    groups: Groups,
) -> tuple[pa.Table, dict[int, int]]:
    """The table collectives, and for each kernel its collective.

    `ops` are ids, starts and arguments of c10d's calls; `kernels` are ids, the call that each came from, when it was
    launched, when it began and ended, and its arguments.
    """
    rows: list[dict[str, Any]] = []
    by_op: dict[int, dict[str, Any]] = {}
    for op, start, args in ops:
        if _text(args.get("Collective name")) not in _NO_COLLECTIVES:
            by_op[op] = row = {"op": op, "enter_ns": start, **_said(args, groups)}
            rows.append(row)
    links: list[tuple[int, dict[str, Any]]] = []
    for kernel, op_of, launched, start, end, given in kernels:
        row = by_op.get(op_of) if op_of is not None else None  # type: ignore[assignment]
        if row is None:
            row = {"enter_ns": launched, **_said(given or {}, groups)}
            rows.append(row)
        if "kernel" not in row or start < row["start_ns"]:
            row |= {"kernel": kernel, "start_ns": start}
        row["end_ns"] = max(end, row.get("end_ns", end))
        links.append((kernel, row))
    rows.sort(key=lambda row: row["enter_ns"])
    for number, row in enumerate(rows):
        row["id"] = number
    _count(rows)
    return _table("collectives", rows), {kernel: row["id"] for kernel, row in links}


def _count(rows: list[dict[str, Any]]) -> None:
    """Number the collectives of each group, point-to-point calls apart; the trace's own numbers come first."""
    counts: dict[tuple[Any, bool], int] = {}
    for row in rows:
        key = (row.get("group"), row.get("name") in _POINT_TO_POINT)
        number = counts.get(key, 0)
        counts[key] = number + 1
        if row.get("seq") is None:
            row["seq"] = number


def _said(args: dict[str, Any], groups: Groups) -> dict[str, Any]:
    name, dtype = _text(args.get("Collective name")), _text(args.get("dtype"))
    taken, given = _int(args.get("In msg nelems")), _int(args.get("Out msg nelems"))
    size = _SIZES.get(dtype or "")
    in_bytes = taken * size if taken is not None and size else None
    out_bytes = given * size if given is not None and size else None
    source, target = _rank(args.get("Src Rank")), _rank(args.get("Dst Rank"))
    own = _rank(args.get("Rank"))
    peer = None
    if name in _POINT_TO_POINT:
        peer = target if source is None or source == own else source
    known = [each for each in (in_bytes, out_bytes) if each is not None]
    asynchronous = args.get("Async", args.get("Is asynchronous op"))
    return {
        "group": groups.of(args),
        "name": name,
        "seq": _int(args.get("Seq")),
        "peer": peer,
        "dtype": dtype,
        "bytes": max(known) if known else None,
        "in_elems": taken,
        "out_elems": given,
        "in_bytes": in_bytes,
        "out_bytes": out_bytes,
        "in_split": _list(args.get("In split size")),
        "out_split": _list(args.get("Out split size")),
        "source_rank": source,
        "target_rank": target,
        "async": bool(asynchronous) if type(asynchronous) in (bool, int) else None,
        "open": False,
        "comms_id": _text(args.get("Comms Id")),
    }


def _table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    schema = pa.schema(
        [
            (column.name, pa.string() if pa.types.is_dictionary(column.type) else column.type)
            for column in TABLES[name].columns
        ]
    )
    return pa.Table.from_pylist([{column: row.get(column) for column in schema.names} for row in rows], schema)


def _text(value: Any) -> str | None:
    if type(value) is int:
        return str(value)
    return plain(value) if type(value) is str else None


def _int(value: Any) -> int | None:
    if type(value) is str and value.isdecimal() and len(value) < 19:
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**58 else None


def _rank(value: Any) -> int | None:
    rank = _int(value)
    return rank if rank is not None and rank < 2**31 else None


def _list(value: Any) -> list[int] | None:
    """A list of numbers, which may be written as text: "[0, 1]". An empty one says nothing."""
    if type(value) is str:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if type(value) is not list or not value or not all(type(each) is int and abs(each) < 2**62 for each in value):
        return None
    return value


def _ranks(value: Any) -> list[int] | None:
    ranks = _list(value)
    return ranks if ranks and all(0 <= rank < 2**31 for rank in ranks) else None
