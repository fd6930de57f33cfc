"""The schemas of ATen, as torchgen reads them: it ships with torch, and reading them does not import torch."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from torchreel.errors import UnavailableError

if TYPE_CHECKING:
    from torchgen.gen import ParsedYaml

NAMESPACE = "aten::"


def files() -> tuple[Path, Path]:
    """native_functions.yaml and the tags that it uses."""
    found = importlib.util.find_spec("torchgen")
    if found is None or not found.submodule_search_locations:
        raise UnavailableError(
            "The rules are derived from torchgen's native_functions.yaml, and there is no torchgen here: "
            "it comes with torch, so install torch==2.13.0."
        )
    folder = Path(found.submodule_search_locations[0], "packaged", "ATen", "native")
    return folder / "native_functions.yaml", folder / "tags.yaml"


@functools.cache
def parsed() -> ParsedYaml:
    """All functions, and which backends have kernels of their own for them. It takes one or two seconds."""
    functions, tags = files()
    try:
        from torchgen.gen import parse_native_yaml
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"torchgen cannot read native_functions.yaml, because {error.name} is missing: pip install pyyaml."
        ) from None
    return parse_native_yaml(str(functions), str(tags))
