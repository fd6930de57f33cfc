"""The operators of ATen as torchgen reads them: schema, kernels by dispatch key, formulas of derivatives.

torchgen comes with torch, and reading its tables does not import torch. It takes seconds, so what was read is kept in
the user's cache directory, named after all that it was made from: another torch or another torchreel finds nothing
there. A file that cannot be read or written is as good as none.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchreel.atlas import cache
from torchreel.errors import first_line

if TYPE_CHECKING:
    from torchgen.gen import ParsedYaml
    from torchgen.model import NativeFunction, OperatorName

_FILES = ("ATen/native/native_functions.yaml", "ATen/native/tags.yaml", "autograd/derivatives.yaml")
_DEFAULT = "Default"  # the formulas for all dispatch keys that have none of their own
# What runs a call of plain CPU tensors, in the order in which the dispatcher looks for it.
_FIRST = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")


class Kernel(msgspec.Struct, array_like=True, frozen=True):
    """A function that runs an operator for one dispatch key."""

    key: str
    name: str
    """Without its namespace: `layer_norm_cpu`."""
    structured: bool = False
    """Whether it is written as TORCH_IMPL_FUNC(name), in the name of the out= overload."""
    generated: bool = False
    """Whether the build of torch writes it, so that no source file has it."""


class Derivative(msgspec.Struct, array_like=True, frozen=True):
    """A formula of derivatives.yaml, as it stands there."""

    arguments: str
    """Whose gradients it gives: `self`, or `input, weight, bias`."""
    formula: str
    key: str = ""
    """The dispatch key that it is for, if it is not for all."""


class Schema(msgspec.Struct, array_like=True, frozen=True):
    """One overload of an operator."""

    text: str
    """`aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`"""
    kernels: list[Kernel] = []
    """That which plain CPU tensors reach first, if there is one, then the others by key."""
    derivatives: list[Derivative] = []
    """Of backward. Overloads with out= have none, and others may get theirs from the operators that they call."""
    delegate: str = ""
    """The structured overload whose kernels it runs, if it has none of its own: `aten::add.out`."""

    @property
    def on_cpu(self) -> Kernel | None:
        """The kernel that a call of plain CPU tensors reaches."""
        return self.kernels[0] if self.kernels and self.kernels[0].key in _FIRST else None


Schemas = dict[str, Schema]
"""By name and overload: `aten::add.Tensor`, `aten::mm`."""


class Read(msgspec.Struct):
    """What torchgen knows, or a sentence why it is not known."""

    schemas: Schemas = {}
    problem: str = ""


def operator_schemas() -> Read:
    """All operators of the torch that is installed."""
    files = _files()
    if files is None:
        return Read(
            problem="Schemas, kernels and derivatives are read by torchgen, and there is none here: "
            "install torch, which it comes with, to see them."
        )
    try:
        path = _cache_file(files)
        kept = _kept(path)
        if kept is not None:
            return Read(kept)
        schemas = _read(files)
    except Exception as error:  # of a torchgen that is another than this was written for, whatever it may raise
        problem = f"{type(error).__name__}: {first_line(error, 200)}"
        return Read(problem=f"torchgen cannot read the operators of this torch ({problem}): install torch 2.13.")
    cache.keep(path, msgspec.msgpack.encode(schemas))
    return Read(schemas)


def _files() -> tuple[Path, ...] | None:
    """The tables that torchgen ships with; None if there is no torchgen, or it has none."""
    found = importlib.util.find_spec("torchgen")
    if found is None or not found.submodule_search_locations:
        return None
    files = tuple(Path(found.submodule_search_locations[0], "packaged", name) for name in _FILES)
    return files if all(file.is_file() for file in files) else None


def _cache_file(files: Iterable[Path]) -> Path | None:
    """Where what is made of these files is kept; None if there is no place for it."""
    digest = hashlib.sha256(_version().encode())
    for file in (*files, Path(__file__)):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    folder = cache.folder()
    return folder / f"operators-{digest.hexdigest()[:32]}.msgpack" if folder is not None else None


def _version() -> str:
    """torchgen's: that of the torch that it comes with."""
    import importlib.metadata

    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _kept(path: Path | None) -> Schemas | None:
    try:
        return None if path is None else msgspec.msgpack.decode(path.read_bytes(), type=Schemas)
    except (OSError, ValueError, RecursionError):  # MsgspecError is a ValueError, and so is text that is not UTF-8
        return None


def _read(files: tuple[Path, ...]) -> Schemas:
    from torchgen.gen import parse_native_yaml

    native, tags, _ = files
    parsed = parse_native_yaml(str(native), str(tags))
    derivatives = _derivatives(files, parsed.native_functions)
    return {
        f"{one.namespace}::{one.func.name}": Schema(
            f"{one.namespace}::{one.func}",
            _kernels(one, parsed),
            derivatives.get(one.func.name, []),
            f"{one.namespace}::{one.structured_delegate}" if one.structured_delegate is not None else "",
        )
        for one in parsed.native_functions
    }


def _kernels(function: NativeFunction, parsed: ParsedYaml) -> list[Kernel]:
    """Its own kernels; for keys that have none, those of the structured out= overload that it delegates to."""
    found: dict[str, Kernel] = {}
    for key, index in parsed.backend_indices.items():
        for name in (function.func.name, function.structured_delegate):
            kernel = index.index.get(name) if name is not None else None
            if kernel is not None and str(key) not in found:
                generated = _is_generated(function, kernel.kernel, str(key))
                found[str(key)] = Kernel(str(key), kernel.kernel, kernel.structured, generated)
    order = {key: place for place, key in enumerate(_FIRST)}
    return sorted(found.values(), key=lambda kernel: (order.get(kernel.key, len(order)), kernel.key))


def _is_generated(function: NativeFunction, kernel: str, key: str) -> bool:
    """Whether torchgen writes the kernel: inner loops of ufuncs, overloads made of others, copies made of views."""
    copies = "view_copy" in function.tags and function.func.name.name.base.endswith("_copy")
    return (
        kernel.startswith("ufunc_")
        or "generated" in function.tags
        or (copies and key == "CompositeExplicitAutogradNonFunctional")
    )


def _derivatives(files: tuple[Path, ...], functions: list[NativeFunction]) -> dict[OperatorName, list[Derivative]]:
    from torchgen.api.autograd import match_differentiability_info
    from torchgen.model import SchemaKind
    from torchgen.packaged.autograd.load_derivatives import load_derivatives

    native, tags, formulas = (str(file) for file in files)
    infos, _ = load_derivatives(formulas, native, tags)
    found: dict[OperatorName, list[Derivative]] = {}
    for one in match_differentiability_info(functions, infos):
        if one.info is None or one.func.func.kind() == SchemaKind.out:
            continue
        found[one.func.func.name] = [
            Derivative(", ".join(each.var_names), each.original_formula, "" if key == _DEFAULT else key)
            for key, info in one.info.items()
            for each in info.derivatives
        ]
    return found
