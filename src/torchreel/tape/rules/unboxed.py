"""Which functions can have an unboxed wrapper: those whose every type native/tape/capture.h knows how to put down."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchgen.model import NativeFunction

# Types of schemas, without what makes lists and optionals of them.
ARGUMENTS = {
    "Tensor",
    "int",
    "SymInt",
    "float",
    "bool",
    "Scalar",
    "str",
    "ScalarType",
    "Layout",
    "Device",
    "MemoryFormat",
    "Generator",
    "Storage",
}
RETURNS = {"Tensor", "int", "float", "bool", "Scalar"}

_LIST_OR_OPTIONAL = re.compile(r"\?|\[\d*\]")


def boxed_because(function: NativeFunction) -> str:
    """Why a function can be recorded by the boxed fallback only; empty if it need not be."""
    if function.has_composite_implicit_autograd_kernel:
        return "torch takes it apart, and the tape has its parts"
    for argument in function.func.schema_order_arguments():
        if _element(argument.type) not in ARGUMENTS:
            return f"{argument.name} is a {argument.type}, which a wrapper cannot put down"
    for result in function.func.returns:
        if _element(result.type) not in RETURNS:
            return f"it returns a {result.type}, which a wrapper cannot put down"
    return ""


def _element(type_: object) -> str:
    return _LIST_OR_OPTIONAL.sub("", str(type_))
