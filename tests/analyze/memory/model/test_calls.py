"""Which call is around which, against the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from torchreel.analyze.memory.model.calls import Calls
from torchreel.reel.columns import NOTHING

# For each call whether it is chosen, and how far back the call around it is.
TREES = st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=60)


def calls(parents: list[int]) -> Calls:
    nothing = np.full(len(parents), NOTHING, np.int64)
    numbers = np.arange(len(parents))
    return Calls(
        id=numbers,
        parent=np.array(parents, np.int64),
        seq=nothing,
        fwd=nothing,
        thread=nothing,
        start=numbers,
        end=numbers,
        name=nothing,
        names=[],
        kind=nothing,
        kinds=[],
        module=nothing,
        stack=nothing,
    )


@settings(deadline=None)
@given(TREES)
def test_nearest_and_outermost(tree: list[tuple[bool, int]]) -> None:
    parents = [number - back if 0 < back <= number else NOTHING for number, (_, back) in enumerate(tree)]
    chosen = np.array([choice for choice, _ in tree], bool)
    nearest, outermost = [], []
    for number in range(len(tree)):
        chain, at = [], number
        while at != NOTHING:
            chain += [at] if chosen[at] else []
            at = parents[at]
        nearest.append(chain[0] if chain else NOTHING)
        outermost.append(chain[-1] if chain else NOTHING)
    assert calls(parents).nearest(chosen).tolist() == nearest
    assert calls(parents).outermost(chosen).tolist() == outermost


def test_a_very_deep_stack_of_calls() -> None:
    deep = calls([NOTHING, *range(9_999)])
    chosen = np.zeros(10_000, bool)
    chosen[0] = True
    assert deep.nearest(chosen).max() == 0
