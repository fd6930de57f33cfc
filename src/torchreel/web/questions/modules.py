"""Which layer? The tree of modules."""

from __future__ import annotations

from typing import Any

from torchreel.analyze.time.module_tree import module_tree
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel


def modules(viewed: ViewedReel, query: Query) -> Any:
    """A row per module, holders before what they hold."""
    return {"rows": module_tree(viewed.reel, viewed.range_if_given(query)).to_pylist()}
