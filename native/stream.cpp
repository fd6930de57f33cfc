#include "stream.h"

#include <sys/mman.h>

#include "counters.h"
#include "frames.h"
#include "inputs.h"
#include "recording.h"

namespace torchreel {

namespace {
Stream idle;  // has no room: a thread without a stream takes the slow way at its first event
}

__thread Stream* current_stream __attribute__((tls_model("initial-exec"))) = &idle;

Stream::~Stream() {
  delete stacks;
  delete inputs;
  delete counters;
}

uint64_t* put_stack(Stream* stream, uint64_t* at) {
  uint32_t id = 0;
  if (!walk_stack(*stream->stacks, stream->recording->frames, id) || id == stream->stack) return at;
  stream->stack = id;
  *at++ = layout::kStack | static_cast<uint64_t>(id) << layout::kIdShift;
  return at;
}

void ChunkPool::configure(size_t chunk_bytes, size_t most) {
  std::lock_guard lock(mutex_);
  if (chunk_bytes != chunk_bytes_) {
    for (uint64_t* words : free_) munmap(words, chunk_bytes_);
    free_.clear();
  }
  chunk_bytes_ = chunk_bytes;
  most_ = most;
  in_use_ = 0;
}

Chunk ChunkPool::take() {
  std::lock_guard lock(mutex_);
  Chunk chunk;
  if (in_use_ >= most_) return chunk;
  if (free_.empty()) {
    // Slabs of huge pages: a page fault per 4 KiB would cost more than recording does.
    size_t bytes = std::max(kSlabBytes, chunk_bytes_);
    size_t count = std::min(bytes / chunk_bytes_, most_ - in_use_);
    void* slab = mmap(nullptr, count * chunk_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slab == MAP_FAILED) return chunk;
    madvise(slab, count * chunk_bytes_, MADV_HUGEPAGE);
    for (size_t i = count; i-- > 0;) {
      free_.push_back(reinterpret_cast<uint64_t*>(static_cast<char*>(slab) + i * chunk_bytes_));
    }
  }
  chunk.words = free_.back();
  chunk.capacity = chunk_bytes_ / 8;
  free_.pop_back();
  in_use_++;
  return chunk;
}

void ChunkPool::give(Chunk chunk) {
  if (chunk.words == nullptr) return;
  std::lock_guard lock(mutex_);
  if (in_use_ > 0) in_use_--;
  if (chunk.capacity * 8 == chunk_bytes_) {
    free_.push_back(chunk.words);
  } else {
    munmap(chunk.words, chunk.capacity * 8);  // of an earlier recording with another size
  }
}

void ChunkPool::release() {
  std::lock_guard lock(mutex_);
  for (uint64_t* words : free_) munmap(words, chunk_bytes_);
  free_.clear();
}

}  // namespace torchreel
