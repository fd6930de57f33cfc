"""A structured function of ATen -> the C++ of its kernel: meta() when it is made, impl() at each run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchreel.tape.rules.schemas import NAMESPACE, parsed

if TYPE_CHECKING:
    from torchgen.model import NativeFunctionsGroup

# The C++ type of an argument in torch -> its reader in structured.h of native/, what a kernel holds of it, and
# whether torch is given a reference that is made of that.
_HELD = {
    "const at::Tensor &": ("tensor_in", "at::Tensor", False),
    "at::OptionalTensorRef": ("tensor_in", "at::Tensor", True),
    "const at::ITensorListRef &": ("tensors_in", "std::vector<at::Tensor>", True),
    "at::IOptTensorListRef": ("optional_tensors_in", "c10::List<std::optional<at::Tensor>>", True),
    "const at::Scalar &": ("scalar_in", "at::Scalar", False),
    "at::OptionalScalarRef": ("optional_scalar_in", "std::optional<at::Scalar>", True),
    "at::IntArrayRef": ("ints_in", "std::vector<int64_t>", False),
    "at::ArrayRef<int64_t>": ("ints_in", "std::vector<int64_t>", False),
    "at::OptionalIntArrayRef": ("optional_ints_in", "std::optional<std::vector<int64_t>>", True),
    "int64_t": ("int_in", "int64_t", False),
    "::std::optional<int64_t>": ("optional_int_in", "std::optional<int64_t>", False),
    "double": ("float_in", "double", False),
    "::std::optional<double>": ("optional_float_in", "std::optional<double>", False),
    "bool": ("bool_in", "bool", False),
    "::std::optional<bool>": ("optional_bool_in", "std::optional<bool>", False),
    "at::ScalarType": ("dtype_in", "at::ScalarType", False),
    "::std::optional<at::ScalarType>": ("optional_dtype_in", "std::optional<at::ScalarType>", False),
    "c10::string_view": ("text_in", "std::string", False),
    "::std::optional<c10::string_view>": ("optional_text_in", "std::optional<std::string>", True),
}

_CLASS = """\
class {name} final : public Structured<{native}> {{
 public:
  explicit {name}(const KernelCall& call)
      : {initial} {{
    {made}meta({meta});
    check(call);
  }}

  void run() override {{
    renew();
    impl({impl});
  }}

 private:
{members}
}};
"""


def native_class(group: NativeFunctionsGroup) -> str:
    """Torch's own class for the CPU, which has both halves."""
    from torchgen.model import DispatchKey

    kernel = parsed().backend_indices[DispatchKey.CPU].get_kernel(group)
    assert kernel is not None  # it is of `structured_groups`
    return f"{kernel.cpp_namespace}::structured_{kernel.kernel}"


def class_name(group: NativeFunctionsGroup) -> str:
    """The name of the kernel, which no other has."""
    name: str = group.functional.func.name.unambiguous_name()
    return f"kernel_{name}"


def include_of(group: NativeFunctionsGroup) -> str:
    """The header that declares torch's class."""
    return f"#include <ATen/ops/{group.root_name}_native.h>"


def names_of(group: NativeFunctionsGroup) -> list[str]:
    """The ops that the kernel does: the functional one, the one in place and the one with out=."""
    functions = [group.functional, group.inplace, group.out]
    return [f"{NAMESPACE}{function.func.name}" for function in functions if function is not None]


def definition_of(group: NativeFunctionsGroup) -> str:
    """The kernel."""
    from torchgen.api import structured
    from torchgen.context import native_function_manager

    with native_function_manager(group.out):
        arguments = [(b.name, _HELD[b.nctype.type.cpp_type()]) for b in structured.meta_arguments(group)]
        wanted = [b.name for b in structured.impl_arguments(group)]
    given = {name: f"reference({name}_)" if refers else f"{name}_" for name, (_, _, refers) in arguments}
    made = _precomputed(group)
    results = len(group.out.func.arguments.out)
    impl = [f"precomputed_.{name}" if name in made else given[name] for name in wanted[:-results]]
    members = [f"  {held} {name}_;" for name, (_, held, _) in arguments]
    if made:
        members.append("  meta_return_ty precomputed_;")
    return _CLASS.format(
        name=class_name(group),
        native=native_class(group),
        initial=",\n        ".join(
            ["Structured(call)", *(f"{name}_({reader}(call, {i}))" for i, (name, (reader, *_)) in enumerate(arguments))]
        ),
        made="precomputed_ = " if made else "",
        meta=", ".join(given.values()),
        impl=", ".join([*impl, *(f"outputs[{index}]" for index in range(results))]),
        members="\n".join(members),
    )


def _precomputed(group: NativeFunctionsGroup) -> set[str]:
    """What meta() computes of arguments for impl() to use in their place."""
    if not group.out.precomputed:
        return set()
    replaced = [*group.out.precomputed.replace.values(), group.out.precomputed.add]
    return {argument.name for arguments in replaced for argument in arguments}
