#include "decode/calls/open_calls.h"

#include <algorithm>

namespace torchreel {

using namespace layout;

namespace {

constexpr size_t kDeepest = 1 << 16;
constexpr size_t kSearched = 1024;  // how deep an end looks for its begin

}  // namespace

int32_t OpenCalls::innermost(uint32_t id) const {
  const Thread& thread = threads_[id];
  for (size_t i = thread.open.size(); i-- > 0;) {
    if (!rows_[thread.open[i]].hidden) return thread.open[i];
  }
  return kNoRow;
}

void OpenCalls::begin(Call& call, uint32_t script, Readings& readings) {
  Thread& thread = threads_[call.thread];
  if (thread.open.size() >= kDeepest) throw SpoolError("its calls are nested too deep");
  auto row = static_cast<int32_t>(rows_.size());
  call.hidden = !windows_.show(call.begin);
  call.id = call.hidden ? -1 : next_id_++;
  call.depth = static_cast<int32_t>(thread.open.size() - thread.hidden);
  call.step = steps_.at(call.begin, thread.steps);
  if (!thread.open.empty()) stand_within_parent(thread, call);
  const auto& name = definitions_.names[call.name];
  if (name.kind == kModule) call.module = name.module;
  if (script < definitions_.names.size()) {
    call.script = script;
    call.module = script_modules_.find(definitions_.modules, call.module, definitions_.names[script].name);
  }
  counters_.begin(call, readings);
  forward_calls_.begin(call);
  rows_.add(call);
  thread.open.push_back(row);
  thread.hidden += call.hidden;
}

void OpenCalls::stand_within_parent(const Thread& thread, Call& call) {
  call.parent_row = innermost(call.thread);
  call.parent = call.parent_row == kNoRow ? -1 : rows_[call.parent_row].id;
  const Call& parent = rows_[thread.open.back()];
  call.module = parent.module;
  call.script = parent.script;
  if (parent.of_backward) {
    call.of_backward = true;
    call.stack = parent.stack;
  }
}

void OpenCalls::end_innermost(uint32_t id, uint64_t tick, const Readings& readings) {
  Thread& thread = threads_[id];
  size_t depth = thread.open.size();
  for (size_t i = depth; i-- > 0 && depth - i <= kSearched;) {
    if (rows_[thread.open[i]].key == 0) return end_at(thread, i, tick, readings);
  }
}

bool OpenCalls::end_keyed(uint32_t id, uint64_t key, uint64_t tick, const Readings& readings) {
  Thread& thread = threads_[id];
  size_t depth = thread.open.size();
  for (size_t i = depth; i-- > 0 && depth - i <= kSearched;) {
    if (rows_[thread.open[i]].key != key) continue;
    end_at(thread, i, tick, readings);
    return true;
  }
  return false;
}

void OpenCalls::end_at(Thread& thread, size_t position, uint64_t tick, const Readings& readings) {
  Call& call = rows_[thread.open[position]];
  call.end = std::max(tick, call.begin);
  call.ended = true;
  thread.hidden -= call.hidden;
  counters_.end(call, readings);
  thread.open.erase(thread.open.begin() + static_cast<ptrdiff_t>(position));
}

void OpenCalls::cut(uint32_t id, uint64_t tick, const Readings& readings) {
  Thread& thread = threads_[id];
  const Readings* left = &readings;  // of the innermost
  static const Readings none;
  while (!thread.open.empty()) {
    rows_[thread.open.back()].cut = true;
    end_at(thread, thread.open.size() - 1, tick, *left);
    left = &none;
  }
}

void OpenCalls::end_elsewhere(int32_t row, uint32_t end_thread, uint64_t tick) {
  Call& call = rows_[row];
  Thread& thread = threads_[call.thread];
  call.async = true;
  call.end_thread = end_thread;
  auto position = std::find(thread.open.begin(), thread.open.end(), row) - thread.open.begin();
  end_at(thread, static_cast<size_t>(position), tick, {});
  for (auto i = static_cast<int32_t>(rows_.size()); i-- > row + 1;) {
    Call& later = rows_[i];
    if (later.thread != call.thread) continue;
    if (later.begin < tick) break;
    if (later.depth > call.depth) later.depth--;
    if (later.parent_row == row) {
      later.parent_row = call.parent_row;
      later.parent = call.parent;
      if (!later.of_backward && call.parent_row != kNoRow && definitions_.names[later.name].kind != kModule) {
        later.module = rows_[call.parent_row].module;
      }
    }
  }
}

std::unordered_multimap<uint64_t, int32_t> OpenCalls::by_key() const {
  std::unordered_multimap<uint64_t, int32_t> open;
  for (const Thread& thread : threads_) {
    for (int32_t row : thread.open) {
      if (rows_[row].key != 0) open.emplace(rows_[row].key, row);
    }
  }
  return open;
}

void OpenCalls::renumber(const std::vector<int32_t>& moved) {
  for (Thread& thread : threads_) {
    for (int32_t& row : thread.open) row = moved[row];
  }
}

}  // namespace torchreel
