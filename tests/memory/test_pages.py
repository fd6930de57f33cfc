"""The code of the pages on memory runs as it stands."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.alone import alone

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["snapshots.md", "caching-allocator.md"])
@alone
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)
    assert examples
    os.chdir(tmp_path)
    for example in examples:
        exec(example, {})
