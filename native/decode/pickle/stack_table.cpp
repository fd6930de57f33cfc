#include "decode/pickle/stack_table.h"

#include <algorithm>
#include <random>

#include "decode/pickle/pickle.h"

namespace torchreel {

namespace {

Reference owned(PyObject* object) {
  if (object == nullptr) throw PythonError();
  return Reference(object);
}

}  // namespace

StackTable::StackTable() : frames_(owned(PyList_New(0))), by_content_(owned(PyDict_New())) {
  std::random_device device;
  seed_ = (uint64_t{device()} << 32) | device();
}

bool StackTable::number(PyObject* list, int32_t* number) {
  if (list == Py_None) {
    *number = -1;
    return true;
  }
  if (!PyList_CheckExact(list) && !PyTuple_CheckExact(list)) return false;
  auto [known, fresh] = lists_.try_emplace(list, 0);
  if (fresh) {
    known->second = find_or_add(PySequence_Fast_ITEMS(list), static_cast<size_t>(PySequence_Fast_GET_SIZE(list)));
  }
  *number = known->second;
  return true;
}

int32_t StackTable::frame_number(PyObject* frame) {
  auto [known, fresh] = frame_numbers_.try_emplace(frame, 0);
  if (fresh) known->second = same_frame(frame);
  return known->second;
}

// The number of a frame that was not seen before: that of another one of the same content, or a new one. Only texts
// and integers are hashed: anything else may be nested without end.
int32_t StackTable::same_frame(PyObject* frame) {
  auto next = static_cast<int32_t>(PyList_GET_SIZE(frames_.get()));
  PyObject* parts[3] = {nullptr, nullptr, nullptr};
  if (PyDict_CheckExact(frame)) {
    const char* keys[3] = {"filename", "name", "line"};
    for (int i = 0; i < 3; i++) parts[i] = PyDict_GetItemString(frame, keys[i]);
  }
  bool proper = parts[0] != nullptr && PyUnicode_CheckExact(parts[0]) && parts[1] != nullptr &&
                PyUnicode_CheckExact(parts[1]) && parts[2] != nullptr && PyLong_CheckExact(parts[2]);
  if (proper) {
    Reference key = owned(PyTuple_Pack(3, parts[0], parts[1], parts[2]));
    Reference fresh = owned(PyLong_FromLong(next));
    PyObject* same = PyDict_SetDefault(by_content_.get(), key.get(), fresh.get());
    if (same == nullptr) throw PythonError();
    auto number = static_cast<int32_t>(PyLong_AsLong(same));
    if (number != next) return number;
  }
  if (PyList_Append(frames_.get(), frame) != 0) throw PythonError();
  return next;
}

bool StackTable::equal(int32_t number) const {
  auto index = static_cast<size_t>(number);
  auto first = content_.begin() + (index == 0 ? 0 : ends_[index - 1]);
  return std::equal(scratch_.begin(), scratch_.end(), first, content_.begin() + ends_[index]);
}

int32_t StackTable::find_or_add(PyObject** frames, size_t count) {
  scratch_.clear();
  uint64_t hash = seed_;
  for (size_t i = 0; i < count; i++) {
    int32_t frame = frame_number(frames[i]);
    scratch_.push_back(frame);
    hash = (hash ^ static_cast<uint32_t>(frame)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  auto [at, end] = hashes_.equal_range(hash);
  for (; at != end; ++at) {
    if (equal(at->second)) return at->second;
  }
  auto number = static_cast<int32_t>(ends_.size());
  content_.insert(content_.end(), scratch_.begin(), scratch_.end());
  ends_.push_back(static_cast<int64_t>(content_.size()));
  hashes_.emplace(hash, number);
  return number;
}

}  // namespace torchreel
