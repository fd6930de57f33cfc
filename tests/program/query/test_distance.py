"""How far two tensors are from each other, in words."""

from __future__ import annotations

import pytest

from torchreel.program.model import Digest
from torchreel.program.query.distance import distance

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (
            Digest(1, 2.0, (1.0, 1.5, 0.0)),
            Digest(2, 2.5, (1.0, 1.25, 0.5)),
            "its norm is 2 in one and 2.5 in the other, off by 0.2 of its value, "
            "and 2 of 3 sampled values differ, by up to 0.5 (0 in one and 0.5 in the other)",
        ),
        (
            Digest(1, 2.0, (1.0, 2.0)),
            Digest(2, 2.0, (1.0, 2.0)),
            "its norm is the same (2), and 2 sampled values are the same",
        ),
        (
            Digest(1, NAN, (NAN,)),
            Digest(2, 2.0, (1.0,)),
            "its norm is nan in one and 2 in the other, "
            "and 1 of 1 sampled values differ (nan in one and 1 in the other)",
        ),
        (
            Digest(1, NAN, (NAN,)),
            Digest(2, NAN, (NAN,)),
            "its norm is the same (nan), and the sampled value is the same",
        ),
        (Digest(1, INF, ()), Digest(2, 0.0, ()), "its norm is inf in one and 0 in the other"),
    ],
)
def test_clauses(one: Digest, other: Digest, text: str) -> None:
    assert distance(one, other) == text
