#include "decode/decoder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace torchreel {

using namespace layout;

namespace {

constexpr size_t kForwardBytes = 256 << 20;  // of all threads' forward calls; beyond, those of the longest idle go
constexpr size_t kThreadsAhead = 256;        // threads whose definition was not yet written when a process was killed
constexpr size_t kDeepest = 1 << 16;
constexpr size_t kSearched = 1024;  // how deep an end looks for its begin

bool read_at(int file, void* data, size_t bytes, uint64_t offset) {
  return pread(file, data, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

uint64_t size_of(int file) {
  struct stat status{};
  return fstat(file, &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

// Closes a file, unless it is handed on.
struct Descriptor {
  explicit Descriptor(int opened) : file(opened) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (file >= 0) close(file);
  }
  int release() { return std::exchange(file, -1); }

  int file;
};

}  // namespace

// The head first, then the events, then the definitions: all that events name was defined before they were written.
SpoolFiles SpoolFiles::in(const std::string& directory) {
  Descriptor events(open((directory + "/events").c_str(), O_RDONLY | O_CLOEXEC));
  Descriptor definitions(open((directory + "/definitions").c_str(), O_RDONLY | O_CLOEXEC));
  if (definitions.file < 0) throw SpoolError("it has no definitions");
  if (events.file < 0) throw SpoolError("it has no events");
  std::string head(sizeof(EventsHeader), '\0');
  if (!read_at(events.file, head.data(), head.size(), 0)) head.clear();
  uint64_t events_size = size_of(events.file);
  uint64_t definitions_size = size_of(definitions.file);
  return {definitions.release(), events.release(), definitions_size, events_size, std::move(head)};
}

Decoder::Decoder(const std::string& directory) : Decoder(SpoolFiles::in(directory)) {}

Decoder::Decoder(SpoolFiles files) {
  Descriptor definitions(files.definitions);
  Descriptor events(files.events);
  definitions_ = read_definitions(definitions.file, files.definitions_size);
  size_ = files.events_size;
  offset_ = sizeof header_;
  bool whole = size_ >= sizeof header_ && files.head.size() == sizeof header_;
  if (whole) memcpy(&header_, files.head.data(), sizeof header_);
  if (whole && header_.magic == 0) {
    whole = false;  // killed before the header was first written: blocks are there, times are not
  } else if (whole && header_.magic != kEventsMagic) {
    throw SpoolError("its events are not torchreel's");
  } else if (whole && header_.version != kVersion) {
    throw SpoolError("its layout has version " + std::to_string(header_.version));
  }
  if (!whole) header_ = {};
  double ticks = static_cast<double>(header_.last_tick) - static_cast<double>(header_.first_tick);
  double ns = static_cast<double>(header_.last_steady_ns) - static_cast<double>(header_.first_steady_ns);
  if (ticks > 0 && ns > 0) ns_per_tick_ = ns / ticks;
  end_tick_ = header_.last_tick;
  for (uint32_t i = 0; i < definitions_.threads.size(); i++) {
    thread_of_torch_id_[definitions_.threads[i].torch_id] = i;
  }
  auto& steps = definitions_.steps;
  std::stable_sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.tick < b.tick; });
  if (std::any_of(steps.begin(), steps.end(), [](const auto& step) { return step.kind == kStepByHand; })) {
    std::erase_if(steps, [](const auto& step) { return step.kind == kOptimizerStep; });
  }
  for (uint32_t i = 0; i < definitions_.names.size(); i++) {
    definitions_.names[i].kind = std::min<uint32_t>(definitions_.names[i].kind, kOther);
  }
  rows_.reserve(kBatchRows * 5 / 4);
  add_old_blocks();
  file_ = events.release();
}

Decoder::~Decoder() {
  if (file_ >= 0) close(file_);
}

int64_t Decoder::nanoseconds(uint64_t tick) const {
  auto passed = static_cast<int64_t>(tick - header_.start_tick);
  return static_cast<int64_t>(header_.start_realtime_ns) +
         static_cast<int64_t>(static_cast<double>(passed) * ns_per_tick_);
}

void Decoder::restrict_to(std::vector<Window> windows, const std::vector<Step>& steps) {
  windows_ = std::move(windows);
  std::sort(windows_.begin(), windows_.end());
  definitions_.steps.clear();
  for (auto [number, tick] : steps) definitions_.steps.push_back({number, tick, kFirstStep});
  living_shown_ = windows_.empty();
  allocs_.clear();  // blocks older than the recording: told as those that live when the first window opens
}

bool Decoder::is_in_window(uint64_t tick) const {
  if (windows_.empty()) return true;
  auto in = [tick](const Window& window) { return window.first <= tick && tick < window.second; };
  return std::any_of(windows_.begin(), windows_.end(), in);
}

// The innermost open call that is shown.
int32_t Decoder::innermost(const Thread& thread) const {
  for (size_t i = thread.open.size(); i-- > 0;) {
    if (!rows_[thread.open[i]].hidden) return thread.open[i];
  }
  return kNoRow;
}

int64_t Decoder::top(const Thread& thread) const {
  int32_t row = innermost(thread);
  return row == kNoRow ? -1 : rows_[row].id;
}

bool Decoder::read_block() {
  BlockHeader block{};
  if (offset_ + sizeof block > size_ || !read_at(file_, &block, sizeof block, offset_)) return false;
  if (block.magic != kBlockMagic) throw SpoolError("its events hold no block at byte " + std::to_string(offset_));
  offset_ += sizeof block;
  if (block.thread == kNoThread) {
    promised_ = std::max(promised_, block.base_tick);
    return true;
  }
  // The last block of a process that was killed may be shorter than it says.
  size_t words = std::min<uint64_t>(block.words, (size_ - offset_) / 8);
  words_.resize(words);
  if (!read_at(file_, words_.data(), words * 8, offset_)) return false;
  offset_ += words * 8;
  if (block.thread >= definitions_.threads.size() + kThreadsAhead) {
    throw SpoolError("its events name a thread " + std::to_string(block.thread));
  }
  if (block.thread >= threads_.size()) threads_.resize(block.thread + 1);
  Thread& thread = threads_[block.thread];
  if (block.follows != kContinues || !thread.seen) {
    if (block.follows == kAfterGap) cut_open(thread, thread.tick);
    thread.tick = block.base_tick;
    thread.seq = block.last_seq;
    thread.stack = static_cast<uint32_t>(block.stack);
    thread.seen = true;
  }
  decode_words(block.thread, words_.data(), words_.data() + words);
  return words == block.words;
}

// Reads one word after the other, and stops where the next event is not whole.
void Decoder::decode_words(uint32_t id, const uint64_t* at, const uint64_t* end) {
  Thread& thread = threads_[id];
  while (at != nullptr && at < end) {
    uint64_t head = *at++;
    uint64_t tag = head & 0xf;
    size_t needed = tag == kAlloc                                                                        ? 2
                    : tag == kFree || tag == kEndKeyed || tag == kFlow || tag == kTime || tag == kHandle ? 1
                                                                                                         : 0;
    if (static_cast<size_t>(end - at) < needed) return;
    if (tag != kStack && tag != kTime && tag != kInputs && tag != kName && tag != kCounters && tag != kHandle) {
      thread.tick += head >> kTicksShift;
      end_tick_ = std::max(end_tick_, thread.tick);
    }
    switch (tag) {
      case kBegin:
      case kBeginKeyed: at = decode_begin(thread, id, head, at, end); break;
      case kEnd: end_innermost(thread); break;
      case kEndKeyed: end_keyed(thread, id, *at++); break;
      case kStack: thread.stack = static_cast<uint32_t>(head >> kIdShift); break;
      case kTime: thread.tick = *at++; break;
      case kHandle:
        if ((head >> kFlagShift & kModulesFlag) != 0) {
          thread.script = static_cast<uint32_t>(*at++);
        } else if ((head >> kFlagShift & kRecordIdFlag) != 0) {
          thread.record_id = static_cast<int64_t>(*at++);
        } else {
          thread.handle = static_cast<int64_t>(*at++);
        }
        break;
      case kAlloc:
      case kFree: {
        int32_t row = innermost(thread);
        bool is_free = tag == kFree;
        bool is_segment = (head >> kFlagShift & kSegmentFlag) != 0;
        memory_.push_back(
            {thread.tick, at[0], is_free ? 0 : at[1], row, id, is_free ? 0 : thread.stack, is_free, is_segment});
        at += needed;
        break;
      }
      case kMark:
      case kFlow: {
        uint32_t name = head >> kIdShift & kIdMask;
        if (name == kInlineName) name = std::exchange(thread.inline_name, kNone);
        Moment moment{thread.tick, id, name, top(thread)};
        if (tag == kFlow) {
          moment.flow = *at++;
          moment.in = (head >> kFlagShift & 1) != 0;
        }
        if (is_in_window(thread.tick)) (tag == kFlow ? flows_ : marks_).push_back(moment);
        break;
      }
      case kCounters:
      case kInputs:
      case kName: at = decode_inline(thread, head, at, end); break;
      default: throw SpoolError("its events hold an unknown tag " + std::to_string(tag));
    }
  }
}

// What precedes the event that it belongs to. Null if it is cut short.
const uint64_t* Decoder::decode_inline(Thread& thread, uint64_t head, const uint64_t* at, const uint64_t* end) {
  auto left = static_cast<size_t>(end - at);
  if ((head & 0xf) == kCounters) {
    size_t count = definitions_.counters.size();
    if (left < count) return nullptr;
    thread.counters.assign(at, at + count);
    return at + count;
  }
  if (left < 1) return nullptr;
  uint64_t size = *at++;
  left--;
  if ((head & 0xf) == kInputs) {
    if (left < size) return nullptr;
    thread.inline_inputs = inline_inputs({at, at + size});
    return at + size;
  }
  uint64_t words = size / 8 + (size % 8 != 0);
  if (left < words) return nullptr;
  thread.inline_name = inline_name({reinterpret_cast<const char*>(at), size}, head >> kIdShift & 0xff);
  return at + words;
}

uint32_t Decoder::inline_name(const std::string& name, uint32_t kind) {
  kind = std::min<uint32_t>(kind, kOther);
  auto [known, added] = inline_names_.emplace(name + '\0' + std::to_string(kind), definitions_.names.size());
  if (added) definitions_.names.push_back({valid_text(name), "", kind, kNone});
  return known->second;
}

uint32_t Decoder::inline_inputs(std::vector<uint64_t> words) {
  std::string key(reinterpret_cast<const char*>(words.data()), words.size() * 8);
  auto [known, added] = inline_inputs_.emplace(std::move(key), definitions_.inputs.size());
  if (added) definitions_.inputs.push_back(std::move(words));
  return known->second;
}

const uint64_t* Decoder::decode_begin(Thread& thread, uint32_t id, uint64_t head, const uint64_t* at,
                                      const uint64_t* end) {
  uint64_t flags = head >> kFlagShift & 0xf;
  bool keyed = (head & 0xf) == kBeginKeyed;
  bool has_inputs = (flags & kHasInputs) != 0;
  bool has_thread = (flags & kHasForwardThread) != 0;
  uint64_t seq = flags & 3;
  if (end - at < keyed + has_inputs + (seq == kSeqWord) + has_thread) return nullptr;
  Row row{};
  row.begin = thread.tick;
  row.name = head >> kIdShift & kIdMask;
  if (row.name == kInlineName) row.name = std::exchange(thread.inline_name, kNone);
  if (keyed) {
    row.key = *at & ~kKeyAsync;
    row.async = (*at & kKeyAsync) != 0;
    at++;
  }
  row.inputs = has_inputs ? static_cast<uint32_t>(*at++) : std::exchange(thread.inline_inputs, kNone);
  if (seq != kSeqNone) {
    thread.seq = seq == kSeqSame ? thread.seq : seq == kSeqNext ? thread.seq + 1 : static_cast<int64_t>(*at++);
    row.seq = thread.seq;
  }
  if (has_thread) row.fwd_torch_thread = *at++;
  row.handle = std::exchange(thread.handle, -1);
  row.record_id = std::exchange(thread.record_id, -1);
  if (row.name >= definitions_.names.size()) row.name = inline_name("(unknown)", kOther);
  if (row.inputs >= definitions_.inputs.size()) row.inputs = kNone;
  begin_row(thread, id, row);
  return at;
}

void Decoder::begin_row(Thread& thread, uint32_t id, Row& row) {
  if (thread.open.size() >= kDeepest) throw SpoolError("its calls are nested too deep");
  auto index = static_cast<int32_t>(rows_.size());
  row.hidden = !is_in_window(row.begin);
  row.id = row.hidden ? -1 : next_id_++;
  row.thread = id;
  row.depth = static_cast<int32_t>(thread.open.size() - thread.hidden);
  row.stack = thread.stack;
  auto& steps = definitions_.steps;
  while (thread.step < steps.size() && steps[thread.step].tick <= row.begin) thread.step++;
  if (thread.step > 0) row.step = static_cast<int32_t>(steps[thread.step - 1].number);
  if (!thread.open.empty()) {
    row.parent_row = innermost(thread);
    row.parent = top(thread);
    const Row& parent = rows_[thread.open.back()];
    row.module = parent.module;
    row.script = parent.script;
    if (parent.of_backward) {
      row.of_backward = true;
      row.stack = parent.stack;
    }
  }
  const auto& name = definitions_.names[row.name];
  if (name.kind == kModule) row.module = name.module;
  uint32_t script = std::exchange(thread.script, kNone);
  if (script < definitions_.names.size()) {
    row.script = script;
    row.module = script_modules_.find(definitions_.modules, row.module, definitions_.names[script].name);
  }
  if (!thread.counters.empty()) {
    row.counters = static_cast<uint32_t>(begin_counters_.size());
    begin_counters_.push_back(std::move(thread.counters));
    thread.counters.clear();
  }
  if (row.seq >= 0 && row.fwd_torch_thread != 0) {
    link_forward(row);
    if (row.fwd < 0) unlinked_.push_back(index);
    share_with_engine(row);
  } else if (row.seq >= 0 && id < definitions_.threads.size()) {
    keep_forward(definitions_.threads[id].torch_id, row);
  }
  rows_.push_back(row);
  thread.open.push_back(index);
  thread.hidden += row.hidden;
}

size_t Decoder::ForwardCalls::add(const ForwardCall& call) {
  size_t before = calls.size();
  if (calls.empty()) calls.resize(kFirst, {-1, -1, kNone, 0});
  auto place = [this](int64_t seq) -> ForwardCall& { return calls[static_cast<uint64_t>(seq) % calls.size()]; };
  while (calls.size() < kMost && place(call.seq).seq >= 0 && place(call.seq).seq != call.seq) {
    std::vector<ForwardCall> old(calls.size() * 4, {-1, -1, kNone, 0});
    old.swap(calls);
    for (const ForwardCall& known : old) {
      if (known.seq >= 0) place(known.seq) = known;
    }
  }
  place(call.seq) = call;
  return (calls.size() - before) * sizeof(ForwardCall);
}

const Decoder::ForwardCall* Decoder::ForwardCalls::find(int64_t seq) const {
  if (calls.empty()) return nullptr;
  const ForwardCall& call = calls[static_cast<uint64_t>(seq) % calls.size()];
  return call.seq == seq ? &call : nullptr;
}

void Decoder::keep_forward(uint64_t torch_thread, const Row& row) {
  if (last_forward_ == nullptr || last_forward_thread_ != torch_thread) {
    last_forward_ = &forward_[torch_thread];
    last_forward_thread_ = torch_thread;
    last_forward_->written = ++forward_written_;
  }
  forward_bytes_ += last_forward_->add({row.seq, row.id, row.module, row.stack});
  if (forward_bytes_ <= kForwardBytes) return;
  auto older = [](const auto& a, const auto& b) { return a.second.written < b.second.written; };
  auto oldest = std::min_element(forward_.begin(), forward_.end(), older);
  forward_bytes_ -= oldest->second.calls.size() * sizeof(ForwardCall);
  forward_.erase(oldest);
}

// A backward call stands where its forward call stood: in that module, at that line.
void Decoder::link_forward(Row& row) {
  auto calls = forward_.find(row.fwd_torch_thread);
  if (calls == forward_.end()) return;
  const ForwardCall* call = calls->second.find(row.seq);
  if (call == nullptr) return;
  row.fwd = call->id;
  row.module = call->module;
  if (call->stack != 0) row.stack = call->stack;
  row.of_backward = true;
}

// The engine's own call around a backward call stands where that does, and belongs to the same forward call.
void Decoder::share_with_engine(const Row& row) {
  if (row.parent_row == kNoRow) return;
  Row& engine = rows_[row.parent_row];
  if (engine.of_backward || !definitions_.names[engine.name].name.starts_with("autograd::engine::")) return;
  if (engine.seq < 0) {
    engine.seq = row.seq;
    engine.fwd_torch_thread = row.fwd_torch_thread;
  }
  if (row.fwd < 0) return;
  engine.fwd = row.fwd;
  engine.module = row.module;
  engine.stack = row.stack;
  engine.of_backward = true;
}

// Ends the innermost call that has no key; ranges within it that are still open stay open.
void Decoder::end_innermost(Thread& thread) {
  size_t depth = thread.open.size();
  for (size_t i = depth; i-- > 0 && depth - i <= kSearched;) {
    if (rows_[thread.open[i]].key == 0) return end_open(thread, i, thread.tick);
  }
  thread.counters.clear();  // the end of a call that began before the recording
}

void Decoder::end_keyed(Thread& thread, uint32_t id, uint64_t key) {
  size_t depth = thread.open.size();
  for (size_t i = depth; i-- > 0 && depth - i <= kSearched;) {
    if (rows_[thread.open[i]].key == key) return end_open(thread, i, thread.tick);
  }
  thread.counters.clear();
  late_ends_.push_back({key, thread.tick, id});
}

// Ends the call at a position of the open ones; calls within it may still be open.
void Decoder::end_open(Thread& thread, size_t position, uint64_t tick) {
  Row& row = rows_[thread.open[position]];
  row.end = std::max(tick, row.begin);
  row.ended = true;
  thread.hidden -= row.hidden;
  if (row.counters != kNone && !thread.counters.empty() && !row.hidden) {
    const auto& before = begin_counters_[row.counters];
    for (uint32_t i = 0; i < before.size() && i < thread.counters.size(); i++) {
      counters_.push_back({row.id, i, static_cast<int64_t>(thread.counters[i] - before[i])});
    }
  }
  thread.counters.clear();
  thread.open.erase(thread.open.begin() + static_cast<ptrdiff_t>(position));
}

void Decoder::cut_open(Thread& thread, uint64_t tick) {
  while (!thread.open.empty()) {
    rows_[thread.open.back()].cut = true;
    end_open(thread, thread.open.size() - 1, tick);
  }
}

// A range ended on another thread: it is async, and calls of its own thread after that were not within it.
void Decoder::end_elsewhere(int32_t index, const LateEnd& late) {
  Row& row = rows_[index];
  Thread& thread = threads_[row.thread];
  row.async = true;
  row.end_thread = late.thread;
  auto position = std::find(thread.open.begin(), thread.open.end(), index) - thread.open.begin();
  end_open(thread, static_cast<size_t>(position), late.tick);
  for (auto i = static_cast<int32_t>(rows_.size()); i-- > index + 1;) {
    Row& later = rows_[i];
    if (later.thread != row.thread) continue;
    if (later.begin < late.tick) break;
    if (later.depth > row.depth) later.depth--;
    if (later.parent_row == index) {
      later.parent_row = row.parent_row;
      later.parent = row.parent;
      if (!later.of_backward && row.parent_row != kNoRow && definitions_.names[later.name].kind != kModule) {
        later.module = rows_[row.parent_row].module;
      }
    }
  }
}

void Decoder::resolve(uint64_t before) {
  resolve_ends(before);
  resolve_memory(before);
  for (int32_t index : unlinked_) link_forward(rows_[index]);
  unlinked_.clear();
}

void Decoder::resolve_ends(uint64_t before) {
  if (late_ends_.empty()) return;
  std::unordered_multimap<uint64_t, int32_t> open;
  for (const Thread& thread : threads_) {
    for (int32_t index : thread.open) {
      if (rows_[index].key != 0) open.emplace(rows_[index].key, index);
    }
  }
  std::stable_sort(late_ends_.begin(), late_ends_.end(), [](auto& a, auto& b) { return a.tick < b.tick; });
  std::vector<LateEnd> waiting;
  for (const LateEnd& late : late_ends_) {
    if (late.tick >= before) {
      waiting.push_back(late);
      continue;
    }
    auto [first, last] = open.equal_range(late.key);
    auto best = last;
    for (auto candidate = first; candidate != last; ++candidate) {
      const Row& row = rows_[candidate->second];
      if (row.ended || row.begin > late.tick) continue;
      if (best == last || row.begin < rows_[best->second].begin) best = candidate;
    }
    if (best != last) end_elsewhere(best->second, late);
  }
  late_ends_.swap(waiting);
}

uint32_t Decoder::category_id(const std::string& category) {
  if (category.empty()) return kNone;
  auto known = std::find(categories_.begin(), categories_.end(), category);
  if (known == categories_.end()) {
    categories_.push_back(category);
    return static_cast<uint32_t>(categories_.size() - 1);
  }
  return static_cast<uint32_t>(known - categories_.begin());
}

void Decoder::add_old_blocks() {
  for (const auto& block : definitions_.old_blocks) {
    auto bytes = static_cast<int64_t>(block.bytes);
    uint32_t category = category_id(block.category);
    auto [known, added] = live_.emplace(block.address, LiveBlock{bytes, next_alloc_, 0, category});
    if (!added) continue;
    total_bytes_ += bytes;
    allocs_.push_back({header_.start_tick, block.address, bytes, total_bytes_, -1, -1, kNone, 0, category, 2});
    next_alloc_++;
  }
}

void Decoder::resolve_memory(uint64_t before) {
  std::stable_sort(memory_.begin(), memory_.end(), [](auto& a, auto& b) { return a.tick < b.tick; });
  auto waiting = std::partition_point(memory_.begin(), memory_.end(), [&](auto& e) { return e.tick < before; });
  for (auto event = memory_.begin(); event != waiting; ++event) resolve_one(*event);
  memory_.erase(memory_.begin(), waiting);
}

void Decoder::resolve_segment(const Memory& event) {
  auto bytes = static_cast<int64_t>(event.bytes);
  if (event.is_free) {
    auto known = segments_.find(event.address);
    bytes = known != segments_.end() ? known->second : -1;
    if (known != segments_.end()) segments_.erase(known);
  } else if (!segments_.emplace(event.address, bytes).second) {
    return;  // told again when a paused recording went on
  }
  if (!is_in_window(event.tick)) return;
  int64_t op = event.row != kNoRow ? rows_[event.row].id : -1;
  allocs_.push_back({event.tick, event.address, bytes, total_bytes_, op, -1, event.thread, event.stack, kNone,
                     event.is_free ? 4 : 3});
  next_alloc_++;
}

// What was in use when the first window opened is older than what the window shows.
void Decoder::show_living_blocks() {
  living_shown_ = true;
  next_alloc_ = 0;
  int64_t total = 0;
  for (auto& [address, block] : live_) {
    total += block.bytes;
    block.alloc = next_alloc_++;
    allocs_.push_back(
        {windows_.front().first, address, block.bytes, total, -1, -1, kNone, block.stack, block.category, 2});
  }
}

void Decoder::resolve_one(const Memory& event) {
  if (!living_shown_ && event.tick >= windows_.front().first) show_living_blocks();
  if (event.is_segment) return resolve_segment(event);
  auto live = live_.find(event.address);
  ResolvedMemory resolved{event.tick, event.address, -1, 0, -1, -1, event.thread, event.stack, kNone, event.is_free};
  int64_t change = 0;
  if (live != live_.end()) {
    // An alloc where a block lives means that its free was not seen.
    change -= live->second.bytes;
    if (event.is_free) {
      resolved.bytes = live->second.bytes;
      resolved.alloc = live->second.alloc;
      resolved.category = live->second.category;
    }
    live_.erase(live);
  }
  if (!event.is_free) {
    resolved.bytes = static_cast<int64_t>(event.bytes);
    total_bytes_ += change;
    change = resolved.bytes;
    live_[event.address] = {resolved.bytes, next_alloc_, event.stack, kNone};
  }
  total_bytes_ += change;
  resolved.total = total_bytes_;
  if (event.row != kNoRow) {
    resolved.op = rows_[event.row].id;
    rows_[event.row].self_alloc += change;
    for (int32_t row = event.row; row != kNoRow; row = rows_[row].parent_row) {
      if (!rows_[row].ended || rows_[row].end >= event.tick) rows_[row].alloc += change;
    }
  }
  if (!is_in_window(event.tick)) {
    if (!event.is_free) live_[event.address].alloc = -1;
    return;
  }
  next_alloc_++;
  allocs_.push_back(resolved);
}

bool Decoder::next(Batches& batches) {
  if (finished_) return false;
  while (true) {
    uint64_t promised = promised_;
    if (!read_block()) break;
    if (promised_ == promised) continue;
    resolve(promised_);
    if (rows_.size() >= kBatchRows) {
      emit(batches, promised_);
      return true;
    }
  }
  finished_ = true;
  resolve(~uint64_t{0});
  if (!living_shown_) show_living_blocks();
  for (Thread& thread : threads_) cut_open(thread, std::max(end_tick_, thread.tick));
  emit(batches, ~uint64_t{0});
  return true;
}

// Rows that ended before a promise are complete; the others stay for the next batch.
void Decoder::emit(Batches& batches, uint64_t before) {
  std::vector<char> leaves(rows_.size());
  for (size_t i = 0; i < rows_.size(); i++) leaves[i] = rows_[i].ended && rows_[i].end < before;
  charge_parents(leaves);
  batches.emplace_back("ops", ops_batch(leaves));
  if (!allocs_.empty()) batches.emplace_back("allocs", allocs_batch());
  if (!marks_.empty()) batches.emplace_back("marks", moments_batch(marks_, false));
  if (!flows_.empty()) batches.emplace_back("flows", moments_batch(flows_, true));
  if (!counters_.empty()) batches.emplace_back("counters", counters_batch());
  allocs_.clear();
  marks_.clear();
  flows_.clear();
  counters_.clear();
  carry(leaves);
}

// The time of a call is its parent's children's, as long as that was open; after that it is its grandparent's.
// Time in an async range is not its parent's to lose, but that of the calls within it is.
void Decoder::charge_parents(const std::vector<char>& leaves) {
  for (size_t i = rows_.size(); i-- > 0;) {
    const Row& row = rows_[i];
    if (!leaves[i]) continue;
    int32_t outer = row.parent_row;
    if (row.async) {
      if (outer != kNoRow) rows_[outer].children += row.children;
      continue;
    }
    uint64_t from = row.begin;
    for (; outer != kNoRow && from < row.end; outer = rows_[outer].parent_row) {
      Row& parent = rows_[outer];
      uint64_t to = parent.ended ? std::min(row.end, parent.end) : row.end;
      if (to > from) {
        parent.children += to - from;
        from = to;
      }
    }
  }
}

void Decoder::carry(const std::vector<char>& leaves) {
  std::vector<int32_t> moved(rows_.size(), kNoRow);
  std::vector<Row> stay;
  std::vector<std::vector<uint64_t>> counters;
  for (size_t i = 0; i < rows_.size(); i++) {
    if (leaves[i]) continue;
    moved[i] = static_cast<int32_t>(stay.size());
    Row row = rows_[i];
    if (row.parent_row != kNoRow) row.parent_row = moved[row.parent_row];
    if (row.counters != kNone) {
      counters.push_back(std::move(begin_counters_[row.counters]));
      row.counters = static_cast<uint32_t>(counters.size() - 1);
    }
    stay.push_back(row);
  }
  auto move = [&](int32_t& row) { row = row == kNoRow ? kNoRow : moved[row]; };
  for (Thread& thread : threads_) {
    for (int32_t& row : thread.open) move(row);
  }
  for (Memory& event : memory_) move(event.row);
  rows_.assign(stay.begin(), stay.end());  // not swapped: the memory is used again
  begin_counters_.swap(counters);
}

}  // namespace torchreel
