// CPython's own header of its dicts, as it is installed: a mirror of it would have to be checked against it.
#define Py_BUILD_CORE 1
// clang-format off: the private header needs the public one before it
#include <Python.h>
#include <internal/pycore_dict.h>
// clang-format on

#include "cpython/dict_version.h"

namespace torchreel::graphs {

namespace {

const PyDictKeysObject* keys_of(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_keys; }

int size_of(const PyDictKeysObject* keys) { return keys->dk_log2_size * 4 + keys->dk_kind; }

const char* entries_of(const PyDictKeysObject* keys) {
  return keys->dk_indices + (static_cast<size_t>(1) << keys->dk_log2_index_bytes);
}

}  // namespace

const uint64_t* dict_version(PyObject* dict) { return &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }

void DictSlots::find(PyObject* dict, const std::vector<PyObject*>& names) {
  keys_ = nullptr;
  if (reinterpret_cast<PyDictObject*>(dict)->ma_values != nullptr) return;
  const auto* keys = keys_of(dict);
  if (keys->dk_kind != DICT_KEYS_UNICODE) return;
  slots_.clear();
  const auto* entries = reinterpret_cast<const PyDictUnicodeEntry*>(entries_of(keys));
  for (PyObject* name : names) {
    Slot slot{name};
    for (Py_ssize_t i = 0; i < keys->dk_nentries && slot.value == nullptr; i++) {
      if (entries[i].me_key == name) slot.value = &entries[i].me_value;
    }
    slots_.push_back(slot);
  }
  keys_ = keys;
  size_ = size_of(keys);
}

bool DictSlots::fit(PyObject* dict) const {
  const auto* keys = keys_of(dict);
  return keys == keys_ && reinterpret_cast<PyDictObject*>(dict)->ma_values == nullptr && size_of(keys) == size_;
}

PyObject* DictSlots::at(size_t number) const {
  const Slot& slot = slots_[number];
  return slot.value != nullptr && slot.value[-1] == slot.name ? *slot.value : nullptr;
}

}  // namespace torchreel::graphs
