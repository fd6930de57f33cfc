// Memory for what a tape records: an arena of mapped chunks, so that it does not fragment the program's own heap.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <type_traits>
#include <vector>

namespace torchreel::tape {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    for (auto& chunk : chunks_) give_back(chunk);
  }

  // Contiguous room for so many words. Its address is stable as long as the arena lives.
  uint64_t* take(size_t words) {
    if (words > left_) grow(words);
    uint64_t* at = at_;
    at_ += words;
    left_ -= words;
    return at;
  }

 private:
  static constexpr size_t kChunkWords = 1 << 15;
  static constexpr size_t kSpare = 16;  // chunks that the next tape finds warm
  struct Chunk {
    uint64_t* words;
    size_t count;
  };
  struct Spare {
    std::mutex mutex;
    std::vector<uint64_t*> chunks;
  };

  static Spare& spare() {
    static auto* spare = new Spare();
    return *spare;
  }

  static void give_back(const Chunk& chunk) {
    {
      std::lock_guard lock(spare().mutex);
      if (chunk.count == kChunkWords && spare().chunks.size() < kSpare) return spare().chunks.push_back(chunk.words);
    }
    munmap(chunk.words, chunk.count * 8);
  }

  static uint64_t* map(size_t count) {
    if (count == kChunkWords) {
      std::lock_guard lock(spare().mutex);
      if (!spare().chunks.empty()) {
        uint64_t* words = spare().chunks.back();
        spare().chunks.pop_back();
        return words;
      }
    }
    void* memory = mmap(nullptr, count * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<uint64_t*>(memory);
  }

  void grow(size_t words) {
    size_t count = std::max(words, kChunkWords);
    at_ = map(count);
    left_ = count;
    chunks_.push_back({at_, count});
  }

  uint64_t* at_ = nullptr;
  size_t left_ = 0;
  std::vector<Chunk> chunks_;
};

// A list that only grows, in an arena: addresses of its elements are stable.
template <class T>
class Log {
 public:
  explicit Log(Arena& arena) : arena_(arena) {}
  Log(const Log&) = delete;

  T& push_back(const T& value) {
    if (size_ % kBlock == 0) blocks_.push_back(reinterpret_cast<T*>(arena_.take((sizeof(T) * kBlock + 7) / 8)));
    T* slot = &blocks_[size_ / kBlock][size_ % kBlock];
    size_++;
    return *new (slot) T(value);
  }
  T& operator[](size_t index) { return blocks_[index / kBlock][index % kBlock]; }
  const T& operator[](size_t index) const { return blocks_[index / kBlock][index % kBlock]; }
  size_t size() const { return size_; }

 private:
  static_assert(std::is_trivially_destructible_v<T>);
  static constexpr size_t kBlock = 128;
  Arena& arena_;
  size_t size_ = 0;
  std::vector<T*> blocks_;
};

}  // namespace torchreel::tape
