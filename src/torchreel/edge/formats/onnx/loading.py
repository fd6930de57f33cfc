"""An ONNX model, loaded from its file to be run on torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from torchreel.edge.formats.adapter import Deployed, InputSpec
from torchreel.edge.formats.onnx.profile import dtype_name
from torchreel.edge.formats.onnx.session import Measurement, measuring_session, runtime, sentence
from torchreel.errors import EdgeError


def load_measuring(path: Path) -> tuple[Deployed, Measurement]:
    """The model in a session that measures itself. Nothing is written beside the model."""
    onnxruntime = runtime()
    if not path.is_file():
        raise EdgeError(f"There is no file {path}: give the path of an ONNX model.")
    options = onnxruntime.SessionOptions()
    # Told beside other formats of the model, it may have as many threads as those have.
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        session, measurement = measuring_session(str(path), options, [("CPUExecutionProvider", {})])
    except Exception as error:
        raise EdgeError(
            f"{path} cannot be loaded as an ONNX model: {sentence(error)} "
            "Export it again, and keep the file of its weights, if it has one, beside it."
        ) from error
    specs = tuple(_spec(one) for one in session.get_inputs())

    def run(tensors: Sequence[Any]) -> Any:
        return run_on_tensors(session, specs, tensors)

    return Deployed(session, run, specs), measurement


def run_on_tensors(session: Any, specs: Sequence[InputSpec], tensors: Sequence[Any]) -> Any:
    """Call a session once: the memory of the tensors is handed over as it is, if it is in order and on the CPU."""
    if len(tensors) != len(specs):
        names = ", ".join(spec.name for spec in specs)
        raise EdgeError(f"The model's inputs are {names or 'none'}, {len(specs)} in all, and {len(tensors)} are given.")
    feed = {spec.name: _array(spec, tensor) for spec, tensor in zip(specs, tensors, strict=True)}
    try:
        results = session.run(None, feed)
    except Exception as error:
        raise EdgeError(f"ONNX Runtime says: {sentence(error)}") from error
    answers = tuple(_tensor(one) for one in results)
    return answers[0] if len(answers) == 1 else answers


def _array(spec: InputSpec, tensor: torch.Tensor) -> Any:
    try:
        return tensor.detach().cpu().contiguous().numpy()
    except TypeError as error:
        raise EdgeError(
            f"Input {spec.name} cannot be given to ONNX Runtime as {str(tensor.dtype).removeprefix('torch.')}, "
            "because NumPy has no such type: give it as float32 or float16."
        ) from error


def _tensor(result: Any) -> Any:
    """Sequences and maps stay as they are; so do texts, which torch has no tensors of."""
    try:
        return torch.from_numpy(result)
    except TypeError:
        return result


def _spec(argument: Any) -> InputSpec:
    """An input as ONNX Runtime describes it: tensor(float), and a name for a size that may vary."""
    if not argument.type.startswith("tensor("):
        return InputSpec(argument.name, None, None)
    sizes = (
        None if argument.shape is None else tuple(size if isinstance(size, int) else None for size in argument.shape)
    )
    return InputSpec(argument.name, sizes, dtype_name(argument.type.removeprefix("tensor(").removesuffix(")")))
