"""Averages of random trees, against the same definitions written as plain loops."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import torchreel
from tests.synthetic import Call, Process, write_reel
from torchreel.analyze import averages

PATHS = [None, "Net", "Net.a", "Net.a.b", "Net.c"]


def calls(children: st.SearchStrategy[Call] | None) -> st.SearchStrategy[Call]:
    return st.builds(
        Call,
        name=st.sampled_from(["x", "y", "z"]),
        self_ns=st.integers(0, 50),
        children=st.just(()) if children is None else st.lists(children, max_size=3).map(tuple),
        kind=st.sampled_from(["op", "op", "range", "python", "module"]),
        module=st.sampled_from(PATHS),
        step=st.sampled_from([None, 0, 1]),
        bytes=st.integers(-9, 9),
    )


FOREST = st.lists(st.recursive(calls(None), calls, max_leaves=12), max_size=4)


def walk(call: Call, around: tuple[Call, ...] = ()) -> Iterator[tuple[Call, tuple[Call, ...]]]:
    """Every call with the calls around it, the innermost last."""
    yield call, around
    for child in call.children:
        yield from walk(child, (*around, call))


def expected(forest: list[Call], by: str, silent: set[str]) -> dict[object, tuple[int, int, int]]:
    """(self_ns, self_alloc_bytes, total_ns) of each group."""
    result: dict[object, list[int]] = defaultdict(lambda: [0, 0, 0])
    for root in forest:
        for call, around in walk(root):
            shown = [item for item in around if item.kind not in silent]
            if call.kind in silent:
                if shown:
                    group = _group(shown[-1], by)
                    result[group][0] += call.self_ns
                    result[group][1] += call.bytes or 0
                continue
            result[_group(call, by)][0] += call.self_ns
            result[_group(call, by)][1] += call.bytes or 0
            inside = _holders(shown[-1], by) if shown else set()
            for group in _holders(call, by) - inside:
                result[group][2] += call.dur_ns
    return {group: (values[0], values[1], values[2]) for group, values in result.items()}


def _group(call: Call, by: str) -> object:
    value = getattr(call, by)
    return "(no module)" if by == "module" and value is None else value


def _holders(call: Call, by: str) -> set[object]:
    if by != "module" or call.module is None:
        return {_group(call, by)}
    parts = call.module.split(".")
    return {".".join(parts[: end + 1]) for end in range(len(parts))}


@settings(max_examples=12, deadline=None)
@given(forest=FOREST)
def test_random_trees(forest: list[Call]) -> None:
    present = {call.kind for root in forest for call, _ in walk(root)}
    with tempfile.TemporaryDirectory() as directory:
        reel = torchreel.load(write_reel(Path(directory) / "run.reel", Process({"main": forest})))
        for by in ("name", "module", "step", "kind"):
            silent = {"python"} if by == "module" and "module" in present else {"python", "module"}
            rows = averages(reel, by=by).to_pylist()
            found = {row[by]: (row["self_ns"], row["self_alloc_bytes"], row["total_ns"]) for row in rows}
            assert found == expected(forest, by, silent)
