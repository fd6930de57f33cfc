#include "memory/history.h"

#include <sys/mman.h>
#include <torch/csrc/profiler/unwind/unwind.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "memory/op_context.h"
#include "memory/tally.h"

namespace torchreel {

// What a thread keeps for the history: made when it is first needed, and freed with the thread.
struct ThreadHistory {
  StackCache cache;
  uint32_t generation = 0;
  uint32_t metadata = 0;
  std::vector<uint32_t> regions;    // of compiled code, the innermost last
  std::vector<uint32_t> backwards;  // stacks of the forward calls whose backward runs, the innermost last
  uint32_t context_from = 0;        // the start of the history that these belong to
  std::shared_ptr<ForwardCalls> calls;
  uint32_t calls_from = 0;            // the history that they belong to
  std::vector<HistoryEntry> pending;  // events that the observer has not been told
  bool telling = false;
  uint32_t anomaly = 0;  // the lines that anomaly detection has of the forward call, of the last walk
};

namespace {

constexpr uint64_t kMostSmall = 1 << 20;

__thread ThreadHistory* thread_history __attribute__((tls_model("initial-exec"))) = nullptr;
__thread bool thread_over __attribute__((tls_model("initial-exec"))) = false;

struct ThreadEnd {
  bool armed = false;
  ~ThreadEnd() {
    thread_over = true;
    delete thread_history;
    thread_history = nullptr;
  }
};

// Null in a thread that is ending.
ThreadHistory* this_thread() {
  if (thread_history == nullptr && !thread_over) {
    static thread_local ThreadEnd end;
    end.armed = true;
    thread_history = new ThreadHistory;
  }
  return thread_history;
}

}  // namespace

void HistoryRing::reset(uint64_t most) {
  chunks_.clear();
  most_ = std::max<uint64_t>(most, 1);
  count_ = events_ = 0;
}

HistoryRing::Chunk HistoryRing::new_chunk() const {
  uint64_t bytes = std::min(kChunk, most_) * sizeof(HistoryEntry);
  bool large = bytes >= kHugePage;
  void* chunk = large ? std::aligned_alloc(kHugePage, 2 * kHugePage) : std::malloc(bytes);
  if (chunk == nullptr) throw std::bad_alloc();
  if (large) madvise(chunk, 2 * kHugePage, MADV_HUGEPAGE);  // a wish: small pages do as well
  return Chunk(static_cast<HistoryEntry*>(chunk));
}

std::vector<HistoryEntry> HistoryRing::entries() const {
  uint64_t held = std::min(count_, most_);
  std::vector<HistoryEntry> all;
  all.reserve(held);
  for (uint64_t i = count_ - held; i < count_; i++) {
    uint64_t at = i % most_;
    all.push_back(chunks_[at / kChunk][at % kChunk]);
  }
  return all;
}

void StackList::frame(uint32_t id, int line, const std::string& file, const std::string& function) {
  if (frames.size() <= id) frames.resize(id + 1);
  frames[id] = {file, function, line};
}

void StackList::stack(uint32_t id, uint32_t parent, uint32_t frame) {
  if (links_.size() <= id) links_.resize(id + 1);
  links_[id] = {parent, frame};
}

void StackList::clear() {
  frames.clear();
  links_.assign(1, {});
}

std::vector<uint32_t> StackList::frames_of(uint32_t stack) const {
  std::vector<uint32_t> result;
  for (; stack != 0 && stack < links_.size(); stack = links_[stack].parent) result.push_back(links_[stack].frame);
  return result;
}

History& History::get() {
  static History* history = new History();  // never destroyed: tensors outlive everything
  return *history;
}

void History::clear() {
  generation_.fetch_add(1);
  loose_.visit([this](uintptr_t, const LooseBlock& block) { count(block, false); });
  loose_.clear();
  pooled_.clear();
  frames_.clear();
  stacks_.clear();
  clear_annotations();
  std::lock_guard lock(text_mutex_);
  native_.clear();
  native_ids_.clear();
  forward_calls_.clear();
}

void History::clear_annotations() {
  std::lock_guard lock(text_mutex_);
  annotations_.clear();
  next_annotation_ = lost_annotations_ = 0;
}

void History::start(const HistoryOptions& options, bool forget) {
  on_.store(false);
  std::lock_guard told(Heap::get().gate);
  starts_.fetch_add(1);
  bool anew = forget || began_.tick == 0;
  bool same_ring = options_.events == options.events && options_.max_entries == options.max_entries;
  if (anew) {
    began_ = moment(CLOCK_REALTIME);  // before the clearing: what is kept is later than this
    clear();
  }
  options_ = options;
  starter_ = pthread_self();
  if (anew || !same_ring) {
    ring_.reset(options.events ? options.max_entries : 1);
    clear_annotations();
  }
  on_.store(true);
}

void History::stop() {
  on_.store(false);
  std::lock_guard told(Heap::get().gate);
  starts_.fetch_add(1);
  clear();
  ring_.reset(1);
  began_ = {};
}

uint32_t History::walk() {
  if (!Py_IsInitialized()) return 0;
  ThreadHistory* mine = this_thread();
  if (mine == nullptr) return 0;
  uint32_t now = generation();
  uint32_t id = walk_python(*mine);
  if (TORCHREEL_UNLIKELY(options_.native_stacks)) id = with_native(id);
  mine->anomaly = 0;
  if (TORCHREEL_UNLIKELY(detects_anomalies())) {
    std::string lines = anomaly_lines();
    std::lock_guard lock(text_mutex_);
    if (!lines.empty()) mine->anomaly = text(lines) | kForwardText;
  }
  return generation() == now ? id : 0;
}

// The stack of Python and TorchScript alone. The thread's cache is of one history: after a new one has begun it is
// empty.
uint32_t History::walk_python(ThreadHistory& mine) {
  uint32_t now = generation();
  if (mine.generation != now) {
    mine.cache.forget();
    mine.generation = now;
  }
  uint32_t id = 0;
  if (!walk_stack(mine.cache, frames_, id)) id = 0;
  add_script_frames(mine.cache, frames_, id);
  return id;
}

uint32_t History::with_native(uint32_t python) {
  std::vector<void*> counters = torch::unwind::unwind();
  uint64_t hash = python * 0x165667b19e3779f9;
  for (void* counter : counters) hash = (hash ^ reinterpret_cast<uint64_t>(counter)) * 0x9e3779b97f4a7c15;
  std::lock_guard lock(text_mutex_);
  auto [first, last] = native_ids_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const auto& known = native_[it->second];
    if (known.python == python && known.counters == counters) return it->second | kNative;
  }
  auto id = static_cast<uint32_t>(native_.size());
  native_.push_back({python, std::move(counters)});
  native_ids_.emplace(hash, id);
  return id | kNative;
}

