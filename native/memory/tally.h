// How much memory CPU tensors have: levels, their peaks, and the sums of all that came and went. The heap, the history
// (of blocks that the system's allocator made) and private pools count here together, so that a peak is that of all of
// them. From whatever thread; needs no lock.
#pragma once

#include <atomic>
#include <cstdint>

namespace torchreel {

class Tally {
 public:
  enum Kind { kBlocks, kBytes, kRequested, kSegments, kReserved, kKinds };
  enum Pool { kSmall, kLarge, kAll, kPools };

  struct Stat {
    int64_t current = 0, peak = 0, allocated = 0, freed = 0;

    // For those that have a lock of their own.
    void change(int64_t amount) {
      current += amount;
      peak = current > peak ? current : peak;
      (amount > 0 ? allocated : freed) += amount > 0 ? amount : -amount;
    }
  };

  static Tally& get();

  // Changes a level alone: whoever calls keeps the sums.
  void rise(Kind kind, Pool pool, int64_t amount) {
    levels_[pool].now[kind].fetch_add(amount, std::memory_order_relaxed);
    raise_peaks(kind, pool);
  }
  void fall(Kind kind, Pool pool, int64_t amount) {
    levels_[pool].now[kind].fetch_sub(amount, std::memory_order_relaxed);
  }
  // The same for the large blocks of the heap, which have a lock of their own: at half the price.
  void rise_in_heap(Kind kind, int64_t amount) {
    auto& now = levels_[kHeap].now[kind];
    now.store(now.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
    raise_peaks(kind, kLarge);
  }
  void fall_in_heap(Kind kind, int64_t amount) {
    auto& now = levels_[kHeap].now[kind];
    now.store(now.load(std::memory_order_relaxed) - amount, std::memory_order_relaxed);
  }
  // Changes a level and its sums.
  void add(Kind kind, Pool pool, int64_t amount) {
    sums_[pool].added[kind].fetch_add(amount, std::memory_order_relaxed);
    rise(kind, pool, amount);
  }
  void remove(Kind kind, Pool pool, int64_t amount) {
    sums_[pool].removed[kind].fetch_add(amount, std::memory_order_relaxed);
    fall(kind, pool, amount);
  }

  // A block of a private pool, which is as large as what was requested: a third of the price of three kinds.
  void add_private(int64_t bytes) {
    private_added_.blocks.fetch_add(1, std::memory_order_relaxed);
    private_added_.bytes.fetch_add(bytes, std::memory_order_relaxed);
    for (auto kind : {kBlocks, kBytes, kRequested}) raise_peaks(kind, kLarge);
  }
  void remove_private(int64_t bytes) {
    private_removed_.blocks.fetch_add(1, std::memory_order_relaxed);
    private_removed_.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }

  // Without the sums of those that keep them.
  Stat read(Kind kind, Pool pool) const;
  int64_t now(Kind kind, Pool pool) const {
    if (pool == kAll) return now(kind, kSmall) + now(kind, kLarge);
    int64_t level = levels_[pool].now[kind].load(std::memory_order_relaxed);
    if (pool == kSmall) return level;
    level += levels_[kHeap].now[kind].load(std::memory_order_relaxed);
    // Removed first: what is added meanwhile would make it negative.
    int64_t removed = private_removed_.of(kind);
    return level + private_added_.of(kind) - removed;
  }
  void reset_peaks();

 private:
  using Counter = std::atomic<int64_t>;

  static constexpr int kHeap = 2;  // beside small and large: the large ones of the heap

  static void raise(Counter& peak, int64_t level) {
    int64_t known = peak.load(std::memory_order_relaxed);
    while (level > known && !peak.compare_exchange_weak(known, level, std::memory_order_relaxed)) {
    }
  }
  void raise_peaks(Kind kind, Pool pool) {
    int64_t here = now(kind, pool);
    raise(peaks_[pool].of[kind], here);
    raise(peaks_[kAll].of[kind], here + now(kind, pool == kSmall ? kLarge : kSmall));
  }

  struct alignas(64) Level {
    Counter now[kKinds] = {};
  };
  struct alignas(64) Peaks {
    Counter of[kKinds] = {};
  };
  struct alignas(64) Sums {
    Counter added[kKinds] = {};
    Counter removed[kKinds] = {};
  };
  struct alignas(64) Private {
    Counter blocks = 0;
    Counter bytes = 0;

    int64_t of(Kind kind) const {
      if (kind == kBlocks) return blocks.load(std::memory_order_relaxed);
      return kind == kBytes || kind == kRequested ? bytes.load(std::memory_order_relaxed) : 0;
    }
  };
  Level levels_[3];
  Private private_added_, private_removed_;
  Peaks peaks_[kPools];
  Sums sums_[2];
};

}  // namespace torchreel
