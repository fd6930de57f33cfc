"""Reasons: what PyTorch or a runtime raised, in the words of one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torchreel.errors import EdgeError, TorchreelError


def first_line(error: Exception) -> str:
    """The first line of what an error says, to be followed by a full stop; its class where it says nothing."""
    return str(error).strip().partition("\n")[0].strip().rstrip(".") or type(error).__name__


@contextlib.contextmanager
def or_say(what: str, remedy: str) -> Iterator[None]:
    """What is raised within becomes one sentence: what cannot be done, the reason, and what to do about it."""
    try:
        yield
    except TorchreelError:
        raise
    except Exception as error:
        raise EdgeError(f"{what}: {first_line(error)}. {remedy}") from error
