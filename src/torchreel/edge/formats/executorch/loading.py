"""An ExecuTorch program, loaded from its file to be run on torch tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from torchreel.edge.formats.adapter import Deployed, InputSpec
from torchreel.edge.formats.executorch.pte import Input, Method, read_methods
from torchreel.edge.formats.executorch.runtime import runtime
from torchreel.edge.formats.executorch.source import loaded_from
from torchreel.edge.formats.native_stderr import unheard
from torchreel.errors import EdgeError, first_line


def load_measuring(path: Path) -> Deployed:
    """A program whose runtime measures its ops."""
    if not path.is_file():
        raise EdgeError(f"There is no file {path}: give the path of an ExecuTorch program.")
    method = entry(path)
    library = runtime()
    check_needs(path, method, library)
    make_threads(library)
    module = open_program(library, path)
    check_method(library, path, method)
    loaded_from(module, path)
    specs = tuple(
        InputSpec(f"input_{index}", one.type.sizes, one.type.dtype) for index, one in enumerate(method.inputs)
    )
    return Deployed(module, lambda tensors: run_on_tensors(module, method, tensors), specs)


def make_threads(library: Any) -> None:
    """Make as many threads as torch has. The runtime prints each file that it looks for meanwhile."""
    with unheard():
        if library._threadpool_get_thread_count() != torch.get_num_threads():
            library._unsafe_reset_threadpool(torch.get_num_threads())


def entry(path: Path) -> Method:
    """The method that is run: forward, or the only one."""
    methods = read_methods(path)
    if "forward" in methods:
        return methods["forward"]
    if len(methods) == 1:
        return next(iter(methods.values()))
    raise EdgeError(
        f"{path} has no method named forward, and its methods are: {_list(methods) or 'none'}. Export it with one."
    )


def check_needs(path: Path, method: Method, library: Any) -> None:
    """A runtime is built with some operators and delegates, not with all."""
    operators = set(method.operators) - set(library._get_operator_names())
    if operators:
        raise EdgeError(
            f"{path} needs operators that the installed ExecuTorch runtime lacks: {_list(operators)}. "
            "Import the library that registers them first, or export the program without them."
        )
    delegates = set(method.delegates) - set(library._get_registered_backend_names())
    if delegates:
        raise EdgeError(
            f"{path} was made for delegates that the installed ExecuTorch runtime lacks: "
            f"{_list(delegates)}. Export the program for one that it has: "
            f"{_list(library._get_registered_backend_names())}."
        )


def _list(names: Iterable[str]) -> str:
    """Names of a file that may be damaged: what a terminal could take for a command is written as an escape."""
    return ", ".join(name if name.isprintable() else ascii(name) for name in sorted(names))


def weights_beside(path: Path) -> str | None:
    """Weights that were saved apart from the program, in model.ptd beside model.pte."""
    weights = path.with_suffix(".ptd")
    return str(weights) if weights.is_file() else None


def open_program(library: Any, path: Path) -> Any:
    try:
        return library._load_for_executorch(str(path), data_path=weights_beside(path), enable_etdump=True)
    except RuntimeError as error:
        raise _not_loaded(path, error) from error


def check_method(library: Any, path: Path, method: Method) -> None:
    """The module itself loads its methods when they are called."""
    with unheard():
        try:
            library._load_program(str(path), data_path=weights_beside(path)).load_method(method.name)
        except RuntimeError as error:
            raise _not_loaded(path, error) from error


def _not_loaded(path: Path, error: RuntimeError) -> EdgeError:
    return EdgeError(f"{path} cannot be loaded by ExecuTorch: {first_line(error)}. Export it again.")


def run_on_tensors(module: Any, method: Method, tensors: Sequence[Any]) -> Any:
    if len(tensors) != len(method.inputs):
        raise EdgeError(f"The program takes {len(method.inputs)} inputs, and {len(tensors)} are given.")
    values = [
        _value(index, one, tensor) for index, (one, tensor) in enumerate(zip(method.inputs, tensors, strict=True))
    ]
    try:
        answers = module.run_method(method.name, values)
    except RuntimeError as error:
        raise EdgeError(f"ExecuTorch says: {str(error).rstrip('.')}.") from error
    return answers[0] if len(answers) == 1 else tuple(answers)


def _value(index: int, wanted: Input, tensor: torch.Tensor) -> Any:
    """The runtime says what is wrong with an input on its own stderr, in its own words: so it is checked before."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype != wanted.type.dtype:
        raise EdgeError(f"Input {index} of the program is {wanted.type.dtype}, and {dtype} is given.")
    sizes, limit = tuple(tensor.shape), wanted.type.sizes
    fits = sizes == limit if wanted.is_static else len(sizes) == len(limit) and all(map(int.__le__, sizes, limit))
    if not fits:
        most = "" if wanted.is_static else "at most "
        raise EdgeError(f"Input {index} of the program is {most}{_by(limit)}, and {_by(sizes)} is given.")
    if wanted.is_tensor:
        return tensor.detach().cpu().contiguous()
    number = tensor.item()
    if wanted.value is not None and number != wanted.value:
        raise EdgeError(f"Input {index} of the program is the number {wanted.value}, and {number} is given.")
    return number


def _by(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes)) or "a number"
