"""Programs that were written to be replayed wrongly: each gives and leaves what eager does, whatever is changed."""

from __future__ import annotations

import pytest

from tests.guards import programs_of_c_code, programs_of_objects, programs_of_python
from tests.guards.lockstep import PATTERNS, Maker, check

PROGRAMS: dict[str, Maker] = {
    **programs_of_c_code.PROGRAMS,
    **programs_of_objects.PROGRAMS,
    **programs_of_python.PROGRAMS,
}
# What the native side answers by itself.
# They were wrong only when the change came between other calls.
LATER = frozenset({"index_tensor_in_list"})


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    check(PROGRAMS[name], ("cccc!cc~c",) if name not in LATER else PATTERNS)
