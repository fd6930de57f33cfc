#include "graphs/plan/pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <unordered_set>

#include "memory/private_pools.h"

namespace torchreel::graphs {

// All pools. Locked after the gate of the reports and before a pool's own lock.
struct LivingPools {
  std::mutex mutex;
  std::unordered_set<const Pool*> all;

  static LivingPools& get() {
    static auto* pools = new LivingPools();  // threads end after statics do
    return *pools;
  }

  static void list(std::vector<PrivatePool>& found) {
    auto& pools = get();
    std::lock_guard lock(pools.mutex);
    for (const auto* pool : pools.all) {
      if (pool->reached_ == 0) continue;
      PrivatePool one{pool->id_, reinterpret_cast<uint64_t>(pool->base_), pool->reached_, {}};
      std::lock_guard own(pool->mutex_);
      for (const Lease* lease : pool->leases_) {
        uint64_t bytes = lease->range.end - lease->range.begin;
        if (bytes > 0) one.blocks.push_back({reinterpret_cast<uint64_t>(pool->at(lease->range.begin)), bytes});
      }
      found.push_back(std::move(one));
    }
  }
};

namespace {

const PrivatePools* reports = nullptr;

// `apply` changes the pool. It takes the pool's lock itself: a report may wait for the gate.
template <class Apply>
void change(PoolChange what, uint64_t pool, const void* address, size_t bytes, Apply apply) {
  if (reports == nullptr || bytes == 0) return apply();
  change_pool(*reports, what, pool, address, bytes, apply);
}

}  // namespace

void set_private_pools(const PrivatePools* pools) {
  reports = pools;
  if (pools != nullptr) pools->add_list(&LivingPools::list);
}

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

// Addresses cost nothing. If the machine forbids to reserve so many, the pool gets fewer.
Pool::Pool() {
  for (size_t size = size_t{1} << 36; size >= size_t{1} << 28; size >>= 2) {
    void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) continue;
    base_ = static_cast<char*>(base);
    size_ = size;
    if (reports != nullptr) id_ = reports->next_id();
    auto& living = LivingPools::get();
    std::lock_guard lock(living.mutex);
    living.all.insert(this);
    return;
  }
  throw std::runtime_error("This process may not reserve 256 MiB of addresses for the memory of graphs (ulimit -v).");
}

Pool::~Pool() {
  shrink(0);
  {
    auto& living = LivingPools::get();
    std::lock_guard lock(living.mutex);
    living.all.erase(this);
  }
  munmap(base_, size_);
  for (Lease* lease : spare_) delete lease;
}

namespace {

// The pools of threads, as long as they live.
struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<Pool>> pools;

  static Registry& get() {
    static auto* registry = new Registry();  // threads end after statics do
    return *registry;
  }
};

}  // namespace

const std::shared_ptr<Pool>& Pool::of_this_thread() {
  struct Owner {
    std::shared_ptr<Pool> pool = std::make_shared<Pool>();
    Owner() {
      auto& registry = Registry::get();
      std::lock_guard lock(registry.mutex);
      std::erase_if(registry.pools, [](const auto& one) { return one.expired(); });
      registry.pools.push_back(pool);
    }
    ~Owner() { pool->left_ = true; }
  };
  thread_local Owner owner;
  return owner.pool;
}

const std::shared_ptr<Pool>& Pool::scratch_of_this_thread() {
  auto& scratch = of_this_thread()->scratch_;
  if (scratch == nullptr) scratch = std::make_shared<Pool>();
  return scratch;
}

std::vector<std::shared_ptr<Pool>> Pool::all() {
  auto& registry = Registry::get();
  std::lock_guard lock(registry.mutex);
  std::vector<std::shared_ptr<Pool>> found;
  for (const auto& one : registry.pools) {
    if (auto pool = one.lock()) found.push_back(std::move(pool));
  }
  return found;
}

size_t Pool::trim_all() {
  constexpr auto kPatience = std::chrono::seconds(2);
  const auto* own = of_this_thread().get();
  size_t busy = 0;
  for (const auto& pool : all()) {
    auto until = std::chrono::steady_clock::now() + kPatience;
    std::unique_lock running(pool->running, std::try_to_lock);
    while (!running.owns_lock() && pool.get() != own && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      running.try_lock();
    }
    if (!running.owns_lock()) {
      busy++;
      continue;
    }
    pool->trim();
    if (pool->scratch_ != nullptr) pool->scratch_->trim();
  }
  return busy;
}

void Pool::trim() {
  auto held = leased();
  size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), from = 0;
  auto give_back = [&](size_t begin, size_t end) {
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
    if (begin < end) madvise(base_ + begin, end - begin, MADV_DONTNEED);
  };
  for (const auto& range : merged(held)) {
    give_back(from, range.begin);
    from = range.end;
  }
  give_back(from, reached_ + page);
  shrink(from);
}

void Pool::reach(size_t end) {
  if (end > size_) {
    throw std::runtime_error("The graphs of this thread need " + std::to_string(end >> 20) +
                             " MiB, and this process may reserve " + std::to_string(size_ >> 20) + " MiB.");
  }
  size_t old = reached_;
  if (end > old) change(PoolChange::kMap, id_, at(old), end - old, [&] { reached_ = end; });
}

void Pool::shrink(size_t end) {
  size_t old = reached_;
  if (end < old) change(PoolChange::kUnmap, id_, at(end), old - end, [&] { reached_ = end; });
}

Lease* Pool::lease(Range range, const void* maker, uint32_t output) {
  Lease* lease = nullptr;
  change(PoolChange::kAlloc, id_, at(range.begin), range.end - range.begin, [&] {
    std::lock_guard lock(mutex_);
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
    lease->index = static_cast<uint32_t>(leases_.size());
    leases_.push_back(lease);
  });
  return lease;
}

void Pool::end(Lease* lease) {
  auto pool = std::move(lease->pool);  // it may be the last to hold the pool
  auto range = lease->range;
  change(PoolChange::kFree, pool->id_, pool->at(range.begin), range.end - range.begin, [&] {
    std::lock_guard lock(pool->mutex_);
    pool->leases_[lease->index] = pool->leases_.back();
    pool->leases_[lease->index]->index = lease->index;
    pool->leases_.pop_back();
    pool->spare_.push_back(lease);
  });
}

void Pool::free_lease(void* lease) { end(static_cast<Lease*>(lease)); }

at::DataPtr Pool::data(Lease* lease) { return data(lease, at(lease->range.begin)); }

at::DataPtr Pool::data(Lease* lease, void* begin) {
  return at::DataPtr(begin, lease, &Pool::free_lease, c10::Device(c10::DeviceType::CPU));
}

Lease* Pool::lease_of(const c10::StorageImpl& storage) {
  const auto& data = const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
  return data.get_deleter() == &Pool::free_lease ? static_cast<Lease*>(data.get_context()) : nullptr;
}

const Lease* Pool::first_in(const std::vector<Range>& ranges) const {
  std::lock_guard lock(mutex_);
  for (const Lease* lease : leases_) {
    if (lease->passing) continue;
    // The first range that ends behind the beginning of the lease is the first that can overlap it.
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
