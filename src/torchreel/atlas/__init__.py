"""The atlas: an offline site about source trees and, with a reel, about what a run did in them, line by line.

Nothing of the user's is imported or run, and nothing here needs torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchreel.atlas.generate.build import build
    from torchreel.atlas.search_index import search

__all__ = ["build", "search"]


def __getattr__(name: str) -> Any:
    """Each is imported when it is asked for: the processes that read files need neither."""
    if name == "build":
        from torchreel.atlas.generate.build import build

        return build
    if name == "search":
        from torchreel.atlas.search_index import search

        return search
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
