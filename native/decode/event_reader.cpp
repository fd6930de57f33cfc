#include "decode/event_reader.h"

#include <algorithm>
#include <string>
#include <utility>

namespace torchreel {

using namespace layout;

namespace {

constexpr size_t kThreadsAhead = 256;  // threads whose definition was not yet written when a process was killed

// Words that always follow the first one of an event.
size_t words_after(uint64_t tag) {
  if (tag == kAlloc) return 2;
  return tag == kFree || tag == kEndKeyed || tag == kFlow || tag == kTime || tag == kHandle ? 1 : 0;
}

bool has_time(uint64_t tag) {
  return tag != kStack && tag != kTime && tag != kInputs && tag != kName && tag != kCounters && tag != kHandle;
}

uint64_t flags_of(uint64_t head) { return head >> kFlagShift & 0xf; }

}  // namespace

void EventReader::read(const SpoolBlock& block) {
  const BlockHeader& header = block.header;
  Thread& thread = thread_of(header);
  if (header.follows != kContinues || !thread.seen) {
    if (header.follows == kAfterGap) {
      calls_.cut(header.thread, thread.tick, thread.counters);
      thread.counters.clear();
    }
    thread.tick = header.base_tick;
    thread.seq = header.last_seq;
    thread.stack = static_cast<uint32_t>(header.stack);
    thread.seen = true;
  }
  read_words(header.thread, block.begin, block.end);
}

EventReader::Thread& EventReader::thread_of(const BlockHeader& block) {
  if (block.thread >= definitions_.threads.size() + kThreadsAhead) {
    throw SpoolError("its events name a thread " + std::to_string(block.thread));
  }
  if (block.thread >= threads_.size()) {
    threads_.resize(block.thread + 1);
    calls_.grow_to(threads_.size());
  }
  return threads_[block.thread];
}

void EventReader::finish(uint64_t end_tick) {
  for (uint32_t id = 0; id < threads_.size(); id++) {
    calls_.cut(id, std::max(end_tick, threads_[id].tick), threads_[id].counters);
  }
}

void EventReader::read_words(uint32_t id, Word at, Word end) {
  Thread& thread = threads_[id];
  while (at != nullptr && at < end) {
    uint64_t head = *at++;
    uint64_t tag = head & 0xf;
    size_t needed = words_after(tag);
    if (static_cast<size_t>(end - at) < needed) return;
    if (has_time(tag)) {
      thread.tick += head >> kTicksShift;
      last_tick_ = std::max(last_tick_, thread.tick);
    }
    switch (tag) {
      case kBegin:
      case kBeginKeyed: at = read_begin(thread, id, head, at, end); continue;
      case kCounters:
      case kInputs:
      case kName: at = read_inline(thread, head, at, end); continue;
      case kEnd: read_end(thread, id); break;
      case kEndKeyed: read_end_keyed(thread, id, *at); break;
      case kStack: thread.stack = static_cast<uint32_t>(head >> kIdShift); break;
      case kTime: thread.tick = *at; break;
      case kHandle: read_handle(thread, head, *at); break;
      case kAlloc:
      case kFree: read_memory(thread, id, head, at); break;
      case kMark:
      case kFlow: read_moment(thread, id, head, at); break;
      default: throw SpoolError("its events hold an unknown tag " + std::to_string(tag));
    }
    at += needed;
  }
}

void EventReader::read_handle(Thread& thread, uint64_t head, uint64_t value) {
  if ((flags_of(head) & kModulesFlag) != 0) {
    thread.script = static_cast<uint32_t>(value);
  } else if ((flags_of(head) & kRecordIdFlag) != 0) {
    thread.record_id = static_cast<int64_t>(value);
  } else {
    thread.handle = static_cast<int64_t>(value);
  }
}

void EventReader::read_memory(const Thread& thread, uint32_t id, uint64_t head, Word at) {
  int32_t row = calls_.innermost(id);
  bool is_free = (head & 0xf) == kFree;
  bool is_segment = (flags_of(head) & kSegmentFlag) != 0;
  memory_.add({thread.tick, at[0], is_free ? 0 : at[1], row, id, is_free ? 0 : thread.stack, is_free, is_segment});
}

void EventReader::read_moment(Thread& thread, uint32_t id, uint64_t head, Word at) {
  bool is_flow = (head & 0xf) == kFlow;
  uint32_t name = head >> kIdShift & kIdMask;
  if (name == kInlineName) name = std::exchange(thread.inline_name, kNone);
  if (!windows_.show(thread.tick)) return;
  Moment moment{thread.tick, id, name, calls_.innermost_id(id)};
  if (is_flow) {
    moment.flow = *at;
    moment.in = (flags_of(head) & 1) != 0;
  }
  (is_flow ? moments_.flows : moments_.marks).push_back(moment);
}

void EventReader::read_end(Thread& thread, uint32_t id) {
  calls_.end_innermost(id, thread.tick, thread.counters);
  thread.counters.clear();
}

void EventReader::read_end_keyed(Thread& thread, uint32_t id, uint64_t key) {
  if (!calls_.end_keyed(id, key, thread.tick, thread.counters)) late_ends_.add(key, thread.tick, id);
  thread.counters.clear();
}

EventReader::Word EventReader::read_inline(Thread& thread, uint64_t head, Word at, Word end) {
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
    thread.inline_inputs = inline_definitions_.inputs({at, at + size});
    return at + size;
  }
  uint64_t words = size / 8 + (size % 8 != 0);
  if (left < words) return nullptr;
  thread.inline_name = inline_definitions_.name({reinterpret_cast<const char*>(at), size}, head >> kIdShift & 0xff);
  return at + words;
}

EventReader::Word EventReader::read_begin(Thread& thread, uint32_t id, uint64_t head, Word at, Word end) {
  uint64_t flags = flags_of(head);
  bool keyed = (head & 0xf) == kBeginKeyed;
  bool has_inputs = (flags & kHasInputs) != 0;
  bool has_thread = (flags & kHasForwardThread) != 0;
  uint64_t seq = flags & 3;
  if (end - at < keyed + has_inputs + (seq == kSeqWord) + has_thread) return nullptr;
  Call call{};
  call.thread = id;
  call.begin = thread.tick;
  call.stack = thread.stack;
  call.name = head >> kIdShift & kIdMask;
  if (call.name == kInlineName) call.name = std::exchange(thread.inline_name, kNone);
  if (keyed) {
    call.key = *at & ~kKeyAsync;
    call.async = (*at & kKeyAsync) != 0;
    at++;
  }
  call.inputs = has_inputs ? static_cast<uint32_t>(*at++) : std::exchange(thread.inline_inputs, kNone);
  if (seq != kSeqNone) {
    thread.seq = seq == kSeqSame ? thread.seq : seq == kSeqNext ? thread.seq + 1 : static_cast<int64_t>(*at++);
    call.seq = thread.seq;
  }
  if (has_thread) call.fwd_torch_thread = *at++;
  call.handle = std::exchange(thread.handle, -1);
  call.record_id = std::exchange(thread.record_id, -1);
  if (call.name >= definitions_.names.size()) call.name = inline_definitions_.name("(unknown)", kOther);
  if (call.inputs >= definitions_.inputs.size()) call.inputs = kNone;
  calls_.begin(call, std::exchange(thread.script, kNone), thread.counters);
  return at;
}

}  // namespace torchreel
