"""Standard error of native code, which writes there what it raises, too."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """What is written to standard error, by whichever thread, is thrown away."""
    sys.stderr.flush()
    kept = os.dup(2)
    # A runtime may write to Python's, which in a notebook is another than the process's own.
    with Path(os.devnull).open("w") as nothing, contextlib.redirect_stderr(nothing):
        try:
            os.dup2(nothing.fileno(), 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
