#include "memory/heap.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "memory/ages.h"

namespace torchreel {

namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kHugePage = 2 * kMiB;
constexpr size_t kPage = 4096;
constexpr size_t kLargestSmall = kMiB;
constexpr size_t kSmallSegment = 2 * kMiB;
constexpr size_t kLargeSegment = 20 * kMiB;
constexpr size_t kOwnSegmentFrom = 10 * kMiB;  // larger blocks get a segment of their own size
constexpr size_t kLeastSmallRest = 512, kLeastLargeRest = kMiB;
constexpr size_t kLeastPurge = 64 << 10;
constexpr size_t kMostCachedBytes = 8 * kMiB;
constexpr uint16_t kMostCachedBlocks = 256;
constexpr uint64_t kNow = ~uint64_t(0);

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

uint64_t coarse_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

// Classes: every 64 bytes up to 1 KiB, then four per doubling, up to 1 MiB. Sizes are without the header, so that a
// power of two wastes nothing.
constexpr int kClasses = 16 + 10 * 4 + 1;

int class_of(size_t size) {
  if (size <= 1024) return static_cast<int>((size + 63) / 64);
  int log = 63 - __builtin_clzll(size - 1);  // 2^log < size <= 2^(log+1)
  size_t base = size_t(1) << log;
  size_t step = base >> 2;
  return 16 + (log - 10) * 4 + static_cast<int>((size - base + step - 1) / step);
}

size_t class_size(int size_class) {
  if (size_class <= 16) return static_cast<size_t>(size_class) * 64;
  int above = size_class - 17;
  size_t base = size_t(1) << (10 + above / 4);
  return std::min(base + (base >> 2) * (above % 4 + 1), kLargestSmall - kHeader);
}

// A free block beside others: its segment cannot be given back.
bool is_split(const Block* block) { return block->size != block->segment->size; }

Tally::Pool tally_pool(bool small) { return small ? Tally::kSmall : Tally::kLarge; }

// Of a large block with the lock held.
void count_alloc(bool small, size_t size, size_t asked) {
  Tally& tally = Tally::get();
  auto bytes = static_cast<int64_t>(size), requested = static_cast<int64_t>(asked);
  if (small) {
    tally.rise(Tally::kBlocks, Tally::kSmall, 1);
    tally.rise(Tally::kBytes, Tally::kSmall, bytes);
    tally.rise(Tally::kRequested, Tally::kSmall, requested);
  } else {
    tally.rise_in_heap(Tally::kBlocks, 1);
    tally.rise_in_heap(Tally::kBytes, bytes);
    tally.rise_in_heap(Tally::kRequested, requested);
  }
}

// Of a large block with the lock held.
void count_free(bool small, size_t size, size_t asked) {
  Tally& tally = Tally::get();
  auto bytes = static_cast<int64_t>(size), requested = static_cast<int64_t>(asked);
  if (small) {
    tally.fall(Tally::kBlocks, Tally::kSmall, 1);
    tally.fall(Tally::kBytes, Tally::kSmall, bytes);
    tally.fall(Tally::kRequested, Tally::kSmall, requested);
  } else {
    tally.fall_in_heap(Tally::kBlocks, 1);
    tally.fall_in_heap(Tally::kBytes, bytes);
    tally.fall_in_heap(Tally::kRequested, requested);
  }
}

// Free blocks of large segments have the ages of their parts in their first page, which stays resident for the header.
bool has_ages(const Block* block) { return !block->segment->small; }
Ages& ages(Block* block) { return *static_cast<Ages*>(block->data()); }
static_assert(kHeader + sizeof(Ages) <= kPage);

// Of a free block: how much of it the system could have back.
size_t old_bytes(Block* block, uint64_t freed_before_ms) {
  if (has_ages(block)) return ages(block).expired(freed_before_ms);
  return !block->purged && block->freed_ms < freed_before_ms ? block->size : 0;
}

uint64_t newest(Block* block) { return has_ages(block) ? ages(block).newest() : block->freed_ms; }

// Gives the whole pages of a part of a free block to the system, but for the first, and returns their bytes.
size_t purge_part(Block* block, size_t offset, size_t bytes) {
  auto start = reinterpret_cast<uintptr_t>(block);
  uintptr_t begin = round_up(std::max(start + offset, start + kHeader + (has_ages(block) ? sizeof(Ages) : 0)), kPage);
  uintptr_t end = (start + offset + bytes) / kPage * kPage;
  if (end <= begin) return 0;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  return end - begin;
}

size_t purge(Block* block, uint64_t freed_before_ms) {
  size_t purged = 0;
  if (has_ages(block)) {
    ages(block).expire(freed_before_ms,
                       [&](size_t offset, size_t bytes) { purged += purge_part(block, offset, bytes); });
  } else {
    purged = purge_part(block, 0, block->size);
    block->purged = true;
  }
  return purged;
}

// The next block in a thread's cache stands in the data of the one before.
Block*& following(Block* block) { return *static_cast<Block**>(block->data()); }

void mark_owned(uint8_t* bits, const char* address, size_t size, bool on) {
  for (size_t offset = 0; offset < size; offset += kHugePage) {
    auto page = reinterpret_cast<uintptr_t>(address + offset) >> 21;
    auto bit = static_cast<uint8_t>(1 << (page & 7));
    if (on) {
      __atomic_fetch_or(&bits[page >> 3], bit, __ATOMIC_RELAXED);
    } else {
      __atomic_fetch_and(&bits[page >> 3], static_cast<uint8_t>(~bit), __ATOMIC_RELAXED);
    }
  }
}

// Without MAP_NORESERVE: the system refuses at once what it could never hold, and the program gets an error instead of
// being killed when it writes.
void* map_pages(size_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

char* map_aligned(size_t bytes) {
  auto* pages = static_cast<char*>(map_pages(bytes + kHugePage));
  if (pages == nullptr) return nullptr;
  auto* address = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(pages), kHugePage));
  if (address > pages) munmap(pages, address - pages);
  size_t tail = pages + kHugePage - address;
  if (tail > 0) munmap(address + bytes, tail);
  return address;
}

