// The arena of a thread: one range of addresses for all of its graphs. Outputs that a user holds are leased; graphs may
// write all else.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace torchreel {
struct PrivatePools;
}

namespace torchreel::graphs {

struct Range {  // in bytes from the beginning of the pool
  size_t begin = 0, end = 0;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

// Sorted, without overlaps.
std::vector<Range> merged(std::vector<Range> ranges);

class Pool;

// A spin lock, for a few nanoseconds and mostly one thread: half the price of a mutex.
class Brief {
 public:
  void lock() {
    while (taken_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() { taken_.clear(std::memory_order_release); }

 private:
  std::atomic_flag taken_;
};

// A range of the pool that somebody holds. Any thread may end it, once.
struct Lease {
  static constexpr uint32_t kLent = UINT32_MAX;
  std::shared_ptr<Pool> pool;
  Range range;
  const void* maker = nullptr;  // the graph that wrote it
  uint32_t output = 0;          // which of its outputs, or kLent: an op was given it, and may keep it
  uint32_t index = 0;           // among the pool's leases
  bool passing = false;         // the next run takes it over
  // Of a lease that ends with the step: its storage, and the message for whoever reads the storage later.
  c10::StorageImpl* storage = nullptr;
  std::shared_ptr<const std::string> over;
};

class Pool : public std::enable_shared_from_this<Pool> {
 public:
  static constexpr size_t kAlignment = 64;

  Pool();
  ~Pool();
  Pool(const Pool&) = delete;

  // Of the calling thread. Lives until the thread has ended and nobody holds memory of it.
  static const std::shared_ptr<Pool>& of_this_thread();
  // Of all threads.
  static std::vector<std::shared_ptr<Pool>> all();
  // Gives memory that nobody holds back to the system, in all pools. Returns how many were skipped, because a graph
  // runs.
  static size_t trim_all();
  // A second pool, for graphs whose outputs are copied. Only ops that keep arguments have leases on it.
  static const std::shared_ptr<Pool>& scratch_of_this_thread();
  // Whether its thread has ended.
  bool is_left() const { return left_; }
  std::mutex running;  // held while a graph runs on it

  char* at(size_t offset) const { return base_ + offset; }
  // Throws if the pool has not so many addresses. The system gives memory when it is first written.
  void reach(size_t end);
  size_t reached() const { return reached_; }
  // Together with its scratch.
  size_t total_reached() const { return reached() + (scratch_ == nullptr ? 0 : scratch_->reached()); }

  Lease* lease(Range range, const void* maker, uint32_t output);
  static void end(Lease* lease);
  // Memory that ends its lease when it is freed.
  at::DataPtr data(Lease* lease);
  // The same, for a storage that begins at another address.
  at::DataPtr data(Lease* lease, void* begin);
  // Null if the storage is not in a pool.
  static Lease* lease_of(const c10::StorageImpl& storage);

  // Every lease is its holder's again: the run that would have taken some over failed.
  void stop_passing();
  // The first lease that these ranges, merged, would overwrite, or null.
  const Lease* first_in(const std::vector<Range>& ranges) const;
  std::vector<Range> leased() const;
  size_t leases() const;

  // Where in the tree of graphs this thread is.
  uint32_t position = 0;          // the graph that ran last in this step; 0 at its beginning
  std::vector<const void*> path;  // replays that ran in this step
  void begin_step();

  // The replay that ran last in this thread, by its id, and its ThreadBranches here. Guarded by `running`.
  uint64_t last_replay = 0;
  void* last_branches = nullptr;

 private:
  friend struct LivingPools;
  static void free_lease(void* lease);
  void shrink(size_t end);
  // Gives all but leased ranges back to the system. Graphs find zeros there.
  void trim();

  uint64_t id_ = 0;  // for snapshots
  char* base_ = nullptr;
  size_t size_ = 0;
  std::atomic<size_t> reached_{0};
  std::atomic<bool> left_{false};
  std::shared_ptr<Pool> scratch_;  // used while `running` of this pool is held
  mutable Brief mutex_;
  std::vector<Lease*> leases_;
  std::vector<Lease*> spare_;
};

// Reports every change of a pool from now on to these callbacks, by which all pools can be listed, too. Call it before
// the first pool is made.
void set_private_pools(const PrivatePools* pools);

}  // namespace torchreel::graphs
