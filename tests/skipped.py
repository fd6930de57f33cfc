"""The end of a run: what was skipped, and why, with one line for each reason."""

from __future__ import annotations

from collections import Counter

import pytest


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if not reasons:
        return
    terminalreporter.section("Skipped, and why:")
    for reason, count in sorted(reasons.items(), key=lambda one: (-one[1], one[0])):
        terminalreporter.write_line(f"{count:5}  {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """A skip has the place and the words; those of a file whose import is skipped have the same form."""
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return " ".join(told.removeprefix("Skipped: ").split())
