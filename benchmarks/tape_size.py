"""How large is the file of a tape of GPT-2 small's training step, without its data?"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.result import Goal, Result, Spread, number

TOKENS = 32
# A model of the same parts that is made in no time.
QUICK = {"n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 1000, "bos_token_id": 0, "eos_token_id": 0}


def measure(quick: bool) -> list[Result]:
    name = "a small GPT-2" if quick else "GPT-2 small"
    what, goal = f"{name}, AdamW, 1 x {TOKENS} tokens: the tape without data", Goal(1.0)
    if importlib.util.find_spec("transformers") is None:
        return [Result(what, None, goal, "MB", "transformers is not installed")]
    step = _training_step(QUICK if quick else {})
    step()  # AdamW makes its state in the first one
    with tempfile.TemporaryDirectory() as directory:
        ops, tape = _tape_bytes(step, Path(directory, "step.tape"))
        trace = _execution_trace_bytes(step, Path(directory, "step.json"))
    return [
        Result(what, Spread.of([tape / 1e6]), goal, "MB", f"{number(ops)} ops, {number(tape / ops)} bytes per op"),
        Result(
            "the same against the JSON of ExecutionTraceObserver, ratio",
            Spread.of([tape / trace]),
            detail=f"{number(tape / 1e6)} against {number(trace / 1e6)} MB: 1/{number(trace / tape)}",
        ),
    ]


def _training_step(settings: dict[str, Any]) -> Callable[[], None]:
    """The model from its configuration, with random weights: how many bytes an op takes does not depend on them."""
    import torch

    transformers: Any = importlib.import_module("transformers")  # not all of it has types
    transformers.logging.set_verbosity_error()
    config = transformers.GPT2Config(**settings)
    model = transformers.GPT2LMHeadModel(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(config.vocab_size, (1, TOKENS))

    def step() -> None:
        optimizer.zero_grad()
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()

    return step


def _tape_bytes(step: Callable[[], None], path: Path) -> tuple[int, int]:
    """The number of ops, and the size of the file."""
    import torchreel

    tape = torchreel.trace(step)
    tape.save(path, data=False)
    return len(tape), path.stat().st_size


def _execution_trace_bytes(step: Callable[[], None], path: Path) -> int:
    from torch.profiler import ExecutionTraceObserver

    observer = ExecutionTraceObserver().register_callback(str(path))
    observer.start()
    step()
    observer.stop()
    observer.unregister_callback()
    return path.stat().st_size
