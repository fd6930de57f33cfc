"""Programs in a process of their own: memory is measured there, where nothing of other tests comes and goes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run_alone(script: str, *arguments: object) -> str:
    """What the script prints."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
