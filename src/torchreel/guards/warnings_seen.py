"""Whether the filters of warnings ignore one: as warnings.warn() asks them, without showing anything."""

from __future__ import annotations

import warnings


def is_ignored(text: str, kind: type, module: str, line: int) -> bool:
    for action, pattern, category, where, number in warnings.filters:
        if (
            (pattern is None or pattern.match(text))
            and issubclass(kind, category)
            and (where is None or where.match(module))
            and number in (0, line)
        ):
            return action == "ignore"
    return False
