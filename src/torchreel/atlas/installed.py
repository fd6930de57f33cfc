"""Packages that are installed where this runs, found without importing them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from torchreel.errors import AtlasError


def torch_sources() -> Path:
    """The folder of the torch that is installed."""
    found = importlib.util.find_spec("torch")
    folders = list(found.submodule_search_locations or []) if found is not None else []
    if not folders:
        raise AtlasError("torch is not installed here: leave out --torch, or name its sources with --source torch=DIR.")
    return Path(folders[0])
