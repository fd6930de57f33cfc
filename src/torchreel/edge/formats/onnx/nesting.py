"""What ONNX Runtime timed, sorted out: which call of the session it belongs to, and what it lies in."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from torchreel.edge.formats.onnx.profile import Span

# No more executors than this are looked at to find the one that is at work: branches within bodies, calls of threads.
_MOST_AT_ONCE = 64


@dataclass
class Call:
    """One call of the session, as its caller saw it, on the profile's clock."""

    thread: int
    start_ns: int
    end_ns: int = 0

    def holds(self, span: Span) -> bool:
        # The profile's times are cut to microseconds, so what began within the call may seem to begin before it.
        return self.start_ns - 1000 <= span.start_ns <= self.end_ns


def spans_of_calls(spans: Sequence[Span], calls: Sequence[Call]) -> list[list[Span]]:
    """The spans of each call, parents before children. Spans outside of calls are left out."""
    nest(spans)
    _nest_other_threads(spans)
    numbers = _numbers_of_runs([span for span in spans if span.is_run], calls)
    found: list[list[Span]] = [[] for _ in calls]
    for span in spans:
        number = numbers.get(id(_line(span)[-1]))
        if number is not None:
            found[number].append(span)
    return [sorted(one, key=lambda span: (span.start_ns, len(_line(span)))) for one in found]


def nest(spans: Sequence[Span]) -> None:
    """Find what each lies in: nodes in an executor; an executor in a run, or in the node whose branch or body it runs.

    Times are whole microseconds and cannot tell two short neighbours from a parent and its child; the order in which
    a thread wrote them can, since a parent is written after all that it holds.
    """
    waiting: dict[int, list[Span]] = {}
    for span in spans:
        here = waiting.setdefault(span.thread, [])
        while here and here[-1].start_ns >= span.start_ns and span.may_hold(here[-1]):
            _lay(here.pop(), span)
        if not span.is_run:
            here.append(span)


def _nest_other_threads(spans: Sequence[Span]) -> None:
    """Nodes that ran on threads of ONNX Runtime's own lie in the executor that was at work then."""
    executors = sorted((span for span in spans if span.is_executor), key=lambda span: span.start_ns)
    starts = [span.start_ns for span in executors]
    for span in spans:
        if span.op is not None and span.parent is None:
            at = bisect.bisect_right(starts, span.start_ns)
            latest = reversed(executors[max(at - _MOST_AT_ONCE, 0) : at])
            around = next((one for one in latest if one.end_ns >= span.start_ns and span not in _line(one)), None)
            if around is not None:
                _lay(span, around)


def _lay(child: Span, parent: Span) -> None:
    child.parent = parent
    child.end_ns = max(min(child.end_ns, parent.end_ns), child.start_ns)


def _line(span: Span) -> list[Span]:
    """The span, what it lies in, and so on outwards."""
    line = [span]
    while line[-1].parent is not None:
        line.append(line[-1].parent)
    return line


def _numbers_of_runs(runs: Sequence[Span], calls: Sequence[Call]) -> dict[int, int]:
    """The call of each run, by the run's identity. Calls of one thread do not overlap."""
    by_thread: dict[int, list[int]] = {}
    for number, call in enumerate(calls):
        by_thread.setdefault(call.thread, []).append(number)
    found: dict[int, int] = {}
    for run in runs:
        numbers = by_thread.get(run.thread, [])
        at = bisect.bisect_right(numbers, run.start_ns + 1000, key=lambda number: calls[number].start_ns) - 1
        # The microsecond that is added above may reach into the next call.
        for number in numbers[max(at - 1, 0) : at + 1]:
            if calls[number].holds(run):
                found[id(run)] = number
    return found
