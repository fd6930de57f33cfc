"""Real traces of GPUs, from a directory beside the project: each is imported once in a run of the tests.

TORCHREEL_TRACES names another directory. A machine that has none skips their tests.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from torchreel.ingest import import_traces
from torchreel.reel import Reel, load

_BESIDE = Path(__file__).parents[2] / "shared" / "data" / "traces"
DIRECTORY = Path(os.environ.get("TORCHREEL_TRACES", _BESIDE))
_FACTS = DIRECTORY / "facts.json"

# Of each trace what is true of it, as another program found it.
FACTS: dict[str, dict[str, Any]] = json.loads(_FACTS.read_text())["traces"] if _FACTS.is_file() else {}
TRACES: list[str] = sorted(FACTS)


def trace(name: str) -> Path:
    """The file of this name; skips the test where there is none."""
    path = DIRECTORY / name
    if not path.is_file():
        pytest.skip(f"there is no real trace {name}: name their directory in TORCHREEL_TRACES")
    return path


def gpu_reel(*names: str) -> Reel:
    """The reel of these traces, of each process one. Nobody may change it."""
    return load(_imported(names))


@functools.cache
def _imported(names: tuple[str, ...]) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="torchreel-traces-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    import_traces([trace(name) for name in names], directory / "gpu.reel")
    return directory / "gpu.reel"
