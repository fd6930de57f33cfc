#include "pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace torchreel::graphs {

std::vector<Range> merged(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> all;
  for (const auto& range : ranges) {
    if (range.begin == range.end) continue;
    if (!all.empty() && range.begin <= all.back().end) {
      all.back().end = std::max(all.back().end, range.end);
    } else {
      all.push_back(range);
    }
  }
  return all;
}

// Addresses cost nothing; a machine that forbids to reserve many gets fewer.
Pool::Pool() {
  for (size_t size = size_t{1} << 36; size >= size_t{1} << 28; size >>= 2) {
    void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) continue;
    base_ = static_cast<char*>(base);
    size_ = size;
    return;
  }
  throw std::runtime_error("This process may not reserve 256 MiB of addresses for the memory of graphs (ulimit -v).");
}

Pool::~Pool() {
  munmap(base_, size_);
  for (Lease* lease : spare_) delete lease;
}

const std::shared_ptr<Pool>& Pool::of_this_thread() {
  struct Owner {
    std::shared_ptr<Pool> pool = std::make_shared<Pool>();
    ~Owner() { pool->left_ = true; }
  };
  thread_local Owner owner;
  return owner.pool;
}

const std::shared_ptr<Pool>& Pool::scratch_of_this_thread() {
  thread_local std::shared_ptr<Pool> pool = std::make_shared<Pool>();
  return pool;
}

void Pool::reach(size_t end) {
  if (end > size_) {
    throw std::runtime_error("The graphs of this thread need " + std::to_string(end >> 20) +
                             " MiB, and this process may reserve " + std::to_string(size_ >> 20) + " MiB.");
  }
  reached_ = std::max(reached_, end);
}

Lease* Pool::lease(Range range, const void* maker, uint32_t output) {
  std::lock_guard lock(mutex_);
  Lease* lease;
  if (spare_.empty()) {
    lease = new Lease();
  } else {
    lease = spare_.back();
    spare_.pop_back();
  }
  lease->pool = shared_from_this();
  lease->range = range;
  lease->maker = maker;
  lease->output = output;
  lease->passing = false;
  lease->storage = nullptr;
  lease->over = nullptr;
  lease->place = static_cast<uint32_t>(leases_.size());
  leases_.push_back(lease);
  return lease;
}

void Pool::end(Lease* lease) {
  auto pool = std::move(lease->pool);  // it may be the last to hold the pool
  std::lock_guard lock(pool->mutex_);
  pool->leases_[lease->place] = pool->leases_.back();
  pool->leases_[lease->place]->place = lease->place;
  pool->leases_.pop_back();
  pool->spare_.push_back(lease);
}

void Pool::free_lease(void* lease) { end(static_cast<Lease*>(lease)); }

at::DataPtr Pool::data(Lease* lease) {
  return at::DataPtr(at(lease->range.begin), lease, &Pool::free_lease, c10::Device(c10::DeviceType::CPU));
}

Lease* Pool::lease_of(const c10::StorageImpl& storage) {
  const auto& data = const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
  return data.get_deleter() == &Pool::free_lease ? static_cast<Lease*>(data.get_context()) : nullptr;
}

const Lease* Pool::first_in(const std::vector<Range>& ranges) const {
  std::lock_guard lock(mutex_);
  for (const Lease* lease : leases_) {
    if (lease->passing) continue;
    // The first range that ends behind the beginning of the lease is the only one that can overlap it first.
    auto next = std::upper_bound(ranges.begin(), ranges.end(), lease->range.begin,
                                 [](size_t begin, const Range& range) { return begin < range.end; });
    if (next != ranges.end() && next->begin < lease->range.end) return lease;
  }
  return nullptr;
}

void Pool::begin_step() {
  position = 0;
  path.clear();
  std::vector<Lease*> over;
  {
    std::lock_guard lock(mutex_);
    for (Lease* lease : leases_) {
      if (lease->over != nullptr && lease->storage != nullptr) over.push_back(lease);
    }
  }
  for (Lease* lease : over) {
    auto message = lease->over;
    auto* storage = lease->storage;
    storage->set_data_ptr_noswap(at::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)));  // this ends the lease
    storage->release_data_and_set_meta_custom_data_ptr_error_msg_(*message);
  }
}

void Pool::stop_passing() {
  std::lock_guard lock(mutex_);
  for (Lease* lease : leases_) lease->passing = false;
}

std::vector<Range> Pool::leased() const {
  std::lock_guard lock(mutex_);
  std::vector<Range> all;
  for (const Lease* lease : leases_) {
    if (!lease->passing) all.push_back(lease->range);
  }
  return all;
}

size_t Pool::leases() const {
  std::lock_guard lock(mutex_);
  return leases_.size();
}

}  // namespace torchreel::graphs
