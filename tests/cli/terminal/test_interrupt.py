"""Work on another thread: its result and its errors are those of the caller."""

from __future__ import annotations

import pytest

from torchreel.cli.terminal.interrupt import interruptible


def test_result_and_errors_come_back() -> None:
    assert interruptible(lambda: 1 + 1) == 2
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0)
