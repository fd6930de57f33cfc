#include "cpython/frames.h"

#include <algorithm>

#include "base/text.h"

namespace torchreel {

std::string python_bytes(PyObject* text) {
  if (PyBytes_Check(text)) return {PyBytes_AS_STRING(text), static_cast<size_t>(PyBytes_GET_SIZE(text))};
  if (!PyUnicode_Check(text)) return "?";
  Py_ssize_t bytes = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &bytes);
  if (data != nullptr) return {data, static_cast<size_t>(bytes)};
  for (const char* errors : {"surrogateescape", "backslashreplace"}) {
    PyErr_Clear();
    PyObject* encoded = PyUnicode_AsEncodedString(text, "utf-8", errors);
    if (encoded == nullptr) continue;
    std::string result = python_bytes(encoded);
    Py_DECREF(encoded);
    return result;
  }
  PyErr_Clear();
  return "?";
}

std::string python_text(PyObject* text) { return valid_text(python_bytes(text)); }

std::string describe(PyCodeObject* code) {
  return python_text(code->co_filename) + "(" + std::to_string(code->co_firstlineno) +
         "): " + python_text(code->co_qualname);
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

bool FrameTable::hides(PyCodeObject* code) const { return hides(python_text(code->co_filename)); }

void FrameTable::keep(PyCodeObject* code) {
  std::lock_guard lock(mutex_);
  if (codes_.emplace(code, true).second) Py_INCREF(code);
}

void FrameTable::release() {
  std::unordered_map<PyCodeObject*, bool> codes;
  {
    std::lock_guard lock(mutex_);
    codes.swap(codes_);
    sources_.clear();
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
  std::string file = python_text(code->co_filename);
  std::string function = python_text(code->co_qualname);
  keep(code);
  PyGILState_Release(gil);
  return add(key, file, line, function);
}

uint32_t FrameTable::add(const Key& key, const std::string& file, int line, const std::string& function) {
  std::lock_guard lock(mutex_);
  auto known = stacks_.find(key);
  if (known != stacks_.end()) return known->second;
  uint32_t id = key.parent;
  if (!is_own(file) && (key.parent != 0 || !hides(file))) {
    if (stacks_.size() >= kMost) return key.parent;
    id = next_stack_++;
    sink_.stack(id, key.parent, frame(file, line, function));
  }
  stacks_.emplace(key, id);
  return id;
}

bool FrameTable::find(uint32_t parent, const void* source, const void* place, uint32_t& id) {
  std::lock_guard lock(mutex_);
  auto known = stacks_.find(Key{parent, source, place});
  if (known == stacks_.end()) return false;
  id = known->second;
  return true;
}

uint32_t FrameTable::stack(uint32_t parent, PyCodeObject* code, const _Py_CODEUNIT* instr) {
  uint32_t id;
  return find(parent, code, instr, id) ? id : define({parent, code, instr}, code, instr);
}

uint32_t FrameTable::define_script(uint32_t parent, std::shared_ptr<const void> source, const void* place,
                                   const std::string& file, int line, const std::string& function) {
  Key key{parent, source.get(), place};
  {
    std::lock_guard lock(mutex_);
    sources_.emplace(source.get(), std::move(source));
  }
  return add(key, valid_text(file), line, valid_text(function));
}

namespace {

uint32_t cached_stack(StackCache& cache, FrameTable& table, uint32_t parent, const torchreel_frame* frame) {
  uint64_t hash = reinterpret_cast<uint64_t>(frame->prev_instr) * 0x9e3779b97f4a7c15 ^ parent * 0x165667b19e3779f9;
  const auto& entry = cache.entries.find(hash >> 40);
  if (entry.code == frame->code && entry.instr == frame->prev_instr && entry.parent == parent) return entry.id;
  uint32_t id = table.stack(parent, frame->code, frame->prev_instr);
  cache.entries.missed(hash >> 40) = {frame->code, frame->prev_instr, parent, id};
  return id;
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
