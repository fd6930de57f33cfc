"""The one playwright of this process: two at a time are refused, and sessions of tests may overlap."""

from __future__ import annotations

import atexit
import functools
from typing import Any


@functools.cache
def started() -> Any:
    """Started when it is first asked for, stopped when the process ends."""
    from playwright.sync_api import sync_playwright

    driver = sync_playwright().start()
    atexit.register(driver.stop)
    return driver
