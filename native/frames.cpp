#include "frames.h"

#include <algorithm>

namespace torchreel {

namespace {

std::string text_of(PyObject* text) {
  Py_ssize_t bytes = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &bytes);
  if (data == nullptr) {
    PyErr_Clear();
    return "?";
  }
  return std::string(data, bytes);
}

}  // namespace

std::string describe(PyCodeObject* code) {
  return text_of(code->co_filename) + "(" + std::to_string(code->co_firstlineno) + "): " + text_of(code->co_qualname);
}

size_t FrameTable::Hash::operator()(const Key& key) const {
  uint64_t hash = reinterpret_cast<uint64_t>(key.code) * 0x9e3779b97f4a7c15;
  hash ^= reinterpret_cast<uint64_t>(key.instr) * 0xc2b2ae3d27d4eb4f;
  hash ^= key.parent * 0x165667b19e3779f9;
  return hash ^ (hash >> 29);
}

bool FrameTable::hides(const std::string& file) const {
  return std::any_of(hidden_.begin(), hidden_.end(), [&](const auto& prefix) { return file.starts_with(prefix); });
}

bool FrameTable::hides(PyCodeObject* code) const { return hides(text_of(code->co_filename)); }

void FrameTable::keep(PyCodeObject* code) {
  std::lock_guard lock(mutex_);
  if (codes_.emplace(code, true).second) Py_INCREF(code);
}

void FrameTable::release() {
  std::unordered_map<PyCodeObject*, bool> codes;
  {
    std::lock_guard lock(mutex_);
    codes.swap(codes_);
  }
  for (auto& [code, kept] : codes) Py_DECREF(code);
}

void FrameTable::clear() {
  {
    std::lock_guard lock(mutex_);
    stacks_.clear();
    frames_.clear();
    next_stack_ = 1;
  }
  release();
}

uint32_t FrameTable::frame(const std::string& file, int line, const std::string& function) {
  std::string key = file + '\0' + std::to_string(line) + '\0' + function;
  auto [known, added] = frames_.emplace(std::move(key), static_cast<uint32_t>(frames_.size()));
  if (added) {
    sink_.frame(known->second, line, file, function);
  }
  return known->second;
}

uint32_t FrameTable::define(const Key& key, PyCodeObject* code, const _Py_CODEUNIT* instr) {
  // The GIL before the table's lock, never the other way: whoever holds the GIL may wait for the lock.
  PyGILState_STATE gil = PyGILState_Ensure();
  int offset = static_cast<int>((instr - _PyCode_CODE(code)) * static_cast<Py_ssize_t>(sizeof(_Py_CODEUNIT)));
  int line = PyCode_Addr2Line(code, offset);
  std::string file = text_of(code->co_filename);
  std::string function = text_of(code->co_qualname);
  keep(code);
  PyGILState_Release(gil);

  std::lock_guard lock(mutex_);
  auto known = stacks_.find(key);
  if (known != stacks_.end()) return known->second;
  uint32_t id = 0;
  if (key.parent != 0 || !hides(file)) {
    if (stacks_.size() >= kMost) return key.parent;
    id = next_stack_++;
    sink_.stack(id, key.parent, frame(file, line, function));
  }
  stacks_.emplace(key, id);
  return id;
}

uint32_t FrameTable::stack(uint32_t parent, PyCodeObject* code, const _Py_CODEUNIT* instr) {
  Key key{parent, code, instr};
  {
    std::lock_guard lock(mutex_);
    auto known = stacks_.find(key);
    if (known != stacks_.end()) return known->second;
  }
  return define(key, code, instr);
}

namespace {

uint32_t cached_stack(StackCache& cache, FrameTable& table, uint32_t parent, const torchreel_frame* frame) {
  uint64_t hash = reinterpret_cast<uint64_t>(frame->prev_instr) * 0x9e3779b97f4a7c15 ^ parent * 0x165667b19e3779f9;
  auto& entry = cache.entries[(hash >> 40) % StackCache::kEntries];
  if (entry.code != frame->code || entry.instr != frame->prev_instr || entry.parent != parent) {
    uint32_t id = table.stack(parent, frame->code, frame->prev_instr);
    entry = {frame->code, frame->prev_instr, parent, id};
  }
  return entry.id;
}

}  // namespace

bool walk_stack(StackCache& cache, FrameTable& table, uint32_t& id) {
  // Asked anew each time: threads that come and go in C++ get another state at each visit to Python.
  PyThreadState* state = PyGILState_GetThisThreadState();
  if (state == nullptr) return false;
  const torchreel_frame* frames[StackCache::kDeepest];
  int depth = 0;
  const auto* frame = innermost_frame(state);
  // Only the innermost can be incomplete: it is being called right now.
  while (frame != nullptr && is_incomplete(frame)) frame = frame->previous;
  for (; frame != nullptr && depth < StackCache::kDeepest; frame = frame->previous) frames[depth++] = frame;
  int same = 0;
  int most = std::min(depth, cache.depth);
  while (same < most) {
    // The address of an instruction tells its code, which is kept alive.
    if (cache.levels[same].instr != frames[depth - 1 - same]->prev_instr) break;
    same++;
  }
  id = same == 0 ? 0 : cache.levels[same - 1].id;
  for (int level = same; level < depth; level++) {
    const auto* caller = frames[depth - 1 - level];
    id = cached_stack(cache, table, id, caller);
    cache.levels[level] = {caller->prev_instr, id};
  }
  cache.depth = depth;
  return true;
}

}  // namespace torchreel
