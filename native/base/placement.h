// Where the blocks of one thread are put while it runs one op. Graphs have a place for what an op makes already.
#pragma once

#include <cstddef>

namespace torchreel {

// Asked by the allocator, in the thread that set it, for every block of that thread. May throw nothing, and must not
// allocate tensors.
class Placement {
 public:
  virtual ~Placement() = default;
  // A place for a block of so many bytes, which no allocator will free; or null: the allocator makes one.
  virtual void* take(size_t bytes) = 0;
  // Of a block that the allocator made.
  virtual void made(void* block, size_t bytes) = 0;
  // Whether the block is a place that was taken; all others go back to where they came from.
  virtual bool give_back(void* block) = 0;
};

// Sets that of the calling thread, null for none, and gives the one before.
using PlaceBlocks = Placement* (*)(Placement* placement);

}  // namespace torchreel
