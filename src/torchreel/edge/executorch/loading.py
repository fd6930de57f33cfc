"""An ExecuTorch program, loaded from its file to be run on torch tensors.

The runtime trusts its files: one that is damaged may crash the process, or never come back. So a program is first
run in a process of its own, and refused if that does not end well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from torchreel.edge.adapter import Deployed, InputSpec
from torchreel.edge.executorch.pte import Input, Method, read_methods
from torchreel.edge.executorch.runtime import runtime
from torchreel.edge.executorch.source import loaded_from
from torchreel.edge.native_stderr import unheard
from torchreel.errors import EdgeError

_TRIAL = Path(__file__).with_name("trial.py")
NOT_LOADED, NOT_RUN = 3, 4
"""How the trial ends if the runtime itself refuses the program, or the inputs that are tried."""
_PATIENCE_SECONDS = 60
_BYTES_PER_SECOND = 10_000_000


def load_measuring(path: Path) -> Deployed:
    """A program whose runtime measures its ops, after a trial."""
    if not path.is_file():
        raise EdgeError(f"There is no file {path}: give the path of an ExecuTorch program.")
    method = entry(path)
    library = runtime()
    check_needs(path, method, library)
    try_out(path)
    make_threads(library)
    module = open_program(library, path)
    loaded_from(module, path)
    specs = tuple(
        InputSpec(f"input_{index}", one.type.sizes, one.type.dtype) for index, one in enumerate(method.inputs)
    )
    return Deployed(module, lambda tensors: run_on_tensors(module, method, tensors), specs)


def make_threads(library: Any) -> None:
    """As many as torch has. The runtime tells of each file that it looks for when it makes them."""
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
        raise EdgeError(f"{path} cannot be loaded by ExecuTorch: {error}.") from error


def try_out(path: Path) -> None:
    """Load and run the program in a process of its own."""
    patience = _PATIENCE_SECONDS + path.stat().st_size // _BYTES_PER_SECOND
    try:
        # Without -P a file in the current directory could take the place of a package.
        ended = subprocess.run(
            [sys.executable, "-P", str(_TRIAL), str(path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EdgeError(
            f"{path} was tried for {patience} seconds in a process of its own, and did not come back: "
            "it may be damaged. Export it again."
        ) from error
    if ended.returncode < 0:
        name = signal.Signals(-ended.returncode).name
        raise EdgeError(
            f"{path} crashes ExecuTorch's runtime ({name}, in a process of its own): it is damaged, or was written by "
            "another release of ExecuTorch. Export it again."
        )
    if ended.returncode == NOT_LOADED:
        raise EdgeError(f"{path} cannot be loaded by ExecuTorch: {last_words(ended.stderr)}. Export it again.")
    if ended.returncode not in (0, NOT_RUN):
        raise EdgeError(
            f"{path} could not be tried in a process of its own: {last_words(ended.stderr)}. "
            f"Run `{sys.executable} -c 'import torchreel.edge'` to see what is wrong."
        )


def last_words(messages: bytes) -> str:
    """The last message of a process, without the place in ExecuTorch's source that stands before it."""
    lines = messages.decode(errors="replace").strip().splitlines()
    line = lines[-1] if lines else "it does not say why"
    return (line.partition("] ")[2] if line.startswith("[") else line).rstrip(".")


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
