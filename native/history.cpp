#include "history.h"

#include <torch/csrc/profiler/unwind/unwind.h>

#include <algorithm>

namespace torchreel {

namespace {

// What a thread keeps for the history: made when it is first needed, and freed with the thread.
struct ThreadHistory {
  StackCache cache;
  uint32_t generation = 0;
  uint32_t metadata = 0;
};

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
    thread_history = new ThreadHistory();
  }
  return thread_history;
}

}  // namespace

void HistoryRing::reset(uint64_t most) {
  chunks_.clear();
  most_ = std::max<uint64_t>(most, 1);
  count_ = events_ = 0;
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
  loose_.clear();
  frames_.clear();
  stacks_.clear();
  clear_annotations();
  std::lock_guard lock(text_mutex_);
  native_.clear();
  native_ids_.clear();
}

void History::clear_annotations() {
  std::lock_guard lock(text_mutex_);
  annotations_.clear();
  next_annotation_ = lost_annotations_ = 0;
}

void History::start(const HistoryOptions& options, bool forget) {
  on_.store(false);
  std::lock_guard told(Heap::get().gate);
  bool anew = forget || began_.tick == 0;
  bool same_ring = options_.events == options.events && options_.max_entries == options.max_entries;
  if (anew) {
    began_ = moment(CLOCK_REALTIME);  // before the clearing: what is kept is later than this
    clear();
  }
  options_ = options;
  if (anew || !same_ring) {
    ring_.reset(options.events ? options.max_entries : 1);
    clear_annotations();
  }
  on_.store(true);
}

void History::stop() {
  on_.store(false);
  std::lock_guard told(Heap::get().gate);
  clear();
  ring_.reset(1);
  began_ = {};
}

uint32_t History::walk() {
  if (!Py_IsInitialized()) return 0;
  ThreadHistory* mine = this_thread();
  if (mine == nullptr) return 0;
  uint32_t now = generation();
  if (mine->generation != now) {
    mine->cache = StackCache();
    mine->generation = now;
  }
  uint32_t id = 0;
  if (!walk_stack(mine->cache, frames_, id)) id = 0;
  if (TORCHREEL_UNLIKELY(options_.native_stacks)) id = with_native(id);
  return generation() == now ? id : 0;
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
  int events = options_.keeps(action);
  if (action == Action::kFreeRequested) events += options_.keeps(Action::kFreeCompleted);
  if (!options_.events || events == 0) return;
  ThreadHistory* mine = thread_history;
  if (options_.context < HistoryOptions::Context::kAlloc) stack = 0;
  ring_.push({ticks(), address, size, stack, mine != nullptr ? mine->metadata : 0, action}, events);
}

void History::loose_alloc(void* address, size_t size, uint32_t stack) {
  auto at = reinterpret_cast<uintptr_t>(address);
  loose_[at] = {size, stack};
  write(Action::kAlloc, at, size, stack);
}

void History::loose_free(void* address, uint32_t stack) {
  auto at = reinterpret_cast<uintptr_t>(address);
  LooseBlock block;
  // Of a block that the history does not know there is nothing to tell.
  if (!loose_.take(at, block)) return;
  write(Action::kFreeRequested, at, block.size,
        options_.context == HistoryOptions::Context::kAll ? stack : block.stack);
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
  if (block.size == 0) block.size = size;
}

uint32_t History::text(const std::string& text) {
  auto [known, added] = text_ids_.emplace(text, static_cast<uint32_t>(texts_.size()));
  if (added) texts_.push_back(text);
  return known->second;
}

void History::annotate(const char* name, bool start) {
  std::lock_guard lock(text_mutex_);
  Annotation annotation{ticks(), text(name), start};
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

}  // namespace torchreel
