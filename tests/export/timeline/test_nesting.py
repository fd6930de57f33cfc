from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from torchreel.export.timeline.nesting import FIXED, MAX_DEPTH, PYTHON, RANGE, Nesting, Repairs, Slice, strictly_nested

Call = tuple[int, int, int, int, int]  # id, parent, start, end, kind
Shown = dict[int, tuple[int, int, int]]  # id -> lane, start, end


def lay(calls: list[Call], apart: frozenset[int] = frozenset()) -> tuple[Shown, list[str]]:
    """Where each call ends up, and the labels of the extra lanes."""
    repairs = Repairs()
    nesting = Nesting(repairs)
    for id, parent, start, end, kind in calls:
        nesting.add(Slice(id, parent, start, end, kind), id in apart)
    labels = nesting.finish()
    shown = {id: (0, start, end) for id, _, start, end, _ in calls}
    for row in repairs.table(0).to_pylist():
        shown[row["id"]] = (row["lane"], row["start_ns"], row["start_ns"] + row["dur_ns"])
    return shown, labels


def parents(shown: Shown) -> dict[int, int]:
    """The call in which a viewer shows each call, which fails if it would have to drop one."""
    found: dict[int, int] = {}
    for lane in {lane for lane, _, _ in shown.values()}:
        stack: list[tuple[int, int]] = []
        rows = [(start, id, end) for id, (at, start, end) in shown.items() if at == lane]
        for start, id, end in sorted(rows):
            assert end > start
            while stack and stack[-1][0] <= start:
                stack.pop()
            assert not stack or end <= stack[-1][0], f"{id} would be dropped"
            assert len(stack) < MAX_DEPTH
            found[id] = stack[-1][1] if stack else -1
            stack.append((end, id))
    return found


def test_what_is_nested_stays() -> None:
    calls = [(1, -1, 0, 10, RANGE), (2, 1, 0, 10, FIXED), (3, 2, 4, 10, FIXED), (4, -1, 10, 12, FIXED)]
    shown, labels = lay(calls)
    assert shown == {1: (0, 0, 10), 2: (0, 0, 10), 3: (0, 4, 10), 4: (0, 10, 12)}
    assert labels == []


def test_a_range_that_outlives_the_one_around_it_moves() -> None:
    shown, labels = lay([(1, -1, 0, 10, RANGE), (2, 1, 5, 15, RANGE), (3, 2, 11, 14, FIXED)])
    assert shown == {1: (0, 0, 10), 2: (1, 5, 15), 3: (0, 11, 14)}
    assert labels == ["overlapping ranges"]


def test_a_range_that_ends_within_an_op_moves_and_the_op_stays() -> None:
    shown, _ = lay([(1, -1, 0, 10, RANGE), (2, 1, 5, 15, FIXED), (3, 2, 6, 12, FIXED)])
    assert shown == {1: (1, 0, 10), 2: (0, 5, 15), 3: (0, 6, 12)}


def test_an_op_that_outlives_an_op_moves_with_what_it_calls() -> None:
    shown, labels = lay([(1, -1, 0, 10, FIXED), (2, 1, 5, 15, FIXED), (3, 2, 6, 7, FIXED)])
    assert shown == {1: (0, 0, 10), 2: (1, 5, 15), 3: (1, 6, 7)}
    assert labels == ["overlapping calls"]


def test_a_range_keeps_its_place_against_the_python_calls_that_open_and_close_it() -> None:
    calls = [
        (1, -1, 0, 100, PYTHON),
        (2, 1, 10, 20, PYTHON),  # __enter__
        (3, 2, 15, 85, RANGE),
        (4, 3, 30, 40, FIXED),
        (5, 3, 80, 90, PYTHON),  # __exit__, and what it calls
        (6, 5, 81, 84, FIXED),
    ]
    shown, labels = lay(calls)
    assert {id for id, (lane, _, _) in shown.items() if lane} == {2, 5, 6}
    assert parents(shown) == {1: -1, 3: 1, 4: 3, 2: -1, 5: -1, 6: 5}
    assert labels == ["overlapping calls"]


def test_a_python_call_keeps_its_place_against_a_shorter_range() -> None:
    shown, _ = lay([(1, -1, 0, 100, PYTHON), (2, 1, 95, 110, RANGE)])
    assert shown == {1: (0, 0, 100), 2: (1, 95, 110)}


