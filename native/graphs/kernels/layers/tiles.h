// Ops that work element by element, all of them on one tile of elements before the next tile: what passes from one to
// the other stays in the cache. The bits are torch's, since tiles begin where its vectors do.
#pragma once

#include <memory>
#include <vector>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

// Memory that ops of a chain read or write element by element.
struct Region {
  char* begin;
  size_t item;           // bytes of an element
  bool scratch = false;  // of no use before the chain and after it: there need be but one tile of it
};

struct Chain {
  int64_t elements = 0;
  std::vector<Region> regions;  // all that the calls use
  std::vector<const KernelCall*> calls;
};

bool is_pointwise(const tape::OpInfo& op);
bool is_single(const at::Tensor& tensor);  // one number for all elements
Region region_of(const at::Tensor& tensor);

// Whether the call gives in tiles what it gives at once: an op of one element each, on memory without gaps.
bool is_tileable(const KernelCall& call);

// Whether torch parts so many elements among its threads in the same way for every op.
bool has_one_partition(int64_t elements);

// `kernels` are those of the calls, for runs with another number of threads. Gives nothing, and leaves them, where the
// chain cannot be done so.
std::unique_ptr<Kernel> tiled(const Chain& chain, std::vector<std::unique_ptr<Kernel>>& kernels);

}  // namespace torchreel::graphs
