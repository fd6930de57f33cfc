"""Packages of AOTInductor: a model that was compiled to a native library ahead of time.

PyTorch sees what the library calls of it, and of the kernels that were generated for the model those alone that
announce themselves: the package must have been compiled with cpp.enable_kernel_profile. Where a kernel stands in the
user's program is told by a package that was compiled with trace.provenance_tracking_level=1.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchreel._torch.deployed import (
    compiled_model,
    has_avx2,
    has_avx512,
    is_compiled_model,
    load_structure,
    package_loader,
    unflatten,
)
from torchreel.edge.formats.adapter import Adapter, Calls, Deployed, Location, Undo
from torchreel.edge.formats.aotinductor.kernels import Kernels, folder_of, remember_folder, unpacked_packages
from torchreel.edge.formats.calls import watch_call
from torchreel.edge.formats.exported import pt2
from torchreel.edge.formats.exported.containers import stand_in
from torchreel.edge.formats.native_stderr import unheard
from torchreel.edge.formats.reasons import or_say
from torchreel.errors import EdgeError


def adapts(module: Any) -> bool:
    return is_compiled_model(module)


class AotInductor(Adapter):
    format = "AOTInductor"

    def __init__(self, module: Any) -> None:
        self._module = module
        folder = folder_of(module)
        self._kernels = Kernels(folder, module.get_constant_fqns())
        # The library lies in <archive>/data/aotinductor/<model>/.
        self.name = folder.parents[2].name if folder is not None else type(module).__name__
        self.remark = self._kernels.remark

    def check(self, locations: bool) -> None:
        """Modules may be known where lines are not."""
        super().check(locations and not self._kernels.are_located)

    @property
    def runnable(self) -> Any:
        return self._module

    def watch(self, calls: Calls) -> Undo:
        return watch_call(self._module, calls)

    def location_of_kernel(self, name: str, nth: int) -> Location | None:
        """Where the nth kernel of this name in one call stands, from 0; None if the package does not say it."""
        return self._kernels.location(name, nth)


def load(path: Path) -> Deployed:
    """Load an AOTInductor package. This runs its native code: that is what such a package is, so load none that you
    would not run as a program.
    """
    archive = pt2.open_archive(path)
    name = archive.only(archive.compiled_models(), "models that AOTInductor compiled", "package it by itself")
    # Without it the library believes that its inputs are those it was compiled for, and reads beyond them.
    os.environ.setdefault("AOTI_RUNTIME_CHECK_INPUTS", "1")
    model = _load_model(path, name)
    stand_in(model.loader.get_call_spec())

    has_run = False

    def run(tensors: Sequence[Any]) -> Any:
        nonlocal has_run
        import torch

        structure = load_structure(model.loader.get_call_spec()[0])
        if structure.num_leaves != len(tensors):
            raise EdgeError(
                f"The AOTInductor package takes {structure.num_leaves} inputs, and {len(tensors)} were given: give one "
                f"for each."
            )
        args, kwargs = unflatten(list(tensors), structure)
        # What is wrong with the inputs the library writes to standard error, and raises as well.
        with torch.no_grad(), contextlib.nullcontext() if has_run else unheard():
            answer = model(*args, **kwargs)
        has_run = True
        return answer

    return Deployed(model, run)


def _load_model(path: Path, name: str) -> Any:
    with or_say(
        f"The AOTInductor package {path} cannot be loaded",
        "Compile it again on this machine with torch._inductor.aoti_compile_and_package.",
    ):
        _refuse_other_machine(path, package_loader.load_metadata_from_package(str(path), name))
        before = unpacked_packages()
        model = compiled_model(package_loader(str(path), name, False, 1, -1))
    for folder in unpacked_packages() - before:
        remember_folder(model, folder)
    return model


def _refuse_other_machine(path: Path, metadata: dict[str, str]) -> None:
    """Native code of another machine ends the process, where PyTorch's own loader only warns."""
    instructions = metadata.get("AOTI_CPU_ISA", "")
    for key, here in (("AOTI_PLATFORM", sys.platform), ("AOTI_MACHINE", platform.machine())):
        if metadata.get(key, here) != here:
            raise EdgeError(_other_machine(path, metadata[key], here))
    if instructions.startswith(("AVX512", "AMX")) and not has_avx512():
        raise EdgeError(_other_machine(path, instructions, "without it"))
    if instructions.startswith("AVX2") and not has_avx2():
        raise EdgeError(_other_machine(path, instructions, "without it"))


def _other_machine(path: Path, compiled: str, here: str) -> str:
    return (
        f"The AOTInductor package {path} was compiled for {compiled}, and this machine is {here}: compile it again "
        f"here with torch._inductor.aoti_compile_and_package."
    )
