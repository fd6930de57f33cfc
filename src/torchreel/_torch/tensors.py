"""Private parts of tensors and storages. Attributes are read by attrgetter, which adds no frame of Python."""

from __future__ import annotations

from operator import attrgetter

import torch

# The address of a storage's StorageImpl: equal for all tensors that share memory.
storage_address = attrgetter("_cdata")

# How many owners a StorageImpl has, by its address.
storage_use_count = torch._C._storage_Use_Count

# How many owners a TensorImpl has. A method of Tensor.
tensor_use_count = torch.Tensor._use_count

# Whether a tensor is a view of another. A method of Tensor.
is_view = torch.Tensor._is_view

# The tensor that a view is a view of, or None; how often a tensor was written.
base_of = attrgetter("_base")
version_of = attrgetter("_version")

# The address of a tensor's data. Unlike data_ptr(), it leaves a copy-on-write tensor shared.
data_address = torch._C._data_address

# The indices and values of a sparse tensor, coalesced or not. Methods of Tensor.
sparse_indices = torch.Tensor._indices
sparse_values = torch.Tensor._values

# The view that negates: tensors with the negative bit.
negative_view = torch._neg_view

# Whether elements of a tensor share memory: 0 no, 1 yes (OVERLAPS), 2 too hard to tell.
internal_overlap = torch._debug_has_internal_overlap
OVERLAPS = 1
