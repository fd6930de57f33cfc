from __future__ import annotations

from collections.abc import Iterator

import pytest

from .perfetto_oracle import Oracle, open_oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Perfetto's trace processor, started once; the tests that use it are marked `browser`."""
    with open_oracle() as running:
        yield running
