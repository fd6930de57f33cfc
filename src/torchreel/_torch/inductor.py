"""Private parts of Inductor that compile an FX graph to C++ kernels.

Importing this imports Inductor, which takes seconds: only the process that compiles does so.
"""

from __future__ import annotations

from torch._inductor import config as config  # its settings
from torch._inductor.async_compile import AsyncCompile as AsyncCompile
from torch._inductor.codecache import CppCodeCache as CppCodeCache
from torch._inductor.codecache import _get_cpp_prefix_header
from torch._inductor.compile_fx import compile_fx_inner as compile_fx_inner
from torch._inductor.decomposition import select_decomp_table

# AsyncCompile.cpp_pybinding() compiles a kernel, from the types of its arguments and its source.
# CppCodeCache.load() compiles a source to a library, and loads it.
# compile_fx_inner() compiles an FX graph for example inputs.

# The path of the header that all kernels include, for a device.
cpp_prefix_header = _get_cpp_prefix_header

# Makes the table by which ops are taken apart before Inductor sees them.
decompositions = select_decomp_table