// Counters of a thread: written by it alone, read by whoever asks for stats.
template <class Counter>
void add(Counter& counter, Counter bytes) {
  __atomic_store_n(&counter, counter + bytes, __ATOMIC_RELAXED);
}
template <class Counter>
Counter read(const Counter& counter) {
  return __atomic_load_n(&counter, __ATOMIC_RELAXED);
}

}  // namespace

__thread bool Gate::mine_ __attribute__((tls_model("initial-exec"))) = false;

struct Heap::ThreadCache {
  Block* first[kClasses] = {};
  uint16_t blocks[kClasses] = {};
  size_t bytes = 0;
  uint64_t epoch = 0;
  HeapStats::Pool counts;
};

// Only pointers are kept in static TLS: more would keep the extension from loading.
static __thread void* thread_cache __attribute__((tls_model("initial-exec"))) = nullptr;
static __thread bool thread_ended __attribute__((tls_model("initial-exec"))) = false;

struct Heap::ThreadExit {
  bool armed = false;
  ~ThreadExit() {
    thread_ended = true;
    if (thread_cache != nullptr) Heap::get().retire(static_cast<ThreadCache*>(thread_cache));
    thread_cache = nullptr;
  }
};

uint8_t* Heap::owned_ = nullptr;

Heap& Heap::get() {
  // Never destroyed: tensors outlive everything.
  static Heap* heap = new Heap();
  return *heap;
}

void Heap::configure(const HeapOptions& options) {
  std::lock_guard lock(mutex_);
  options_ = options;
  thread_caches_.store(options.thread_caches, std::memory_order_relaxed);
  if (owned_ == nullptr) {
    owned_ = static_cast<uint8_t*>(map_pages(kPages / 8));
    if (owned_ == nullptr) throw std::bad_alloc();
  }
  start_decay();
}

Heap::ThreadCache* Heap::make_cache() {
  if (thread_ended) return nullptr;
  static thread_local ThreadExit exit;
  exit.armed = true;
  auto* cache = new ThreadCache();
  Heap& heap = get();
  std::lock_guard lock(heap.mutex_);
  cache->epoch = heap.flush_epoch_.load(std::memory_order_relaxed);
  heap.caches_.push_back(cache);
  thread_cache = cache;
  return cache;
}

