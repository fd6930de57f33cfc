// Blocks, the segments that they tile, and the pools in which the free ones wait.
#pragma once

#include <cstdint>
#include <deque>
#include <memory_resource>
#include <set>
#include <tuple>
#include <vector>

#include "simulator/rules.h"

namespace torchreel::simulator {

struct Pool;
struct Segment;

enum class BlockState : uint8_t {
  kFree,
  kPending,  // freed, but still in use by a stream
  kAllocated,
  kUnmapped,  // address space of an expandable segment without memory behind it
};

struct Block {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t requested = 0;
  uint64_t stream = 0;
  int64_t counter = 0;  // which of equal blocks was first, as the order has it
  Segment* segment = nullptr;
  Pool* pool = nullptr;
  Block* previous = nullptr;
  Block* next = nullptr;
  int64_t calls = 0;    // of its pool, when it became free: what its age is counted from
  uint64_t handle = 0;  // whatever the program calls it
  uint64_t ticket = 0;  // its place among the pending ones; 0: it is none
  uint64_t room = 0;    // bytes behind it that may turn out to be its own: only in a rebuilt state
  BlockState state = BlockState::kFree;

  uint64_t end() const { return address + size; }
  bool is_free() const { return state == BlockState::kFree; }
  bool is_split() const { return previous != nullptr || next != nullptr; }
};

// What was taken from the device at once: memory, or address space that memory is mapped into page by page.
struct Segment {
  uint64_t base = 0;
  uint64_t size = 0;
  uint64_t page = 0;  // 0: not expandable
  int64_t counter = 0;
  Block* head = nullptr;

  bool expandable() const { return page != 0; }
};

// A free block's place: within a stream by size, then by the order's counter.
struct FreeKey {
  uint64_t stream;
  uint64_t size;
  int64_t counter;
  uint64_t address;
  Block* block;

  friend bool operator<(const FreeKey& a, const FreeKey& b) {
    if (a.stream != b.stream) return a.stream < b.stream;
    if (a.size != b.size) return a.size < b.size;
    if (a.counter != b.counter) return a.counter < b.counter;
    return a.address < b.address;
  }
};

struct AddressLess {
  bool operator()(const Block* a, const Block* b) const {
    return std::tie(a->stream, a->address) < std::tie(b->stream, b->address);
  }
};

using FreeSet = std::pmr::set<FreeKey>;

// The free blocks of one size class: all segments of a pool hold either small or large blocks.
struct Pool {
  Pool(bool small, int owner, std::pmr::memory_resource* memory) : small(small), owner(owner), free(memory) {}

  bool small;
  int owner;  // index of the private pool that it belongs to; 0 for the default one
  FreeSet free;
  std::set<Block*, AddressLess> unmapped;
  int64_t calls = 0;  // how often a free block was asked for, counted while garbage is collected

  static FreeKey key(Block* block) { return {block->stream, block->size, block->counter, block->address, block}; }
  void insert(Block* block) {
    block->state = BlockState::kFree;
    block->calls = calls;
    free.insert(key(block));
  }
  void erase(Block* block) { free.erase(key(block)); }
  // The first block of the stream that has at least so many bytes, or one of a later stream, or none.
  FreeSet::iterator first(uint64_t stream, uint64_t size) {
    return free.lower_bound({stream, size, std::numeric_limits<int64_t>::min(), 0, nullptr});
  }
  int64_t age(const Block* block) const { return calls - block->calls; }
};

// Memory of its own for a captured graph or by the user's wish. The first one is the default pool.
struct PoolPair {
  PoolPair(int index, std::pmr::memory_resource* memory) : small(true, index, memory), large(false, index, memory) {}

  Pool small;
  Pool large;
  bool released = false;    // nobody uses it any more: its free segments may go
  bool no_split = false;    // blocks are handed out whole
  bool use_on_oom = false;  // others may take free blocks of it before anything is released
  bool retries = true;      // whether a failed request may release what is cached: not while a graph is captured
  bool own_device = false;  // a device allocator of the user's: never expandable
};

// Blocks that are used again, at addresses that stay.
class BlockArena {
 public:
  Block* make() {
    if (spare_.empty()) return &blocks_.emplace_back();
    Block* block = spare_.back();
    spare_.pop_back();
    *block = Block{};
    return block;
  }
  void drop(Block* block) { spare_.push_back(block); }

 private:
  std::deque<Block> blocks_;
  std::vector<Block*> spare_;
};

}  // namespace torchreel::simulator
