// Tiling of elementwise ops: all ops of a chain run on one tile of elements before the next tile, so that intermediate
// results stay in the cache. The bits are torch's, because tiles begin where its vectors begin.
#pragma once

#include <memory>
#include <vector>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

// Memory that ops of a chain read or write element by element.
struct Region {
  char* begin;
  size_t item;           // bytes of an element
  bool scratch = false;  // used within the chain only: memory for one tile is enough
};

struct Chain {
  int64_t elements = 0;
  std::vector<Region> regions;  // that the calls use
  std::vector<const KernelCall*> calls;
};

bool is_pointwise(const tape::OpInfo& op);
bool is_single(const at::Tensor& tensor);  // one number for all elements
Region region_of(const at::Tensor& tensor);

// Whether the call gives the same in tiles: an elementwise op on memory without gaps.
bool is_tileable(const KernelCall& call);

// Whether torch splits so many elements among its threads in the same way for every op.
bool has_one_partition(int64_t elements);

// `kernels` are those of the calls, for runs with another number of threads. Returns null, and leaves `kernels` as they
// are, if the chain cannot be tiled.
std::unique_ptr<Kernel> tiled(const Chain& chain, std::vector<std::unique_ptr<Kernel>>& kernels);

}  // namespace torchreel::graphs