const std::vector<void*>* History::native_of(uint32_t stack, uint32_t& python) const {
  python = stack;
  if ((stack & kNative) == 0 || (stack & ~kNative) >= native_.size()) return nullptr;
  const auto& found = native_[stack & ~kNative];
  python = found.python;
  return &found.counters;
}

void History::write(Action action, uint64_t address, uint64_t size, uint32_t stack) {
  push(action, address, size, stack, 0);
}

void History::push(Action action, uint64_t address, uint64_t size, uint32_t stack, uint32_t pool) {
  bool observed = TORCHREEL_UNLIKELY(observer_.load(std::memory_order_relaxed) != nullptr);
  ThreadHistory* mine = observed ? this_thread() : thread_history;
  HistoryEntry entry{ticks(), address, size, stack, 0, 0, 0, pool, action};
  if (observed && mine != nullptr) {
    mine->telling ? void(untold_.fetch_add(1)) : mine->pending.push_back(entry);
  }
  int events = options_.keeps(action);
  if (action == Action::kFreeRequested) events += options_.keeps(Action::kFreeCompleted);
  if (!options_.events || events == 0) return;
  if (options_.context < HistoryOptions::Context::kAlloc) entry.stack = 0;
  if (mine != nullptr) {
    entry.metadata = mine->metadata;
    bool known = knows_context(*mine);
    if (known && !mine->regions.empty()) entry.region = mine->regions.back();
    if (known && !mine->backwards.empty()) entry.forward = mine->backwards.back();
    if (action == Action::kAlloc && options_.context >= HistoryOptions::Context::kAlloc && mine->anomaly != 0) {
      entry.forward = mine->anomaly;
    }
  }
  ring_.push(entry, events);
}

// The system's blocks, as the snapshot shows them: each is a segment of its own.
void History::count(const LooseBlock& block, bool comes) {
  Tally& tally = Tally::get();
  auto pool = block.size <= kMostSmall ? Tally::kSmall : Tally::kLarge;
  for (auto kind : {Tally::kBlocks, Tally::kSegments}) comes ? tally.add(kind, pool, 1) : tally.remove(kind, pool, 1);
  auto bytes = static_cast<int64_t>(block.size);
  for (auto kind : {Tally::kBytes, Tally::kRequested, Tally::kReserved}) {
    comes ? tally.add(kind, pool, bytes) : tally.remove(kind, pool, bytes);
  }
}

void History::loose_alloc(void* address, size_t size, uint32_t stack) {
  auto at = reinterpret_cast<uintptr_t>(address);
  LooseBlock& block = loose_[at];
  if (block.size != 0) count(block, false);  // its free was not seen
  block = {size, stack};
  count(block, true);
  write(Action::kAlloc, at, size, stack);
}

void History::loose_free(void* address, uint32_t stack) {
  auto at = reinterpret_cast<uintptr_t>(address);
  LooseBlock block;
  // Of a block that the history does not know there is nothing to tell.
  if (!loose_.take(at, block)) return;
  count(block, false);
  write(Action::kFreeRequested, at, block.size,
        options_.context == HistoryOptions::Context::kAll ? stack : block.stack);
}

