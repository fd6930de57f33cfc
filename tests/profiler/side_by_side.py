"""What the tests share that ask the same of torch.profiler and of the drop-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.autograd.profiler
import torch.profiler

import torchreel.profiler
import torchreel.profiler.autograd
from torchreel.profiler import ProfilerActivity

CPU = [ProfilerActivity.CPU]

both = pytest.mark.parametrize("module", [torch.profiler, torchreel.profiler], ids=["torch", "torchreel"])
both_older = pytest.mark.parametrize(
    "older", [torch.autograd.profiler, torchreel.profiler.autograd], ids=["torch", "torchreel"]
)


def trace(prof: Any, path: Path) -> dict[str, Any]:
    prof.export_chrome_trace(str(path / "trace.json"))
    content: dict[str, Any] = json.loads((path / "trace.json").read_text())
    return content


def events(prof: Any, path: Path, category: str | None = None) -> list[dict[str, Any]]:
    return [event for event in trace(prof, path)["traceEvents"] if category in (None, event.get("cat"))]


def names(prof: Any) -> list[str]:
    return [event.name for event in prof.events()]


def forward_and_backward() -> None:
    first, second = (torch.ones(1, requires_grad=True) for _ in range(2))
    torch.nn.functional.softplus(torch.mul(first, second)).backward()


def strided() -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors with gaps of their own in the same memory."""
    memory = torch.rand(200)
    return memory.as_strided((5, 4), (9, 2), 0), memory.as_strided((5, 4), (13, 3), 60)
