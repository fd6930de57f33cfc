"""Where and with what a measurement was made."""

from __future__ import annotations

import hashlib
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
        "torchreel": f"{importlib.metadata.version('torchreel')}, {_revision()}, build {build()}",
    }


def build() -> str:
    """What the compiled parts are, in short: a revision does not say when they were built."""
    digest = hashlib.sha256()
    for file in sorted((_ROOT / "src" / "torchreel").glob("*.so")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:8]


def _revision() -> str:
    """The last that changed what is measured."""
    git, sources = ["git", "-C", str(_ROOT)], ["--", "src", "native"]
    last = [*git, "log", "-1", "--format=%h", *sources]
    done = subprocess.run(last, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return "not from a repository"
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", *sources], check=False).returncode
    return f"revision {done.stdout.strip()}{' with changes' if changed else ''}"
