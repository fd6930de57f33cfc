"""Every test draws the same random numbers each time: its seed comes from its name, and a failure shows it.

TORCHREEL_TEST_SEED gives another seed to all of them. What is made once for several tests, and what a file draws when
it is imported, has a seed of its own name, so that it does not depend on which test comes first.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

VARIABLE = "TORCHREEL_TEST_SEED"

# Examples follow from the test's source; how long one takes is the machine's business.
settings.register_profile(
    "torchreel", derandomize=True, print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("torchreel")

# The order of sets of texts: `make test` sets it for all processes. Those that tests start have it in any case.
_HASHES = os.environ.get("PYTHONHASHSEED", "random")
os.environ.setdefault("PYTHONHASHSEED", "0")


def seed_of(name: str) -> int:
    given = os.environ.get(VARIABLE)
    return int(given) if given else zlib.crc32(name.encode())


def sow(name: str) -> None:
    # Here, not on top: the process that shares tests out needs neither. A test that imports them later would find
    # other numbers than one that comes after it.
    import numpy
    import torch

    seed = seed_of(name)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed() asks for each kind of device, which takes longer


def pytest_report_header() -> str:
    given = os.environ.get(VARIABLE)
    return f"seeds: {given or 'of each test, by its name'} ({VARIABLE}); hashes: {_HASHES} (PYTHONHASHSEED)"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """A file is imported when it is asked for its tests."""
    if isinstance(collector, pytest.Module):
        sow(collector.nodeid)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    sow(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    if fixturedef.scope == "function":
        return (yield)
    sow(f"{fixturedef.baseid}::{fixturedef.argname}")
    try:
        return (yield)
    finally:
        sow(_item(request).nodeid)


def _item(request: pytest.FixtureRequest) -> pytest.Item:
    item: pytest.Item = request._pyfuncitem
    return item


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, pytest.TestReport]:
    report: pytest.TestReport = yield
    if report.failed:
        report.sections.append(("seed", f"{VARIABLE}={seed_of(item.nodeid)} hashes: {_HASHES}"))
    return report
