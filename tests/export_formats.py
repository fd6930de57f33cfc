"""The formats that can be written here: html needs the viewer's page, and node to build that."""

from __future__ import annotations

import pytest

from torchreel.export import FORMATS
from torchreel.web.server import PAGE

PAGE_IS_BUILT = (PAGE / "page.js").is_file()
needs_page = pytest.mark.skipif(
    not PAGE_IS_BUILT, reason="the viewer's page is built by 'make viewer', which needs node"
)
WRITABLE = [to for to in FORMATS if to != "html" or PAGE_IS_BUILT]
EVERY_FORMAT = [pytest.param(to, marks=[needs_page] * (to == "html")) for to in FORMATS]
