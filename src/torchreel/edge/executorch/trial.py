"""Loads and runs an ExecuTorch program once: python trial.py FILE, as a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from torchreel.edge.executorch.loading import NOT_LOADED, NOT_RUN, entry, open_program, weights_beside
from torchreel.edge.executorch.pte import Input
from torchreel.edge.executorch.runtime import runtime
from torchreel.errors import EdgeError


def main(path: Path) -> int:
    """The answer is how the process ends. Messages of the runtime are on stderr."""
    try:
        method = entry(path)
        library = runtime()
        module = open_program(library, path)
        module.method_meta(method.name)
        # The module itself loads its methods when they are called.
        library._load_program(str(path), data_path=weights_beside(path)).load_method(method.name)
    except (EdgeError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return NOT_LOADED
    try:
        module.run_method(method.name, [_value(one) for one in method.inputs])
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return NOT_RUN
    return 0


def _value(wanted: Input) -> Any:
    if wanted.value is not None:
        return wanted.value
    tensor = torch.zeros(wanted.type.sizes, dtype=getattr(torch, wanted.type.dtype, torch.float32))
    return tensor if wanted.is_tensor else tensor.item()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
