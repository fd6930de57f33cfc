"""Generated C++ in several files, which are compiled at the same time: wrappers of the tape, kernels of graphs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from torchreel.errors import TorchreelError


def lines(texts: Iterable[str]) -> str:
    return "\n".join(texts)


def write(folder: Path, texts: dict[str, str], strays: str) -> list[Path]:
    """Write these files, and return those that have changed. A text that stays the same is not touched, so that it is
    not compiled again; files like `strays` that are not among them are of another number of shards, and go."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(strays):
        if path.name not in texts:
            path.unlink()
    return [folder / name for name, text in texts.items() if _write(folder / name, text)]


def _write(path: Path, text: str) -> bool:
    if path.exists() and path.read_text() == text:
        return False
    path.write_text(text)
    return True


def run(generator: Callable[[], str]) -> int:
    """Run a generator for the command line: print the sentence that it gives, or why it has none."""
    try:
        print(generator())
    except TorchreelError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"Error: The system refused: {error.strerror} ({error.filename}).", file=sys.stderr)
        return 1
    return 0
