"""Whose code a file is, by its path: the user's own, a library's, torch's or Python's own, C++."""

from __future__ import annotations

import re
import sys

USER, LIBRARY, TORCH, NATIVE = range(4)

_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_TORCH = re.compile(r"[/\\]torch[/\\](_\w+\.py|(nn|optim|autograd|utils|amp|cuda|distributed|_\w+)[/\\])")
_TORCH_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]torch[/\\]")
_TYPED_IN = ("<stdin>", "<ipython-input")
_GENERATED = re.compile(r"[/\\]torchinductor_\w+[/\\]")
# Traces of torch's profiler have paths without the directory of Python's search path that holds them.
_LIBRARIES = {
    "PIL",
    "accelerate",
    "aiter",
    "apex",
    "cv2",
    "datasets",
    "deepspeed",
    "diffusers",
    "einops",
    "fairscale",
    "flash_attn",
    "huggingface_hub",
    "jax",
    "lightning",
    "megatron",
    "numba",
    "numpy",
    "packaging",
    "pandas",
    "peft",
    "pydantic",
    "pytorch_lightning",
    "ray",
    "scipy",
    "sklearn",
    "timm",
    "tokenizers",
    "torchaudio",
    "torchrec",
    "torchvision",
    "tqdm",
    "transformers",
    "triton",
    "triton_kernels",
    "trl",
    "vllm",
    "xformers",
}
_SCRIPTS = frozenset({"code", "profile", "test", "this", "trace"})  # names of Python's own that users give to theirs
_PYTHON_ITSELF = re.compile(r"[/\\]lib[/\\]python3\.\d+[/\\]|\\Lib\\")


def owner_of(file: str) -> int:
    """USER, LIBRARY, TORCH (with Python's own library and code that a library wrote) or NATIVE."""
    if not file.endswith((".py", ".pyx", ".ipynb")) and not file.startswith("<"):
        return NATIVE
    if file.startswith("<") and not file.startswith(_TYPED_IN):
        return TORCH  # <frozen ...>, and code that a library wrote
    if _TORCH_INSTALLED.search(file) or (_TORCH.search(file) and not _INSTALLED.search(file)):
        return TORCH
    if _INSTALLED.search(file):
        return LIBRARY
    top, *below = re.split(r"[/\\]", file)
    if top and ":" not in top and not file.startswith("<"):  # no absolute path
        return _owner_by_package(top.removesuffix(".py"), bool(below))
    return TORCH if _PYTHON_ITSELF.search(file) or _GENERATED.search(file) else USER


def _owner_by_package(top: str, package: bool) -> int:
    if package and top == "torch":
        return TORCH
    if package and top in _LIBRARIES:
        return LIBRARY
    return TORCH if top in sys.stdlib_module_names and (package or top not in _SCRIPTS) else USER