Block* Heap::allocate(size_t bytes) {
  size_t size = round_up(bytes, 64) + kHeader;
  if (size < bytes) return nullptr;
  bool small = size <= kLargestSmall;
  int size_class = small ? class_of(size - kHeader) : 0;
  Block* block = nullptr;
  auto* cache = static_cast<ThreadCache*>(thread_cache);
  if (small) {
    if (__builtin_expect(cache == nullptr, 0)) cache = make_cache();
    if (cache != nullptr && (block = cache->first[size_class]) != nullptr) {
      cache->first[size_class] = following(block);
      cache->blocks[size_class]--;
      add(cache->bytes, -block->size);
      block->requested.store(bytes, std::memory_order_relaxed);
      block->state.store(BlockState::kActive, std::memory_order_relaxed);
      add(cache->counts.allocs, uint64_t{1});
      add(cache->counts.alloc_bytes, block->size);
      add(cache->counts.requested, bytes);
      count_alloc(true, block->size, bytes);
      return block;
    }
    size = class_size(size_class) + kHeader;
  }
  std::lock_guard lock(mutex_);
  block = take(size, small);
  if (block == nullptr) return nullptr;
  block->size_class = static_cast<uint8_t>(size_class);
  block->requested.store(bytes, std::memory_order_relaxed);
  block->state.store(BlockState::kActive, std::memory_order_relaxed);
  auto& counts = pool(small);
  counts.allocs++;
  counts.alloc_bytes += block->size;
  counts.requested += bytes;
  count_alloc(small, block->size, bytes);
  return block;
}

void Heap::free(Block* block) {
  int size_class = block->size_class;
  auto* cache = static_cast<ThreadCache*>(thread_cache);
  if (size_class != 0 && thread_caches_.load(std::memory_order_relaxed)) {
    if (__builtin_expect(cache == nullptr, 0)) cache = make_cache();
    if (cache != nullptr) {
      if (__builtin_expect(cache->epoch != flush_epoch_.load(std::memory_order_relaxed), 0)) flush(*cache);
      size_t requested = block->requested.load(std::memory_order_relaxed);
      count_free(true, block->size, requested);
      add(cache->counts.frees, uint64_t{1});
      add(cache->counts.free_bytes, block->size);
      add(cache->counts.freed_requested, uint64_t{requested});
      if (cache->blocks[size_class] < kMostCachedBlocks && cache->bytes + block->size <= kMostCachedBytes) {
        block->state.store(BlockState::kCached, std::memory_order_relaxed);
        following(block) = cache->first[size_class];
        cache->first[size_class] = block;
        cache->blocks[size_class]++;
        add(cache->bytes, block->size);
        return;
      }
      std::lock_guard lock(mutex_);
      give(block);
      return;
    }
  }
  std::lock_guard lock(mutex_);
  size_t requested = block->requested.load(std::memory_order_relaxed);
  count_free(block->segment->small, block->size, requested);
  auto& counts = pool(block->segment->small);
  counts.frees++;
  counts.free_bytes += block->size;
  counts.freed_requested += requested;
  give(block);
}

void Heap::flush(ThreadCache& cache) {
  std::lock_guard lock(mutex_);
  for (int size_class = 0; size_class < kClasses; size_class++) {
    while (Block* block = cache.first[size_class]) {
      cache.first[size_class] = following(block);
      give(block);
    }
    cache.blocks[size_class] = 0;
  }
  cache.bytes = 0;
  cache.epoch = flush_epoch_.load(std::memory_order_relaxed);
}

void Heap::retire(ThreadCache* cache) {
  flush(*cache);
  std::lock_guard lock(mutex_);
  auto& all = stats_.small;
  all.allocs += cache->counts.allocs;
  all.frees += cache->counts.frees;
  all.alloc_bytes += cache->counts.alloc_bytes;
  all.free_bytes += cache->counts.free_bytes;
  all.requested += cache->counts.requested;
  all.freed_requested += cache->counts.freed_requested;
  caches_.erase(std::find(caches_.begin(), caches_.end(), cache));
  delete cache;
}

