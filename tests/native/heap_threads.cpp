// Threads that allocate, write, hand to each other, free, and ask: for a sanitizer to watch.
//
//     heap_threads SEED THREADS ROUNDS
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "memory/heap.h"

using namespace torchreel;

namespace {

// Blocks that one thread allocated and another one frees.
class Exchange {
 public:
  void give(Block* block) {
    std::lock_guard lock(mutex_);
    blocks_.push_back(block);
  }
  Block* take() {
    std::lock_guard lock(mutex_);
    if (blocks_.empty()) return nullptr;
    Block* block = blocks_.back();
    blocks_.pop_back();
    return block;
  }

 private:
  std::mutex mutex_;
  std::vector<Block*> blocks_;
};

Exchange exchange;

size_t random_size(std::mt19937& chance) {
  switch (chance() % 10) {
    case 0: return chance() % 3;
    case 1: return (1 << 20) + chance() % (3 << 20);
    case 2: return (1 << 20) - 64 - chance() % 300;
    case 3: return 64 * (chance() % 64);
    default: return chance() % 30'000;
  }
}

char mark_of(const Block* block) { return static_cast<char>(reinterpret_cast<uintptr_t>(block) >> 6); }

// At both ends: the pages between are nobody's business here.
void mark(Block* block) {
  char* data = static_cast<char*>(block->data());
  size_t bytes = block->requested;
  size_t part = std::min<size_t>(bytes, 256);
  memset(data, mark_of(block), part);
  memset(data + bytes - part, mark_of(block), part);
}

// The block holds what its owner wrote: nobody else was given the same bytes.
void check(Block* block) {
  const char* data = static_cast<const char*>(block->data());
  size_t bytes = block->requested;
  if (bytes > 0 && (data[0] != mark_of(block) || data[bytes - 1] != mark_of(block))) abort();
}

void drop(Block* block) {
  check(block);
  Heap::get().free(block);
}

void ask() {
  Heap& heap = Heap::get();
  HeapStats stats = heap.stats();
  if (stats.reserved < stats.cached) abort();
  size_t blocks = 0;
  {
    std::lock_guard told(heap.gate);
    heap.visit([&](Segment& segment) {
      size_t bytes = 0;
      for (Block* block = segment.first(); block != nullptr; block = block->next) {
        bool active = block->state.load(std::memory_order_relaxed) == BlockState::kActive;
        if (active && block->requested > block->size) abort();
        bytes += block->size;
        blocks++;
      }
      if (bytes != segment.size) abort();
    });
  }
  heap.reset_peaks();
}

void work(unsigned seed, int rounds) {
  std::mt19937 chance(seed);
  Heap& heap = Heap::get();
  std::vector<Block*> mine;
  for (int i = 0; i < rounds; i++) {
    unsigned what = chance() % 1000;
    if (what == 0) heap.empty_cache();
    if (what == 1) ask();
    if (what < 500 && mine.size() < 80) {
      Block* block = heap.allocate(random_size(chance));
      if (block == nullptr) abort();
      mark(block);
      if (!Heap::owns(block->data())) abort();
      mine.push_back(block);
    } else if (what < 650 && !mine.empty()) {
      exchange.give(mine.back());
      mine.pop_back();
    } else if (what < 800) {
      if (Block* block = exchange.take()) drop(block);
    } else if (!mine.empty()) {
      std::swap(mine[chance() % mine.size()], mine.back());
      drop(mine.back());
      mine.pop_back();
    }
  }
  for (Block* block : mine) drop(block);
}

}  // namespace

int main(int, char** arguments) {
  auto seed = static_cast<unsigned>(atoi(arguments[1]));
  Heap& heap = Heap::get();
  heap.configure({.huge_pages = false, .thread_caches = seed % 3 != 0, .decay_ms = 40});
  std::vector<std::thread> threads;
  for (int i = 0; i < atoi(arguments[2]); i++) threads.emplace_back(work, seed * 100 + i, atoi(arguments[3]));
  for (auto& thread : threads) thread.join();
  while (Block* block = exchange.take()) drop(block);
  heap.empty_cache();
  HeapStats stats = heap.stats();
  if (stats.allocated != 0 || stats.small.allocs != stats.small.frees || stats.large.allocs != stats.large.frees) {
    abort();
  }
  printf("%lu allocs\n", static_cast<unsigned long>(stats.small.allocs + stats.large.allocs));
  fflush(stdout);
  _Exit(0);  // the thread of the decay never ends
}
