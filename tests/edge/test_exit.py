"""A program that ends while a profiler runs: its trace is written all the same."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.alone import run_forked

SCRIPT = """
    import os, sys, threading
    import torch, torchreel
    from tests.edge.nets import Net, batch

    torch.set_num_threads(1)
    net = Net()
    {body}
"""


def run(body: str, path: Path) -> subprocess.CompletedProcess[str]:
    script = textwrap.dedent(SCRIPT).format(body=textwrap.dedent(body).strip().replace("PATH", repr(str(path))))
    return run_forked(script)


def linears(path: Path) -> int:
    names = [event["name"] for event in json.loads(path.read_text())["traceEvents"]]
    return names.count("aten::linear")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("profiler = torchreel.EdgeProfiler(net, PATH).__enter__(); net(batch())", 0),
        ("torchreel.EdgeProfiler(net, PATH, with_modules=True).__enter__(); net(batch())", 0),
        ("with torchreel.EdgeProfiler(net, PATH): net(batch()); sys.exit(3)", 3),
        ("with torchreel.EdgeProfiler(net, PATH): net(batch()); raise KeyboardInterrupt", 1),
        ("with torchreel.EdgeProfiler(net, PATH): net(batch()); raise ValueError('mine')", 1),
    ],
    ids=["never ended", "never ended, modules", "sys.exit", "interrupted", "error"],
)
def test_the_trace_is_written(body: str, code: int, tmp_path: Path) -> None:
    result = run(body, tmp_path / "run.json")
    if "Interrupt" not in body:
        assert result.returncode == code, result.stderr
    assert linears(tmp_path / "run.json") == 2
    assert "torchreel/edge" not in result.stderr


def test_a_model_that_runs_on_while_the_program_ends(tmp_path: Path) -> None:
    """The thread ends after the profile: torch does not survive threads that outlast Python."""
    body = """
import atexit
done = threading.Event()
def work():
    while not done.is_set():
        net(batch())
thread = threading.Thread(target=work, daemon=True)
atexit.register(lambda: (done.set(), thread.join()))
profiler = torchreel.EdgeProfiler(net, PATH, with_modules=True, profile_memory=True).__enter__()
net(batch())
thread.start()
"""
    result = run(body, tmp_path / "run.json")
    assert result.returncode == 0, result.stderr
    assert linears(tmp_path / "run.json") >= 2
