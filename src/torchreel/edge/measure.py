"""A deployed model measured from its file: loaded, warmed up, and run within EdgeProfiler."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from torchreel.edge.example_inputs import check_count, declared_inputs, given_inputs, tensor_words
from torchreel.edge.formats.adapter import Deployed
from torchreel.edge.formats.formats import load
from torchreel.edge.profiler import EdgeProfiler
from torchreel.errors import EdgeError
from torchreel.reel import Reel


@dataclass(frozen=True)
class MeasureOptions:
    repeat: int = 20
    warmup: int = 3
    threads: int | None = None  # as many as torch chooses
    shapes: bool = False
    memory: bool = False
    stack: bool = False
    modules: bool = False
    flops: bool = False
    counters: tuple[str, ...] = ()
    nested: bool = False  # ops within ops as well
    lenient: bool = False  # go without modules where the model's file does not know them


@dataclass(frozen=True)
class Model:
    """A model from a file, with inputs to run it on."""

    path: Path
    deployed: Deployed
    inputs: list[torch.Tensor]

    def run(self) -> Any:
        """Run it once. What it raises is told in a sentence."""
        try:
            return self.deployed.run(self.inputs)
        except Exception as error:
            words = " ".join(f"--input {tensor_words(tensor)}" for tensor in self.inputs) or "no inputs"
            raise EdgeError(
                f"{self.path} cannot run on {words}: {_reason(error)}. "
                "Check the sizes, dtypes and values of its inputs."
            ) from None


@dataclass(frozen=True)
class Measurement:
    """What came of a model; the reel has the times."""

    path: Path
    format: str
    name: str
    bytes: int  # of the file
    inputs: tuple[str, ...]
    threads: int
    warmup: int
    reel: Reel
    remark: str | None  # what of the model could not be known, and why


def load_model(path: Path, words: Sequence[str], threads: int | None = None, check: bool = True) -> Model:
    """Load the file, with inputs of these words, or, without any, such as the file declares."""
    given = given_inputs(words)  # what is misspelt is told before the model is loaded
    deployed = load_quietly(path, threads, check)
    if not words:
        return Model(path, deployed, declared_inputs(path, deployed.inputs))
    check_count(path, given, deployed.inputs)
    return Model(path, deployed, given)


def load_quietly(path: Path, threads: int | None, check: bool) -> Deployed:
    """Load the file. A runtime that has threads of its own makes them now, as many as torch has."""
    with with_threads(threads), quiet():
        return load(path, check)


def warm_up(model: Model, options: MeasureOptions) -> None:
    """Run the model as often as was asked for. What is wrong with its inputs is told here."""
    with with_threads(options.threads), quiet(), torch.inference_mode():
        for _ in range(options.warmup):
            model.run()


def measure(model: Model, reel: Path, options: MeasureOptions) -> Measurement:
    """Run the model within EdgeProfiler, and give what was recorded."""
    with with_threads(options.threads), quiet(), torch.inference_mode():
        profiler = _profiler(model, reel, options)
        with profiler:
            try:
                for _ in range(options.repeat):
                    model.run()
            except KeyboardInterrupt:
                profiler.discard()
                raise
        return Measurement(
            path=model.path,
            format=profiler.format,
            name=profiler.name,
            bytes=_size(model.path),
            inputs=tuple(tensor_words(tensor) for tensor in model.inputs),
            threads=torch.get_num_threads(),
            warmup=options.warmup,
            reel=profiler.result(),
            remark=profiler.remark,
        )


def _profiler(model: Model, reel: Path, options: MeasureOptions) -> EdgeProfiler:
    try:
        return EdgeProfiler(
            model.deployed.module,
            reel,
            report_input_shapes=options.shapes,
            profile_memory=options.memory,
            with_stack=options.stack,
            with_flops=options.flops,
            with_modules=options.modules,
            events=options.counters,
            nested=options.nested,
        )
    except EdgeError:
        if not (options.lenient and options.modules):
            raise
        return _profiler(model, reel, replace(options, modules=False))


def _size(path: Path) -> int:
    """The size of the file, with that of the file beside it in which ONNX keeps weights."""
    files = [path, path.with_name(f"{path.name}.data")]
    return sum(file.stat().st_size for file in files if file.is_file())


def _reason(error: Exception) -> str:
    """The line that says it: the last one with an error's name, since TorchScript puts a traceback before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [found[1] for line in lines if (found := re.match(r"\w*(?:Error|Exception): (.+)", line))]
    return (named[-1] if named else lines[0] if lines else type(error).__name__).rstrip(".")


@contextlib.contextmanager
def with_threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What a model prints goes to standard error: standard output is for the answer."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
