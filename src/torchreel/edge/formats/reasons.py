"""Reasons: what PyTorch or a runtime raised, in the words of one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torchreel.errors import EdgeError, TorchreelError, first_line


@contextlib.contextmanager
def or_say(what: str, remedy: str) -> Iterator[None]:
    """Turn an exception into one sentence: what cannot be done, why, and what to do about it."""
    try:
        yield
    except TorchreelError:
        raise
    except Exception as error:
        raise EdgeError(f"{what}: {first_line(error)}. {remedy}") from error
