"""A function of a user's script, with inputs for it: what `torchreel bench-graphs` measures."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from torchreel.errors import OptionError
from torchreel.graphs.call.entry import Graphed

EXAMPLE = "example_inputs"
_SHAPE = re.compile(r"(?P<sizes>\d+(?:x\d+)*)?(?::(?P<dtype>\w+))?")


@dataclass(frozen=True)
class Target:
    name: str  # as it was asked for: "model.py:step"
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] | None = None

    def call(self, function: Callable[..., Any]) -> Any:
        """Call something else on the same inputs."""
        return function(*self.arguments, **(self.keywords or {}))


def load_target(name: str, expression: str | None = None, shapes: Sequence[str] = ()) -> Target:
    """Import the script and find the function in it. Its inputs come from an expression, from shapes like 1x64:float32,
    or from `example_inputs` in the script, which is a value or a function that gives one."""
    path, _, attribute = name.rpartition(":")
    if not path or not attribute:
        raise OptionError(f"{name!r} names no function: write it as script.py:function.")
    if expression is not None and shapes:
        raise OptionError("--inputs and --shape both say what to call the function with: give one of them.")
    given = tuple(_tensor(shape) for shape in shapes)  # what is misspelt is told before the script runs
    module = _imported(path)
    function = _found(module, path, attribute)
    if shapes:
        return Target(name, function, given)
    return Target(name, function, *_arguments(_example(module, name, expression)))


def sentence_of(error: BaseException) -> str:
    """One line about an exception of the user's code: its text, and where it was raised."""
    said = " ".join(str(error).split())
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    room = str(Path(torch.__file__).parent)
    ours = str(Path(__file__).parents[2])
    own = [frame for frame in frames if not frame.filename.startswith((room, ours, "<frozen"))]
    where = f" (line {own[-1].lineno} of {Path(own[-1].filename).name})" if own else ""
    return f"{what[:300]}{where}"


def _imported(path: str) -> ModuleType:
    """The script as a module of its own name, so that what it does as __main__ is not done."""
    file = Path(path)
    if not file.is_file():
        raise OptionError(f"There is no script {path}: check the path before the colon.")
    name = file.stem if file.stem.isidentifier() and file.stem not in sys.modules else "torchreel_measured_script"
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    if spec is None or spec.loader is None:
        raise OptionError(f"{path} is not a Python script: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.resolve().parent))
    sys.argv = [path]
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit as leaving:
        raise OptionError(
            f"{path} ended itself with exit code {leaving.code} while it was imported: put what it does as a program "
            "below if __name__ == '__main__'."
        ) from None
    except Exception as error:
        raise OptionError(f"{path} cannot be imported: {sentence_of(error)}.") from None
    return module


def _found(module: ModuleType, path: str, attribute: str) -> Callable[..., Any]:
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            known = [name for name, each in vars(module).items() if callable(each) and not name.startswith("_")]
            raise OptionError(f"{path} has no {attribute}: it has {', '.join(known) or 'no function at all'}.")
        value = getattr(value, part)
    if isinstance(value, type) or not callable(value):
        raise OptionError(f"{attribute} of {path} is no function but {_kind(value)}: name a function or a module.")
    # If it is graphed already, measure the function inside.
    function: Callable[..., Any] = value.__wrapped__ if isinstance(value, Graphed) else value
    return function


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


def _example(module: ModuleType, name: str, expression: str | None) -> Any:
    if expression is not None:
        try:
            return eval(expression, {**vars(module), "torch": torch})
        except Exception as error:
            raise OptionError(f"--inputs {expression!r} cannot be evaluated: {sentence_of(error)}.") from None
    example = getattr(module, EXAMPLE, ())
    if not callable(example) or isinstance(example, torch.Tensor):
        return example
    try:
        return example()
    except Exception as error:
        raise OptionError(f"{EXAMPLE}() beside {name} cannot be called: {sentence_of(error)}.") from None


def _arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any] | None]:
    """A tuple holds the arguments, a dictionary those by name; anything else is the only one."""
    if isinstance(example, tuple):
        return example, None
    if isinstance(example, dict) and all(isinstance(key, str) for key in example):
        return (), example
    return (example,), None


def _tensor(shape: str) -> torch.Tensor:
    """A tensor of random numbers; of whole numbers, zeros and ones, which are indices into almost anything."""
    match = _SHAPE.fullmatch(shape.strip())
    if match is None:
        raise OptionError(f"--shape {shape!r} is no shape: write sizes and a dtype as 1x64:float32, or one of them.")
    name = match["dtype"] or "float32"
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise OptionError(f"--shape {shape!r}: there is no dtype {name}: write one as torch names it, such as float32.")
    sizes = [int(size) for size in match["sizes"].split("x")] if match["sizes"] else []
    if math.prod(sizes) * dtype.itemsize > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4:
        raise OptionError(f"--shape {shape!r} takes more than a quarter of this machine's memory: give a smaller one.")
    try:
        if dtype.is_floating_point or dtype.is_complex:
            return torch.randn(sizes, dtype=dtype if dtype.itemsize > 1 else torch.float32).to(dtype)
        return torch.randint(0, 2, sizes, dtype=dtype)
    except RuntimeError as error:
        raise OptionError(f"--shape {shape!r} cannot be made: {sentence_of(error)}.") from None
