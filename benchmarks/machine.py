"""Where and with what a measurement was made."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def describe() -> dict[str, str]:
    cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    versions = {name: importlib.metadata.version(name) for name in ("torch", "pyarrow", "duckdb")}
    return {
        "CPU": f"{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores",
        "memory": f"{int(memory[1]) * 1024 / 1e9:.0f} GB" if memory else "unknown",
        "kernel": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "Python": platform.python_version(),
        **versions,
        "torchreel": f"{importlib.metadata.version('torchreel')}, {_revision()}",
    }


def _revision() -> str:
    git = ["git", "-C", str(_ROOT)]
    done = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return "not from a repository"
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src", "native"], check=False).returncode
    return f"revision {done.stdout.strip()}{' with changes' if changed else ''}"
