"""pyarrow imports pandas, where it is installed, as soon as it makes an array: a fifth of the time to start a server.

Nothing that the server does needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _Absent(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("The viewer's server does without pandas.", name=name)


def leave_out_pandas() -> None:
    """From now on, this process is one in which pandas is not installed."""
    sys.meta_path.insert(0, _Absent())
