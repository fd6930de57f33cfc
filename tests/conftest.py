"""What all tests share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests import limits, seeds


def pytest_configure(config: pytest.Config) -> None:
    for plugin in (limits, seeds):
        config.pluginmanager.register(plugin)


@pytest.fixture(autouse=True)
def flags_of_torch_can_be_set() -> None:
    """torch's own testing package forbids it for good when some test imports it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        vars(torch.backends)["__allow_nonbracketed_mutation_flag"] = True


@pytest.fixture(autouse=True)
def nothing_left_recording() -> Iterator[None]:
    """A test that leaves the recorder on would spoil those after it, and hide what it broke."""
    yield
    core = sys.modules.get("torchreel._core")
    assert core is None or not core.recording(), "this test left the recorder on"
