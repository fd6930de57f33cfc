#include "record/stream.h"

#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "cpython/frames.h"
#include "record/counters.h"
#include "record/inputs.h"
#include "record/recording.h"

namespace torchreel {

namespace {
Stream idle;  // has no room: a thread without a stream takes the slow way at its first event
}

__thread Stream* current_stream __attribute__((tls_model("initial-exec"))) = &idle;

void leave_stream() { current_stream = &idle; }

Stream::~Stream() {
  delete stacks;
  delete inputs;
  delete counters;
}

uint64_t* put_stack(Stream* stream, uint64_t* at) {
  uint32_t id = 0;
  bool python = walk_stack(*stream->stacks, stream->recording->frames, id);
  // What an op of TorchScript calls stands where that op does.
  if (stream->open_ops > 0 && stream->scripted && id == stream->python_stack) return at;
  stream->python_stack = id;
  bool was_scripted =
      std::exchange(stream->scripted, add_script_frames(*stream->stacks, stream->recording->frames, id));
  if ((!python && !was_scripted && !stream->scripted) || id == stream->stack) return at;
  stream->stack = id;
  *at++ = layout::kStack | static_cast<uint64_t>(id) << layout::kIdShift;
  return at;
}

bool barrier_all_threads() {
  static const bool registered = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  return registered && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void ChunkPool::configure(size_t chunk_bytes, size_t most_bytes) {
  std::lock_guard lock(mutex_);
  chunk_bytes_ = chunk_bytes;
  most_ = most_bytes;
}

// Slabs of huge pages: a page fault per 4 KiB would cost more than recording does.
bool ChunkPool::add_slab() {
  size_t bytes = std::min(kSlabBytes, most_) / chunk_bytes_ * chunk_bytes_;
  void* mapped = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  auto first = reinterpret_cast<uintptr_t>(mapped);
  uintptr_t base = (first + kHugePage - 1) / kHugePage * kHugePage;
  if (base > first) munmap(mapped, base - first);
  if (base < first + kHugePage) munmap(reinterpret_cast<void*>(base + bytes), first + kHugePage - base);
  madvise(reinterpret_cast<void*>(base), bytes, MADV_HUGEPAGE);
  Slab slab{bytes, chunk_bytes_, {}};
  for (size_t at = bytes; at > 0; at -= chunk_bytes_) {
    slab.free.push_back(reinterpret_cast<uint64_t*>(base + at - chunk_bytes_));
  }
  slabs_.emplace(base, std::move(slab));
  mapped_ += bytes;
  return true;
}

ChunkPool::Slabs::iterator ChunkPool::unmap(Slabs::iterator slab) {
  munmap(reinterpret_cast<void*>(slab->first), slab->second.bytes);
  mapped_ -= slab->second.bytes;
  return slabs_.erase(slab);
}

Chunk ChunkPool::take() {
  std::lock_guard lock(mutex_);
  if (in_use_ + chunk_bytes_ > most_) return {};
  auto has_room = [&](const auto& slab) {
    return slab.second.chunk_bytes == chunk_bytes_ && !slab.second.free.empty();
  };
  auto slab = std::find_if(slabs_.begin(), slabs_.end(), has_room);
  if (slab == slabs_.end()) {
    if (!add_slab()) return {};
    slab = std::find_if(slabs_.begin(), slabs_.end(), has_room);
  }
  Chunk chunk;
  chunk.words = slab->second.free.back();
  chunk.capacity = chunk_bytes_ / 8;
  slab->second.free.pop_back();
  in_use_ += chunk_bytes_;
  return chunk;
}

Chunk ChunkPool::take_exact(size_t words) {
  Chunk chunk;
  chunk.words = new (std::nothrow) uint64_t[words];
  if (chunk.words == nullptr) return chunk;
  chunk.capacity = words;
  chunk.exact = true;
  in_use_ += words * 8;
  return chunk;
}

void ChunkPool::give(const Chunk& chunk) {
  if (chunk.words == nullptr) return;
  in_use_ -= chunk.capacity * 8;
  if (chunk.exact) {
    delete[] chunk.words;
    return;
  }
  std::lock_guard lock(mutex_);
  auto slab = std::prev(slabs_.upper_bound(reinterpret_cast<uintptr_t>(chunk.words)));
  slab->second.free.push_back(chunk.words);
  if (!slab->second.is_free()) return;
  // One that is free is kept for who comes next.
  auto free = std::count_if(slabs_.begin(), slabs_.end(), [](const auto& other) { return other.second.is_free(); });
  if (free > 1) unmap(slab);
}

void ChunkPool::release() {
  std::lock_guard lock(mutex_);
  for (auto slab = slabs_.begin(); slab != slabs_.end();) slab = slab->second.is_free() ? unmap(slab) : std::next(slab);
}

void ChunkPool::child_after_fork() {
  for (auto slab = slabs_.begin(); slab != slabs_.end();) slab = unmap(slab);
  in_use_ = 0;
  mutex_.unlock();
}

}  // namespace torchreel
