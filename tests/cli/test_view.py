"""`torchreel view` before a browser comes: its address, its errors, its end. What it shows is tested in tests/web."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from torchreel.web import server

Run = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def _page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is built, whether this checkout's is or not."""
    built = tmp_path / "page"
    built.mkdir()
    (built / "page.js").write_text("")
    monkeypatch.setattr(server, "PAGE", built)


def test_a_port_that_is_taken_is_a_sentence(torchreel: Run, plain_reel: Path) -> None:
    with socket.socket() as taken:
        taken.bind((server.ADDRESS, 0))
        taken.listen()
        port = taken.getsockname()[1]
        outcome = torchreel("view", "plain.reel", "--no-browser", "--port", str(port))
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        f"Error: Port {port} cannot be used: Address already in use. "
        "Give another --port, or none for any that is free.\n"
    )


def test_a_page_that_is_not_built_is_a_sentence(torchreel: Run, plain_reel: Path, tmp_path: Path) -> None:
    (tmp_path / "page" / "page.js").unlink()
    outcome = torchreel("view", "plain.reel", "--no-browser")
    assert outcome == Outcome(
        1, "", "Error: The viewer's page is not built: run 'make viewer' in the checkout first.\n"
    )


def test_what_is_no_reel_is_a_sentence(torchreel: Run, directory: Path) -> None:
    outcome = torchreel("view", "missing.reel", "--no-browser")
    assert outcome.code == 1 and outcome.err.startswith("Error: There is no reel at missing.reel")
    assert torchreel("view").code == 2
    assert torchreel("view", "missing.reel", "--port", "0").code == 2


def test_ctrl_c_ends_it(plain_reel: Path, tmp_path: Path) -> None:
    script = (
        "import pathlib, sys\n"
        "from torchreel.web import server\n"
        f"server.PAGE = pathlib.Path({str(tmp_path / 'page')!r})\n"
        "from torchreel.cli.main import main\n"
        "sys.exit(main(['view', 'plain.reel', '--no-browser']))\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith(f"http://{server.ADDRESS}:")
        process.send_signal(signal.SIGINT)
        assert process.wait(300) in (0, 130)
        assert "Traceback" not in process.stderr.read()
