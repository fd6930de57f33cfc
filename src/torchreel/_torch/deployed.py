"""Private parts of torch.export, AOTInductor, pytree and TorchScript. Functions here import the readers of files."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils import _pytree

# pytree

# A structure from its text; and leaves put into a structure.
load_structure = _pytree.treespec_loads
unflatten = _pytree.tree_unflatten

# Classes by the name under which files know them.
known_containers = _pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE

# Makes a class known. Unlike the public function, it does not tell pytrees of C++.
register_container = _pytree._private_register_pytree_node

# torch.export


def is_module_of_program(module: Any) -> bool:
    """Whether ExportedProgram.module() made it. torch imports the class of such modules when it makes the first one."""
    unlift: Any = sys.modules.get("torch.export._unlift")
    return unlift is not None and isinstance(module, unlift._StatefulGraphModule)


def load_pt2(path: str) -> Any:
    """A .pt2 file with all that it holds. torch 2.8 or later."""
    from torch.export.pt2_archive._package import load_pt2

    return load_pt2(path)


def open_pt2(path: str) -> Any:
    """A reader of the files in a .pt2 file. torch 2.8 or later. The import takes seconds."""
    from torch.export.pt2_archive._package import PT2ArchiveReader

    return PT2ArchiveReader(path)


def lines_of_nodes(module: torch.fx.GraphModule) -> dict[int, int | None]:
    """The lines of a graph module's generated code, counted from "def", with the index of the node of each."""
    return getattr(module, "_lineno_map", None) or {}


# AOTInductor

# Opens a package: (path, model, one thread, runners, device). load_metadata_from_package() reads no code.
package_loader = torch._C._aoti.AOTIModelPackageLoader

# Which instructions this machine has.
has_avx2 = torch.cpu._is_avx2_supported
has_avx512 = torch.cpu._is_avx512_supported


def compiled_model(loader: Any) -> Any:
    """The model that a package loader holds, to be called. torch 2.8 or later."""
    from torch.export.pt2_archive._package import AOTICompiledModel

    return AOTICompiledModel(loader)


def is_compiled_model(module: Any) -> bool:
    """Whether it is a model of an AOTInductor package. If nobody has imported its class, it is not."""
    package: Any = sys.modules.get("torch.export.pt2_archive._package")
    return package is not None and isinstance(module, package.AOTICompiledModel)


# TorchScript

# The name of the op ("aten::add") that TorchScript has for a function of torch, or None.
builtin_of = torch.jit._builtins._find_builtin


def load_lite(path: str) -> Any:
    """A model of the lite interpreter, on the CPU."""
    from torch.jit.mobile import _load_for_lite_interpreter

    return _load_for_lite_interpreter(path, map_location="cpu")


def cpp_module_of_lite(module: Any) -> Any:
    """The C++ object inside of a LiteScriptModule."""
    return module._c
