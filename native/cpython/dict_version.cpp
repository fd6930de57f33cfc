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

void DictPlaces::find(PyObject* dict, const std::vector<PyObject*>& names) {
  keys_ = nullptr;
  if (reinterpret_cast<PyDictObject*>(dict)->ma_values != nullptr) return;
  const auto* keys = keys_of(dict);
  if (keys->dk_kind != DICT_KEYS_UNICODE) return;
  places_.clear();
  const auto* entries = reinterpret_cast<const PyDictUnicodeEntry*>(entries_of(keys));
  for (PyObject* name : names) {
    Place place{name};
    for (Py_ssize_t i = 0; i < keys->dk_nentries && place.value == nullptr; i++) {
      if (entries[i].me_key == name) place.value = &entries[i].me_value;
    }
    places_.push_back(place);
  }
  keys_ = keys;
  size_ = size_of(keys);
}

bool DictPlaces::fit(PyObject* dict) const {
  const auto* keys = keys_of(dict);
  return keys == keys_ && reinterpret_cast<PyDictObject*>(dict)->ma_values == nullptr && size_of(keys) == size_;
}

PyObject* DictPlaces::at(size_t number) const {
  const Place& place = places_[number];
  return place.value != nullptr && place.value[-1] == place.name ? *place.value : nullptr;
}

}  // namespace torchreel::graphs
