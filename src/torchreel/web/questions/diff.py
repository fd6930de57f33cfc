"""What changed from this reel to the other?"""

from __future__ import annotations

from typing import Any

from torchreel import analyze
from torchreel.errors import OptionError
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel


def diff(viewed: ViewedReel, query: Query) -> Any:
    if viewed.other is None:
        raise OptionError("There is no second reel: start with 'torchreel view a.reel b.reel'.")
    return analyze.diff(viewed.reel, viewed.other, query.text("by", "name")).as_dict()
