"""Objects of C code that are compared by identity alone, and given to ops as they are."""

import types

import torch

OPAQUE: set[type] = {
    types.ModuleType,
    torch.Generator,
    torch.Tag,
    torch._C.DispatchKeySet,
    torch._C.FunctionSchema,
    torch._C.Argument,
}
