"""A plugin of pytest: which of the functions that tests graph are replayed? Written to $REPLAY_CENSUS, one a line.

<test> <how many functions the test had graphed before> <replays> <calls that ran eagerly> <why>
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchreel import graphs
from torchreel.graphs.call.entry import Graphed

# Where files that the tests of 0.6.0 import are now.
_MOVED = {
    "clusters": "inductor.clusters",
    "kernel_generator": "codegen.kernel_generator",
    "lowering_queue": "inductor.queue",
    "partition": "compile.partition",
    "recording": "record.recorded_call",
    "structured_kernel": "codegen.structured_kernel",
}
for _old, _new in _MOVED.items():
    _module = importlib.import_module(f"torchreel.graphs.{_new}")
    sys.modules[f"torchreel.graphs.{_old}"] = _module
    setattr(graphs, _old, _module)

_made: list[Any] = []
_init = Graphed.__init__


def _noted(self: Any, *args: Any, **kwargs: Any) -> None:
    _init(self, *args, **kwargs)
    _made.append(self)


Graphed.__init__ = _noted


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _made.clear()
    yield
    folder = Path(os.environ["REPLAY_CENSUS"])
    with (folder / f"{os.getpid()}.txt").open("a") as file:
        for number, graphed in enumerate(_made):
            print(item.nodeid, number, graphed.replays(), graphed.eager_calls(), _why(graphed), sep="\t", file=file)
    _made.clear()


def _why(graphed: Any) -> str:
    try:
        return "; ".join(skip.reason for skip in graphs.status(graphed).skips).replace("\n", " ").replace("\t", " ")
    except Exception as error:
        return f"no status: {error}"
