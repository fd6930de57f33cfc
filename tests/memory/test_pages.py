"""The code of the pages on memory runs as it stands."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch

from tests.alone import alone
from torchreel import memory

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["snapshots.md", "caching-allocator.md"])
@alone
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)
    assert examples
    os.chdir(tmp_path)
    for example in examples:
        exec(example, {})


@alone
def test_what_the_page_says_of_rounding_is_what_is_reserved() -> None:
    page = " ".join((DOCS / "caching-allocator.md").read_text().split())
    ((asked, reserved),) = re.findall(r"a tensor of (\d+) MiB, with its header, reserves (\d+) MiB", page)
    memory.use_caching_allocator()
    tensor = torch.empty(int(asked) * 2**20, dtype=torch.uint8)
    assert tensor.numel() < memory.memory_stats()["reserved_bytes.all.current"] == int(reserved) * 2**20
