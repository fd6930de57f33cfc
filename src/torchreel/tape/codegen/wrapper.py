"""A schema -> the C++ of its wrapper: a kernel that puts the call on the tape and then calls the one below."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchgen.model import NativeFunction

# The names that a wrapper uses itself: an argument of the same name gets an underscore.
LOCALS = {"keys", "op", "call", "kernel", "result"}

_RECORDED = """\
  static const OpInfo& op = op_named("aten::{base}", "{overload}");
  Call call(op);
{arguments}
"""

_RETURNS = """\
{type} {name}({formals}) {{
  if (!is_recording()) return {below};
{recorded}  decltype(auto) result = [&]() -> decltype(auto) {{
    Below kernel(call);
    return {below};
  }}();
  call.result(result);
  return result;
}}
"""

_RETURNS_NOTHING = """\
void {name}({formals}) {{
  if (!is_recording()) return {below};
{recorded}  {{
    Below kernel(call);
    {below};
  }}
  call.result();
}}
"""


def include_of(function: NativeFunction) -> str:
    """The header that declares what the wrapper calls."""
    return f"#include <ATen/ops/{function.root_name}_ops.h>"


def name_of(function: NativeFunction) -> str:
    """The name of the wrapper, which no other has."""
    name: str = function.func.name.unambiguous_name()
    return name


def registration_of(function: NativeFunction) -> str:
    """The statement that makes the wrapper the op's kernel.

    By its address rather than by TORCH_FN: what torch instantiates for a kernel then depends on its type alone, and is
    shared by all of that type in a file.
    """
    return f'  aten.impl("{function.func.name}", &{name_of(function)});'


def signature_of(function: NativeFunction) -> str:
    """The C++ type of the kernel."""
    from torchgen.api.types import DispatcherSignature
    from torchgen.context import native_function_manager

    with native_function_manager(function):
        signature: str = DispatcherSignature.from_schema(function.func).type()
    return signature


def definition_of(function: NativeFunction) -> str:
    """The wrapper."""
    from torchgen.api.types import DispatcherSignature
    from torchgen.context import native_function_manager

    with native_function_manager(function):
        signature = DispatcherSignature.from_schema(function.func)
        arguments = [(argument.type, _local(argument.name)) for argument in signature.arguments()]
        returned = signature.returns_type().cpp_type()
    names = [name for _, name in arguments]
    name = function.func.name
    recorded = _RECORDED.format(
        base=name.name,
        overload=name.overload_name,
        arguments="\n".join(f"  call.argument({argument});" for argument in names),
    )
    return (_RETURNS_NOTHING if returned == "void" else _RETURNS).format(
        type=returned,
        name=name_of(function),
        formals=", ".join(["c10::DispatchKeySet keys", *(f"{type_} {argument}" for type_, argument in arguments)]),
        below=f"at::_ops::{name_of(function)}::redispatch({', '.join(['below(keys)', *names])})",
        recorded=recorded if names else recorded.rstrip() + "\n",
    )


def _local(name: str) -> str:
    return f"{name}_" if name in LOCALS else name
