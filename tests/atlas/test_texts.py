"""Many texts as bytes."""

from __future__ import annotations

import numpy as np

from torchreel.atlas.texts import Texts


def test_lengths_are_of_bytes() -> None:
    found = Texts.of(["ab", "", "ü中"])
    assert np.frombuffer(found.lengths, np.int32).tolist() == [2, 0, 5]
    assert found.data == "abü中".encode()