def test_asynchronous_ranges_share_lanes_where_they_can() -> None:
    calls = [(1, -1, 0, 10, RANGE), (2, -1, 5, 15, RANGE), (3, -1, 10, 20, RANGE), (4, -1, 11, 19, RANGE)]
    shown, labels = lay(calls, apart=frozenset({1, 2, 3, 4}))
    assert shown == {1: (1, 0, 10), 2: (2, 5, 15), 3: (1, 10, 20), 4: (1, 11, 19)}
    assert labels == ["overlapping ranges", "overlapping ranges"]


def test_empty_slices_keep_their_parents() -> None:
    calls = [
        (1, -1, 0, 10, FIXED),
        (2, 1, 0, 0, FIXED),  # at the very beginning
        (3, 1, 0, 10, FIXED),  # as long as its parent, after an empty one
        (4, 3, 10, 10, FIXED),  # at the very end
        (5, 4, 10, 10, FIXED),  # an empty one in an empty one
        (6, 4, 10, 10, FIXED),
        (7, -1, 10, 11, FIXED),  # follows at once
    ]
    shown, labels = lay(calls)
    assert parents(shown) == {1: -1, 2: 1, 3: 1, 4: 3, 5: 4, 6: 4, 7: -1}
    assert labels == []


def test_calls_deeper_than_perfetto_keeps_go_to_a_lane_of_their_own() -> None:
    count = MAX_DEPTH + 100
    calls = [(id, id - 1, id, 10_000 - id, FIXED) for id in range(1, count + 1)]
    shown, labels = lay(calls)
    assert labels == ["deeper calls"]
    assert [shown[id][0] for id in (MAX_DEPTH, MAX_DEPTH + 1, count)] == [0, 1, 1]
    parents(shown)


@st.composite
def some_calls(draw: st.DrawFn) -> tuple[list[Call], frozenset[int]]:
    """Calls of any length in the order in which they began, each said to be called by one open then."""
    calls: list[Call] = []
    time = 0
    for id in range(1, draw(st.integers(1, 25)) + 1):
        time += draw(st.integers(0, 3))
        open_now = [call[0] for call in calls if call[3] >= time]
        parent = draw(st.sampled_from([*open_now, -1]))
        calls.append((id, parent, time, time + draw(st.integers(0, 12)), draw(st.sampled_from([FIXED, PYTHON, RANGE]))))
    return calls, frozenset(draw(st.sets(st.sampled_from([call[0] for call in calls]), max_size=3)))


@settings(max_examples=100, deadline=None)
@given(some_calls())
def test_nothing_would_be_dropped_whatever_the_calls(case: tuple[list[Call], frozenset[int]]) -> None:
    calls, apart = case
    shown, labels = lay(calls, apart)
    assert len(parents(shown)) == len(calls)
    assert {lane for lane, _, _ in shown.values()} - {0} == set(range(1, len(labels) + 1))
    assert all(shown[id][0] > 0 for id in apart)
    empty = sum(start == end for _, _, start, end, _ in calls)
    for id, _, start, end, _ in calls:
        assert 0 <= shown[id][1] - start <= empty
        assert 0 <= shown[id][2] - end <= empty


@settings(max_examples=100, deadline=None)
@given(some_calls())
def test_the_quick_check_agrees_with_the_slow_way(case: tuple[list[Call], frozenset[int]]) -> None:
    calls, _ = case
    shown, labels = lay(calls)
    untouched = not labels and all(shown[id] == (0, start, end) for id, _, start, end, _ in calls)
    depths: dict[int, int] = {-1: -1}
    for id, parent in parents(shown).items():
        depths[id] = depths[parent] + 1
    start = np.array([call[2] for call in calls])
    duration = np.array([call[3] for call in calls]) - start
    depth = np.array([depths[call[0]] for call in calls])
    assert strictly_nested(start, duration, depth) == untouched


def test_the_quick_check_does_not_believe_wrong_depths() -> None:
    start, duration = np.array([0, 5]), np.array([10, 10])
    assert not strictly_nested(start, duration, np.array([0, 1]))
    assert not strictly_nested(start, duration, np.array([0, 0]))
    assert not strictly_nested(start, duration, np.array([1, 2]))
    assert not strictly_nested(start, duration, np.array([-1, -1]))
    assert strictly_nested(np.array([0, 5]), np.array([10, 5]), np.array([0, 1]))