Segment* Heap::map_segment(size_t size, bool small) {
  size_t limit = this->limit();
  bool over = limit != 0 && reserved_ + size > limit;
  char* address = over ? nullptr : map_aligned(size);
  if (address == nullptr) {
    stats_.retries++;
    release_free_segments(kNow);
    if (limit != 0 && reserved_ + size > limit) return nullptr;
    address = map_aligned(size);
    if (address == nullptr) return nullptr;
  }
  if (options_.huge_pages && size >= kLargeSegment) madvise(address, size, MADV_HUGEPAGE);
  auto* segment = new Segment{address, size, small};
  auto* block = new (address) Block();
  block->size = size;
  block->segment = segment;
  block->purged = true;  // never touched
  if (has_ages(block)) new (block->data()) Ages(size, Ages::kNotResident);
  segments_.insert(segment);
  mark_owned(owned_, address, size, true);
  reserved_ += size;
  stats_.segment_allocs++;
  Tally::get().add(Tally::kSegments, tally_pool(small), 1);
  Tally::get().add(Tally::kReserved, tally_pool(small), static_cast<int64_t>(size));
  if (observer_ != nullptr) observer_(*segment, true);
  start_decay();
  return segment;
}

void Heap::count_split(const Block* block, bool comes) {
  if (!is_split(block)) return;
  auto bytes = static_cast<int64_t>(block->size);
  for (auto pool : {tally_pool(block->segment->small), Tally::kAll}) {
    stats_.split_blocks[pool].change(comes ? 1 : -1);
    stats_.split_bytes[pool].change(comes ? bytes : -bytes);
  }
}

void Heap::insert_free(Block* block) {
  free_set(block->segment->small).insert(block);
  count_split(block, true);
}

void Heap::erase_free(Block* block) {
  free_set(block->segment->small).erase(block);
  count_split(block, false);
}

Block* Heap::take(size_t size, bool small) {
  auto& free_blocks = free_set(small);
  Block wanted;
  wanted.size = size - 1;  // sizes are multiples of 64: none is equal, and the address decides nothing
  auto found = free_blocks.lower_bound(&wanted);
  if (found == free_blocks.end()) {
    size_t bytes = small ? kSmallSegment : size < kOwnSegmentFrom ? kLargeSegment : round_up(size, kHugePage);
    Segment* segment = map_segment(bytes, small);
    if (segment == nullptr) return nullptr;
    found = free_blocks.insert(segment->first()).first;
  }
  Block* block = *found;
  erase_free(block);
  if (block->size - size >= (small ? kLeastSmallRest : kLeastLargeRest)) insert_free(split(block, size));
  block->purged = false;
  return block;
}

Block* Heap::split(Block* block, size_t size) {
  auto* right = new (reinterpret_cast<char*>(block) + size) Block();
  right->size = block->size - size;
  right->segment = block->segment;
  right->previous = block;
  right->next = block->next;
  right->freed_ms = block->freed_ms;
  right->purged = block->purged;
  if (right->next != nullptr) right->next->previous = right;
  block->next = right;
  block->size = size;
  if (has_ages(block)) (new (right->data()) Ages(ages(block)))->cut(size);
  return right;
}

Block* Heap::merge(Block* block) {
  auto swallow = [](Block* left, Block* right) {
    if (has_ages(left)) ages(left).append(ages(right));
    left->size += right->size;
    left->next = right->next;
    if (left->next != nullptr) left->next->previous = left;
    left->purged = left->purged && right->purged;
    left->freed_ms = std::max(left->freed_ms, right->freed_ms);
  };
  if (Block* right = block->next; right != nullptr && right->state == BlockState::kFree) {
    erase_free(right);
    swallow(block, right);
  }
  if (Block* left = block->previous; left != nullptr && left->state == BlockState::kFree) {
    erase_free(left);
    swallow(left, block);
    block = left;
  }
  insert_free(block);
  return block;
}

void Heap::give(Block* block) {
  block->freed_ms = coarse_ms();
  block->purged = false;
  block->state.store(BlockState::kFree, std::memory_order_relaxed);
  if (has_ages(block)) new (block->data()) Ages(block->size, block->freed_ms);
  merge(block);
}

void Heap::detach(Segment* segment) {
  segments_.erase(segment);
  mark_owned(owned_, segment->address, segment->size, false);
  reserved_ -= segment->size;
  stats_.segment_frees++;
  Tally::get().remove(Tally::kSegments, tally_pool(segment->small), 1);
  Tally::get().remove(Tally::kReserved, tally_pool(segment->small), static_cast<int64_t>(segment->size));
  if (observer_ != nullptr) observer_(*segment, false);
}

