"""Times of another clock, laid within spans of the CPU's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torchreel.edge.alignment import Span, inside, offsets

TIMES = st.integers(-(10**18), 10**18)
LENGTHS = st.integers(0, 10**9)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start = draw(TIMES)
    return start, start + draw(LENGTHS)


@st.composite
def within(draw: st.DrawFn, outer: Span) -> Span:
    start = draw(st.integers(*outer))
    return start, draw(st.integers(start, outer[1]))


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Span], list[Span], int]:
    """Calls one after the other, what was measured within each, and by how much the other clock is ahead."""
    calls: list[Span] = []
    at = draw(TIMES)
    for _ in range(draw(st.integers(1, 8))):
        start = at + draw(LENGTHS)
        at = start + draw(LENGTHS)
        calls.append((start, at))
    ahead = draw(TIMES)
    measured = [draw(within(call)) for call in calls]
    return calls, [(start + ahead, end + ahead) for start, end in measured], ahead


@given(st.lists(st.tuples(spans(), spans()), max_size=8))
def test_each_lies_in_its_span_or_begins_with_it(pairs: list[tuple[Span, Span]]) -> None:
    outer, measured = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    found = offsets(outer, measured)
    assert len(found) == len(pairs)
    for span, inner, offset in zip(outer, measured, found, strict=True):
        start, end = inner[0] + offset, inner[1] + offset
        if inner[1] - inner[0] <= span[1] - span[0]:
            assert span[0] <= start <= end <= span[1]
        else:
            assert start == span[0]


@given(runs())
def test_one_offset_is_found_where_one_clock_explains_all(run: tuple[list[Span], list[Span], int]) -> None:
    calls, measured, ahead = run
    found = offsets(calls, measured)
    assert len(set(found)) == 1
    # No further from the truth than the calls leave room.
    room = min(call[1] - call[0] - (inner[1] - inner[0]) for call, inner in zip(calls, measured, strict=True))
    assert abs(found[0] + ahead) <= room


@given(runs(), TIMES)
def test_another_epoch_changes_nothing(run: tuple[list[Span], list[Span], int], shift: int) -> None:
    calls, measured, _ = run
    moved = [(start + shift, end + shift) for start, end in measured]
    there = [start + offset for (start, _), offset in zip(moved, offsets(calls, moved), strict=True)]
    here = [start + offset for (start, _), offset in zip(measured, offsets(calls, measured), strict=True)]
    assert there == here


def test_most_calls_decide_where_a_clock_jumps() -> None:
    calls = [(1000 * number, 1000 * number + 100) for number in range(5)]
    measured = [(start + 10, start + 90) for start, _ in calls]
    measured[2] = (measured[2][0] + 10**6, measured[2][1] + 10**6)
    found = offsets(calls, measured)
    assert {found[index] for index in (0, 1, 3, 4)} == {0}
    assert -(10**6) - 10 <= found[2] <= -(10**6) + 10


def test_nothing_to_align() -> None:
    assert offsets([], []) == []


@given(spans(), spans())
def test_what_is_cut_lies_inside(outer: Span, inner: Span) -> None:
    start, end = inside(outer, inner)
    assert outer[0] <= start <= end <= outer[1]
    if outer[0] <= inner[0] and inner[1] <= outer[1]:
        assert (start, end) == inner
