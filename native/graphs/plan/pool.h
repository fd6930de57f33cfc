// One range of addresses for all graphs of a thread. What a user still holds of it is leased; all else may be written.
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

// A lock that is held for some nanoseconds, and mostly wanted by one thread alone: half the price of a mutex.
class Brief {
 public:
  void lock() {
    while (taken_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() { taken_.clear(std::memory_order_release); }

 private:
  std::atomic_flag taken_;
};

// A part of the pool that somebody holds. Given back once, from whatever thread.
struct Lease {
  static constexpr uint32_t kLent = UINT32_MAX;
  std::shared_ptr<Pool> pool;
  Range range;
  const void* maker = nullptr;  // the graph that wrote it
  uint32_t output = 0;          // which of its outputs, or kLent: an op was given it, and may keep it
  uint32_t index = 0;           // among the pool's leases
  bool passing = false;         // the run that is about to begin takes it over
  // Of one that ends with the step: its storage, and what is said to whoever reads it later.
  c10::StorageImpl* storage = nullptr;
  std::shared_ptr<const std::string> over;
};

class Pool : public std::enable_shared_from_this<Pool> {
 public:
  static constexpr size_t kAlignment = 64;

  Pool();
  ~Pool();
  Pool(const Pool&) = delete;

  // The one of the calling thread. It lives as long as the thread, or as somebody holds memory of it.
  static const std::shared_ptr<Pool>& of_this_thread();
  // Those of all threads, each with its scratch if it has one.
  static std::vector<std::shared_ptr<Pool>> all();
  // Gives back what nobody holds, in all of them. Gives the number of pools in which a graph runs: they stay.
  static size_t trim_all();
  // Another, for graphs whose outputs are copied: leases on it are those of ops alone.
  static const std::shared_ptr<Pool>& scratch_of_this_thread();
  // Whether its thread has ended.
  bool is_left() const { return left_; }
  std::mutex running;  // held while a graph runs on it

  char* at(size_t offset) const { return base_ + offset; }
  // Throws if there is no such place: the memory itself comes when it is first written.
  void reach(size_t end);
  size_t reached() const { return reached_; }
  // Together with its scratch.
  size_t total_reached() const { return reached() + (scratch_ == nullptr ? 0 : scratch_->reached()); }

  Lease* lease(Range range, const void* maker, uint32_t output);
  static void end(Lease* lease);
  // Memory that ends its lease when it is freed.
  at::DataPtr data(Lease* lease);
  // The same, with its storage beginning elsewhere.
  at::DataPtr data(Lease* lease, void* begin);
  // Null if the storage is no memory of a pool.
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
  // The memory is the system's again, but for what is leased; graphs that are still there find zeros.
  void trim();

  uint64_t id_ = 0;  // by which snapshots know it
  char* base_ = nullptr;
  size_t size_ = 0;
  std::atomic<size_t> reached_{0};
  std::atomic<bool> left_{false};
  std::shared_ptr<Pool> scratch_;  // used while `running` of this pool is held
  mutable Brief mutex_;
  std::vector<Lease*> leases_;
  std::vector<Lease*> spare_;
};

// Whom every change of a pool is reported to from now on, and who may ask for all of them. Before the first pool is
// made.
void set_private_pools(const PrivatePools* pools);

}  // namespace torchreel::graphs