size_t Heap::release_free_segments(uint64_t freed_before_ms) {
  size_t released = 0;
  for (auto* free_blocks : {&large_, &small_}) {
    for (auto it = free_blocks->begin(); it != free_blocks->end();) {
      Block* block = *it;
      Segment* segment = block->segment;
      if (is_split(block) || newest(block) >= freed_before_ms) {
        ++it;
        continue;
      }
      it = free_blocks->erase(it);
      detach(segment);
      munmap(segment->address, segment->size);
      released += segment->size;
      delete segment;
    }
  }
  return released;
}

size_t Heap::purge_old(uint64_t freed_before_ms) {
  std::unique_lock lock(mutex_);
  std::vector<Block*> old;
  for (auto* free_blocks : {&large_, &small_}) {
    for (Block* block : *free_blocks) {
      if (old_bytes(block, freed_before_ms) >= kLeastPurge) old.push_back(block);
    }
  }
  // Out of the sets while the system works on them, which takes long: nobody may wait for that.
  for (Block* block : old) {
    free_set(block->segment->small).erase(block);
    block->state = BlockState::kPurging;
  }
  size_t purged = 0;
  lock.unlock();
  for (Block* block : old) purged += purge(block, freed_before_ms);
  lock.lock();
  for (Block* block : old) {
    block->state = BlockState::kFree;
    count_split(block, false);
    merge(block);
  }
  stats_.purged += purged;
  stats_.purges += old.empty() ? 0 : 1;
  return purged;
}

size_t Heap::empty_cache() {
  flush_epoch_.fetch_add(1, std::memory_order_relaxed);
  if (auto* cache = static_cast<ThreadCache*>(thread_cache)) flush(*cache);
  std::lock_guard purge(purge_mutex_);
  size_t released = 0;
  {
    std::lock_guard told(gate);
    std::lock_guard lock(mutex_);
    released = release_free_segments(kNow);
  }
  return released + purge_old(kNow);
}

void Heap::set_limit(size_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }

void Heap::count_oom() {
  std::lock_guard lock(mutex_);
  stats_.ooms++;
}

HeapStats Heap::stats() {
  std::lock_guard lock(mutex_);
  HeapStats result = stats_;
  for (const ThreadCache* cache : caches_) {
    const auto& counts = cache->counts;
    result.small.allocs += read(counts.allocs);
    result.small.frees += read(counts.frees);
    result.small.alloc_bytes += read(counts.alloc_bytes);
    result.small.free_bytes += read(counts.free_bytes);
    result.small.requested += read(counts.requested);
    result.small.freed_requested += read(counts.freed_requested);
    result.cached += read(cache->bytes);
  }
  result.allocated =
      result.small.alloc_bytes + result.large.alloc_bytes - result.small.free_bytes - result.large.free_bytes;
  result.reserved = reserved_;
  result.limit = limit();
  return result;
}

void Heap::reset_peaks() {
  std::lock_guard lock(mutex_);
  for (auto* stats : {stats_.split_blocks, stats_.split_bytes}) {
    for (int pool = 0; pool < Tally::kPools; pool++) stats[pool].peak = stats[pool].current;
  }
}

// A thread, not a look at the clock in passing: a program that allocates nothing more is the one that should shrink.
void Heap::start_decay() {
  if (decaying_ || options_.decay_ms == 0) return;
  decaying_ = true;
  std::thread([this] { run_decay(); }).detach();
}

void Heap::run_decay() {
  for (;;) {
    uint64_t decay = 0;
    {
      std::lock_guard lock(mutex_);
      decay = options_.decay_ms;
      if (decay == 0) {
        decaying_ = false;
        return;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(std::clamp<uint64_t>(decay / 4, 10, 5'000)));
    uint64_t now = coarse_ms();
    if (now <= decay) continue;
    decay_once(now - decay);
    if (auto decayed = decayed_.load()) decayed();
  }
}

void Heap::decay_once(uint64_t freed_before_ms) {
  std::lock_guard purge(purge_mutex_);
  purge_old(freed_before_ms);
  std::lock_guard told(gate);
  std::lock_guard lock(mutex_);
  release_free_segments(freed_before_ms);
}

void Heap::prepare_fork() {
  purge_mutex_.lock();
  gate.lock();
  mutex_.lock();
}

void Heap::after_fork(bool child) {
  if (child) decaying_ = false;  // threads do not survive a fork; the next segment starts one
  mutex_.unlock();
  gate.unlock();
  purge_mutex_.unlock();
}

}  // namespace torchreel
