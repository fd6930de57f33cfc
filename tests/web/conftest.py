"""A recorded training run, `torchreel view` of it, and a browser that looks at it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import one_playwright
from tests.alone import run_alone

CHROMIUM = "/usr/bin/chromium"
PATIENCE_S = float(os.environ.get("TORCHREEL_TEST_PATIENCE_S", "300"))

PROGRAM = """
import sys, torch, torchreel
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
data = torch.utils.data.DataLoader(torch.randn(48, 32), batch_size=8)
with torchreel.record(sys.argv[1], shapes=True, memory=True, stacks=True, modules=True, flops=True, tape=1):
    for batch in data:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
"""


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reel of six steps of a small model."""
    path = tmp_path_factory.mktemp("trained") / "run.reel"
    run_alone(PROGRAM, path)
    return path


@contextlib.contextmanager
def viewing(*arguments: object) -> Iterator[str]:
    """The address that `torchreel view` printed, while it runs."""
    command = [sys.executable, "-m", "torchreel", "view", *map(str, arguments), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            assert url.startswith("http://127.0.0.1:"), process.stderr and process.stderr.read()
            yield url
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    pytest.importorskip("playwright.sync_api", reason="the viewer's tests need playwright")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"the viewer's tests need Debian's chromium at {CHROMIUM}")
    if shutil.which("npm") is None and not Path("src/torchreel/web/page/page.js").exists():
        pytest.skip("the viewer's page is built by 'make viewer', which needs node")
    chromium = one_playwright.started().chromium.launch(
        executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    )
    yield chromium
    chromium.close()


class Page:
    """A page of the viewer, and what to wait for: its policy forbids waiting by text of a script."""

    def __init__(self, browser: Any, url: str) -> None:
        self.page = browser.new_page(viewport={"width": 1280, "height": 800})
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(url)
        self.settle()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen; errors: {self.errors}"
            time.sleep(0.05)

    def settle(self) -> None:
        self.until(
            lambda: bool(self.page.evaluate("!!(window.torchreel && torchreel.ready && torchreel.idle)")), "rest"
        )

    def show(self, place: str) -> None:
        self.page.evaluate(f"location.hash = {place!r}")
        screen = place.removeprefix("#/").partition("?")[0]
        self.until(lambda: self.count(f"screen-{screen}") == 1, f"the screen {screen}")
        self.settle()

    def address(self) -> str:
        """What playwright itself remembers may be older: it learns of a change with the next answer of the page."""
        return str(self.page.evaluate("location.href"))

    def all(self, name: str) -> Any:
        return self.page.locator(f'[data-testid="{name}"]')

    def count(self, name: str) -> int:
        return int(self.all(name).count())

    def wait_for(self, name: str, least: int = 1) -> Any:
        self.until(lambda: self.count(name) >= least, f"{name}")
        return self.all(name)

    def close(self) -> None:
        self.page.close()
        assert not self.errors, self.errors


@pytest.fixture(scope="module")
def page(browser: Any, trained: Path) -> Iterator[Page]:
    """The page of the recorded training run, the same for all tests of a file."""
    with viewing(trained) as url:
        page = Page(browser, url)
        yield page
        page.close()
