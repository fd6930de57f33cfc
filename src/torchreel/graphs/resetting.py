"""`torchreel.graphs.reset`: all graphs are dropped, and the memory of their pools is the system's again."""

from __future__ import annotations

from torchreel import _graphs
from torchreel.errors import GraphError
from torchreel.graphs.swapping import alive


def reset() -> None:
    """Drop the graphs of all functions, in all threads, and give the memory of the pools back.

    Functions stay graphed: they warm up and are recorded anew. Outputs that somebody holds, and what backwards of
    earlier calls need, stay as they are, and their memory goes back with them.
    """
    for graphed in alive():
        graphed.forget()
    _trim()


def reset_compiled() -> None:
    """Reset the functions that torch.compile made."""
    for graphed in alive():
        if graphed.is_compiled:
            graphed.forget()
    _trim()


def pool_bytes() -> int:
    """How far the pools of all threads reach, in bytes: what graphs use at most."""
    return sum(reached for reached, _ in _graphs.pools())


def _trim() -> None:
    busy = _graphs.trim_pools()
    if busy:
        raise GraphError(
            f"The graphs were dropped, but {busy} of their pools could not be given back, as a graph runs in them now: "
            "call reset() outside of graphed functions, when other threads have returned from them."
        )
