// Memory for what a tape records: bumped from mapped chunks, so that the program's own heap is not cut into pieces by
// it.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace torchreel::tape {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    for (auto& chunk : chunks_) munmap(chunk.words, chunk.count * 8);
  }

  // Room for that many words in a row; stays where it is as long as the arena.
  uint64_t* take(size_t words) {
    if (words > left_) grow(words);
    uint64_t* at = at_;
    at_ += words;
    left_ -= words;
    return at;
  }

  template <class T>
  T* make() {
    static_assert(sizeof(T) % 8 == 0);
    return new (take(sizeof(T) / 8)) T();
  }

 private:
  static constexpr size_t kChunkWords = 1 << 15;
  struct Chunk {
    uint64_t* words;
    size_t count;
  };

  void grow(size_t words) {
    size_t count = std::max(words, kChunkWords);
    void* memory = mmap(nullptr, count * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    at_ = static_cast<uint64_t*>(memory);
    left_ = count;
    chunks_.push_back({at_, count});
  }

  uint64_t* at_ = nullptr;
  size_t left_ = 0;
  std::vector<Chunk> chunks_;
};

}  // namespace torchreel::tape
