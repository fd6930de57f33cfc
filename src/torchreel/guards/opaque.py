"""Objects of C code that are compared by identity alone, and given to ops as they are."""

import types

import torch

from torchreel._torch.c_functions import OPAQUE_TYPES

OPAQUE: set[type] = {
    types.ModuleType,
    torch.Generator,
    torch.Tag,
    *OPAQUE_TYPES,
}