void History::pool_event(Action action, uint64_t address, uint64_t size, uint32_t stack, uint32_t pool) {
  if (action == Action::kAlloc) pooled_[address] = {size, stack};
  if (action == Action::kFreeRequested) {
    LooseBlock block;
    bool known = pooled_.take(address, block);
    if (options_.context != HistoryOptions::Context::kAll) stack = known ? block.stack : 0;
  }
  push(action, address, size, stack, pool);
}

uint32_t History::stack_in_pool(uint64_t address) const {
  LooseBlock block;
  return pooled_.get(address, block) ? block.stack : 0;
}

void History::heap_alloc(Block& block, uint32_t stack) {
  block.stack = stack;
  block.stack_from = generation();
  write(Action::kAlloc, reinterpret_cast<uint64_t>(block.data()), block.requested, stack);
}

void History::heap_free(Block& block, uint32_t stack) {
  write(Action::kFreeRequested, reinterpret_cast<uint64_t>(block.data()), block.requested,
        options_.context == HistoryOptions::Context::kAll ? stack : stack_of(block));
}

void History::add_loose(uint64_t address, uint64_t size) {
  auto& block = loose_[address];
  if (block.size != 0) return;
  block.size = size;
  count(block, true);
}

uint32_t History::text(const std::string& text) {
  auto [known, added] = text_ids_.emplace(text, static_cast<uint32_t>(texts_.size()));
  if (added) texts_.push_back(text);
  return known->second;
}

void History::annotate(const char* name, bool start) {
  if (options_.own_annotations && !pthread_equal(starter_, pthread_self())) return;
  std::lock_guard lock(text_mutex_);
  Annotation annotation{ticks(), text(valid_text(name)), start};
  uint64_t most = options_.events ? options_.max_entries : 1;
  if (annotations_.size() < most) {
    annotations_.push_back(annotation);
  } else {
    annotations_[next_annotation_ % most] = annotation;
    lost_annotations_++;
  }
  next_annotation_++;
}

void History::set_metadata(const std::string& words) {
  ThreadHistory* mine = this_thread();
  if (mine == nullptr) return;
  std::lock_guard lock(text_mutex_);
  mine->metadata = words.empty() ? 0 : text(words);
}

std::string History::metadata() {
  std::lock_guard lock(text_mutex_);
  return texts_[thread_history != nullptr ? thread_history->metadata : 0];
}

// The end of a region or backward is not told if the history was changed within it: what was entered before that is
// forgotten.
bool History::knows_context(const ThreadHistory& mine) const {
  return mine.context_from == starts_.load(std::memory_order_relaxed);
}

void History::renew_context(ThreadHistory& mine) const {
  if (knows_context(mine)) return;
  mine.regions.clear();
  mine.backwards.clear();
  mine.context_from = starts_.load(std::memory_order_relaxed);
}

void History::enter_region(const char* name) {
  ThreadHistory* mine = this_thread();
  if (mine == nullptr) return;
  renew_context(*mine);
  std::lock_guard lock(text_mutex_);
  mine->regions.push_back(text(name));
}

void History::leave_region() {
  ThreadHistory* mine = thread_history;
  if (mine != nullptr && knows_context(*mine) && !mine->regions.empty()) mine->regions.pop_back();
}

void History::note_forward(uint64_t thread, int64_t sequence) {
  ThreadHistory* mine = this_thread();
  uint32_t now = generation();
  uint32_t stack = mine != nullptr && Py_IsInitialized() ? walk_python(*mine) : 0;
  if (stack == 0 || generation() != now) return;
  if (mine->calls == nullptr || mine->calls_from != now) {
    mine->calls = std::make_shared<ForwardCalls>();
    mine->calls_from = now;
    std::lock_guard lock(text_mutex_);
    forward_calls_[thread] = mine->calls;
  }
  mine->calls->put(sequence, stack);
}

void History::enter_backward(uint64_t thread, int64_t sequence) {
  ThreadHistory* mine = this_thread();
  if (mine == nullptr) return;
  renew_context(*mine);
  uint32_t stack = 0;
  if (sequence >= 0) {
    std::lock_guard lock(text_mutex_);
    auto calls = forward_calls_.find(thread);
    if (calls != forward_calls_.end()) stack = calls->second->get(sequence);
  }
  mine->backwards.push_back(stack);
}

void History::leave_backward() {
  ThreadHistory* mine = thread_history;
  if (mine != nullptr && knows_context(*mine) && !mine->backwards.empty()) mine->backwards.pop_back();
}

void History::tell_pending() {
  ThreadHistory* mine = thread_history;
  EventObserver observer = observer_.load();
  if (observer == nullptr || mine == nullptr || mine->telling || mine->pending.empty()) return;
  mine->telling = true;
  auto events = std::exchange(mine->pending, {});
  for (const auto& event : events) {
    observer(event.action, event.address, event.size, event.pool);
    if (event.action == Action::kFreeRequested) {
      observer(Action::kFreeCompleted, event.address, event.size, event.pool);
    }
  }
  if ((mine = thread_history) != nullptr) mine->telling = false;
}

}  // namespace torchreel
