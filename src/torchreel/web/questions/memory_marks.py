"""What stands out in a device's memory: peaks, failures, leaks, spikes, fragmentation, in the words of `memory`."""

from __future__ import annotations

from typing import Any

from torchreel._units import bytes_text
from torchreel.analyze.memory import sentences
from torchreel.analyze.memory.peak import Moment
from torchreel.analyze.memory.report import MemoryReport
from torchreel.analyze.units import time_text
from torchreel.web.device_view import DeviceView, view_of
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel

_FEW = 20


def memory_marks(viewed: ViewedReel, query: Query) -> Any:
    """Sections with sentences, and rows that are moments of the history or lines of the source."""
    view = view_of(viewed, query)
    if view is None:
        return {"sections": []}
    report = view.report
    sections = [_history(report)]
    if report.peak is not None:
        sections += [_peaks(view, report), _failures(view, report), _leaks(report), _spikes(view, report)]
    sections.append(_fragmentation(view, report))
    return {"sections": [section for section in sections if section["sentences"] or section["rows"]]}


def _section(kind: str, title: str, says: list[str], rows: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"kind": kind, "title": title, "sentences": says, "rows": rows or []}


def _history(report: MemoryReport) -> dict[str, Any]:
    says = sentences.of_history(report) if report.peak is not None else sentences.of_no_history(report)
    return _section("history", "What is not known", says)


def _peaks(view: DeviceView, report: MemoryReport) -> dict[str, Any]:
    assert report.peak is not None
    rows = [_row(view, f"{bytes_text(report.peak.allocated.bytes)} allocated", report.peak.allocated.moment)]
    if report.peak.reserved is not None:
        rows.append(_row(view, f"{bytes_text(report.peak.reserved.bytes)} reserved", report.peak.reserved.moment))
    return _section("peak", "Peak", sentences.of_holders(report), rows)


def _failures(view: DeviceView, report: MemoryReport) -> dict[str, Any]:
    def when(at: Moment) -> tuple[str, str]:
        time = view.time_of(at.event)
        return f"event {at.event:,}" if time is None else time_text(time), "" if at.step is None else str(at.step)

    rows = [_row(view, f"{bytes_text(each.bytes)} asked for", each.moment) for each in report.failures[:_FEW]]
    return _section("oom", "Out of memory", sentences.of_failures(report.failures, when, 3), rows)


def _leaks(report: MemoryReport) -> dict[str, Any]:
    if report.leaks is None:
        return _section("leaks", "Leaks", [])
    rows = [
        {"text": f"{bytes_text(round(row['bytes_per_step']))} a step", "line": row["name"], "by": "stack"}
        for row in report.leaks.growing.slice(0, _FEW).to_pylist()
    ]
    return _section("leaks", "Leaks", sentences.of_leaks(report.leaks, is_reel=True), rows)


def _spikes(view: DeviceView, report: MemoryReport) -> dict[str, Any]:
    rows = []
    for spike in report.spikes[:_FEW]:
        times = f", {spike.times:,} times" if spike.times > 1 else ""
        row = _row(view, f"{bytes_text(spike.bytes)} above{times}", spike.moment)
        rows.append({**row, "line": spike.lines[0][0] if spike.lines else None})
    return _section("spikes", "Spikes", sentences.of_spikes(report), rows)


def _fragmentation(view: DeviceView, report: MemoryReport) -> dict[str, Any]:
    found = report.fragmentation
    rows = [] if found is None else [{"text": "the segments at the end", "segments": True, **view.moment(view.last)}]
    if found is not None and found.notable:
        rows += [
            {"text": f"{bytes_text(row['pinned'])} pinned", "line": row["name"], "by": "stack"}
            for row in found.pins.slice(0, 5).to_pylist()
        ]
    return _section("fragmentation", "Fragmentation at the end", sentences.of_fragmentation(report), rows)


def _row(view: DeviceView, text: str, at: Moment) -> dict[str, Any]:
    """A moment to go to. Its event is that of the history, as everywhere on the page."""
    return {"text": text, **view.moment(at.event), "step": at.step, "phase": at.range or at.phase, "line": at.line}
