"""Many texts as bytes: so they travel between processes, and wait for their table, without an object for each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np


class Texts(msgspec.Struct, array_like=True):
    """Some texts: their lengths in bytes as numbers of 32 bits, and all of them in UTF-8, one behind the other."""

    lengths: bytes
    data: bytes

    @classmethod
    def of(cls, texts: Sequence[str]) -> Texts:
        data = "".join(texts)
        if data.isascii():
            return cls(np.fromiter(map(len, texts), np.int32, len(texts)).tobytes(), data.encode())
        pieces = [text.encode() for text in texts]
        return cls(np.fromiter(map(len, pieces), np.int32, len(pieces)).tobytes(), b"".join(pieces))
