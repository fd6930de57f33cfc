"""The line that is shown for a stack, and what its frames are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.analyze.memory.traces import BACKWARD_CALL, MODULE_CALL, SITE, Frames, Trace, user

ADDMM = ("RegisterCUDA.cpp", 7, "at::_ops::addmm_out::call(at::Tensor const&)")
EMPTY = ("??", 0, "at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)")
ENGINE = ("engine.cpp", 1, "torch::autograd::Engine::evaluate_function(...)")
WORKSPACE = ("??", 0, "at::cuda::getNewWorkspace()")
EINSUM = (f"{SITE}/einops/einops.py", 916, "einsum")

LINES = {
    # the user's own innermost line, whatever of torch is further in
    (MODULE_CALL, user(12, "Net.forward"), MODULE_CALL, user(30)): "user/train.py:12 Net.forward",
    # a library between it and torch
    (BACKWARD_CALL, EINSUM, user(12, "Net.forward")): "train.py:12 -> einops/einops.py:916 einsum",
    # a library that calls the user back is no part of it
    (user(3, "hook"), EINSUM, user(30)): "user/train.py:3 hook",
    # no user at all: the library's, or torch's
    (MODULE_CALL, EINSUM): "einops/einops.py:916 einsum",
    (("<frozen runpy>", 88, "_run_code"), MODULE_CALL): "<frozen runpy>:88 _run_code",
    # C++ alone: the operator that did more than make room
    (EMPTY, ADDMM, ENGINE): "(backward, no Python frames: aten::addmm)",
    (EMPTY,): "(no Python frames: aten::empty)",
    (("??", 0, "clone"),): "(no Python frames)",
    (WORKSPACE, ADDMM, user(12)): "user/train.py:12 main (workspace of cuBLAS)",
}


@pytest.mark.parametrize(("frames", "text"), LINES.items())
def test_lines(tmp_path: Path, frames: Frames, text: str) -> None:
    trace = Trace()
    trace.alloc(0, 8, *frames)
    memory = trace.memory(tmp_path)
    assert memory.run.stacks.line(0).text == text
    assert memory.labels("stack").texts == [text]


def test_stacks_without_frames_are_none(tmp_path: Path) -> None:
    trace = Trace()
    trace.alloc(0, 8, user(1))
    trace.event("alloc", 64, 8, ())
    stacks = trace.memory(tmp_path).run.stacks
    assert stacks.rows(np.array([0, 1, 7, -1])).tolist() == [0, -1, -1, -1]


def test_ops_are_read_from_frames_of_c(tmp_path: Path) -> None:
    trace = Trace()
    trace.alloc(0, 8, EMPTY, ADDMM, user(1))
    trace.alloc(64, 8, user(1))
    labels = trace.memory(tmp_path).labels("op")
    assert [labels.texts[n] for n in labels.number] == ["aten::addmm", "(no op)"]
