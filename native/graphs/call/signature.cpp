#include "graphs/call/signature.h"

#include <torch/csrc/Size.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>

#include "tape/steps/enums.h"
#include "torch/tensor_layout.h"
#include "torch/tensor_state.h"

namespace torchreel::graphs {

namespace {

constexpr int kDeepest = 12;
constexpr intptr_t kNowhere = INTPTR_MIN;  // the address of a tensor without memory

bool is_plain(PyObject* value) {
  return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) ||
         PyUnicode_CheckExact(value) || PyBytes_CheckExact(value) || PyComplex_CheckExact(value) ||
         THPSize_Check(value) || PyRange_Check(value);
}

bool same_plain(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a)) {
    double left = PyFloat_AS_DOUBLE(a), right = PyFloat_AS_DOUBLE(b);
    return memcmp(&left, &right, sizeof(double)) == 0;
  }
  if (PyComplex_CheckExact(a)) {
    Py_complex left = PyComplex_AsCComplex(a), right = PyComplex_AsCComplex(b);
    return memcmp(&left, &right, sizeof left) == 0;
  }
  if (!is_plain(a)) return false;
  int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

bool is_tensor(PyObject* value) {
  return Py_TYPE(value) == reinterpret_cast<PyTypeObject*>(THPVariableClass) ||
         Py_TYPE(value) == reinterpret_cast<PyTypeObject*>(ParameterClass);
}

}  // namespace

Signature::Signature(PyObject* const* args, size_t positional, PyObject* names) : positional_(positional) {
  size_t named = names == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(names));
  for (size_t i = 0; i < positional + named; i++) items_.push_back(take(args[i], 0));
  if (named > 0) {
    Py_INCREF(names);
    names_ = names;
  }
  for (size_t i = 0; i < example_.size(); i++) specs_.push_back(spec_of(example_, i));
  text_ = written();
}

Signature::~Signature() {
  for (auto& item : items_) free(item);
  Py_XDECREF(names_);
  Py_XDECREF(fit_);
}

void Signature::set_fit(PyObject* fit, const Tensors& tensors) {
  Py_XINCREF(fit);
  Py_XDECREF(fit_);
  fit_ = fit;
  example_ = tensors;
  specs_.clear();
  for (size_t i = 0; i < example_.size(); i++) specs_.push_back(spec_of(example_, i));
}

void Signature::free(Item& item) {
  Py_XDECREF(item.value);
  for (auto& part : item.parts) free(part);
}

Signature::Item Signature::take(PyObject* value, int depth) {
  if (is_tensor(value)) {
    example_.push_back(THPVariable_Unpack(value));
    return {Item::kTensor, Py_TYPE(value), nullptr, {}};
  }
  if (graphs::is_plain(value)) {
    Py_INCREF(value);
    return {Item::kPlain, nullptr, value, {}};
  }
  if (depth < kDeepest && (PyTuple_CheckExact(value) || PyList_CheckExact(value))) {
    Item item{PyTuple_CheckExact(value) ? Item::kTuple : Item::kList, nullptr, nullptr, {}};
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++) {
      item.parts.push_back(take(PySequence_Fast_GET_ITEM(value, i), depth + 1));
    }
    return item;
  }
  if (depth < kDeepest && PyDict_CheckExact(value)) {
    Item item{Item::kDict, nullptr, PyTuple_New(PyDict_GET_SIZE(value)), {}};
    Py_ssize_t at = 0, index = 0;
    PyObject *key, *part;
    while (PyDict_Next(value, &at, &key, &part)) {
      Py_INCREF(key);
      PyTuple_SET_ITEM(item.value, index++, key);
      item.parts.push_back(take(part, depth + 1));
    }
    return item;
  }
  if (THPDtype_Check(value) || THPDevice_Check(value) || PyType_Check(value) || PyFunction_Check(value)) {
    Py_INCREF(value);
    return {Item::kObject, nullptr, value, {}};
  }
  plain_ = false;
  PyObject* weak = PyWeakref_NewRef(value, nullptr);
  if (weak == nullptr) {
    PyErr_Clear();
    Py_INCREF(value);
    weak = value;
  }
  return {Item::kObject, nullptr, weak, {}};
}

bool Signature::same(const Item& item, PyObject* value, Borrowed& tensors) {
  switch (item.kind) {
    case Item::kTensor:
      if (Py_TYPE(value) != item.type) return false;
      tensors.push(THPVariable_Unpack(value));
      return true;
    case Item::kPlain: return same_plain(item.value, value);
    case Item::kObject:
      return value == (PyWeakref_CheckRef(item.value) ? PyWeakref_GET_OBJECT(item.value) : item.value);
    case Item::kDict: {
      if (!PyDict_CheckExact(value) || PyDict_GET_SIZE(value) != static_cast<Py_ssize_t>(item.parts.size()))
        return false;
      Py_ssize_t at = 0;
      size_t index = 0;
      PyObject *key, *part;
      while (PyDict_Next(value, &at, &key, &part)) {
        if (!same_plain(PyTuple_GET_ITEM(item.value, index), key)) return false;
        if (!same(item.parts[index++], part, tensors)) return false;
      }
      return true;
    }
    case Item::kTuple:
    case Item::kList: {
      if (item.kind == Item::kTuple ? !PyTuple_CheckExact(value) : !PyList_CheckExact(value)) return false;
      if (PySequence_Fast_GET_SIZE(value) != static_cast<Py_ssize_t>(item.parts.size())) return false;
      for (size_t i = 0; i < item.parts.size(); i++) {
        if (!same(item.parts[i], PySequence_Fast_GET_ITEM(value, i), tensors)) return false;
      }
      return true;
    }
  }
  return false;
}

bool Signature::matches(PyObject* const* args, size_t positional, PyObject* names, Borrowed& tensors) const {
  size_t named = names == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(names));
  if (positional != positional_ || positional + named != items_.size()) return false;
  for (size_t i = 0; i < named && names != names_; i++) {
    if (!same_plain(PyTuple_GET_ITEM(names_, i), PyTuple_GET_ITEM(names, i))) return false;
  }
  tensors.clear();
  if (fit_ != nullptr) {
    PyObject* found = PyObject_Vectorcall(fit_, args, positional, names);
    if (found == nullptr) PyErr_Clear();
    bool good = found != nullptr && PyList_Check(found);
    for (Py_ssize_t i = 0; good && i < PyList_GET_SIZE(found); i++) {
      PyObject* each = PyList_GET_ITEM(found, i);
      good = is_tensor(each);
      if (good) tensors.push(THPVariable_Unpack(each));
    }
    tensors.own();  // the list is released, and with it its references
    Py_XDECREF(found);
    return good && tensors.size() == specs_.size();
  }
  for (size_t i = 0; i < items_.size(); i++) {
    if (items_[i].kind != Item::kTensor) {
      if (!same(items_[i], args[i], tensors)) return false;
      continue;
    }
    if (Py_TYPE(args[i]) != items_[i].type) return false;
    tensors.push(THPVariable_Unpack(args[i]));
  }
  return true;
}

Signature::Spec Signature::spec_of(const Tensors& tensors, size_t index) {
  const auto& tensor = tensors[index];
  auto* impl = tensor.unsafeGetTensorImpl();
  Spec spec{.keys = impl->key_set(),
            .type = impl->dtype(),
            .dtype = tensor.scalar_type(),
            .item = static_cast<int64_t>(impl->itemsize()),
            .requires_grad = tensor.requires_grad(),
            .alignment = 0,
            .same = static_cast<uint32_t>(index),
            .distance = 0};
  if (tensor.is_nested()) return spec;
  spec.sizes = c10::DimVector(tensor.sizes());
  if (tensor.layout() != c10::kStrided || !tensor.has_storage()) return spec;
  spec.strides = c10::DimVector(tensor.strides());
  auto data = reinterpret_cast<intptr_t>(tensor.const_data_ptr());
  spec.alignment = static_cast<uint8_t>(data & 63);
  for (size_t i = 0; i < index; i++) {
    if (!tensors[i].has_storage() || !tensors[i].storage().is_alias_of(tensor.storage())) continue;
    spec.same = static_cast<uint32_t>(i);
    spec.distance = data - reinterpret_cast<intptr_t>(tensors[i].const_data_ptr());
    break;
  }
  return spec;
}

namespace {

// The storage, the address, the sizes and the strides of a tensor whose keys and dtype are already compared.
struct Lie {
  const c10::StorageImpl* storage;
  intptr_t data = kNowhere;
  const int64_t *sizes = nullptr, *strides = nullptr;
  size_t dim = 0;

  Lie(const c10::TensorImpl& tensor, int64_t item) : storage(tensor.unsafe_storage().unsafeGetStorageImpl()) {
    if (storage == nullptr) return;
    int64_t offset;
    sizes = TensorLayout::sizes_of(tensor);
    if (sizes != nullptr) {
      dim = static_cast<size_t>(sizes[TensorLayout::kDim]);
      strides = sizes + TensorLayout::kStrides;
      offset = sizes[TensorLayout::kOffset];
    } else {
      dim = tensor.sizes().size();
      sizes = tensor.sizes().data();
      strides = tensor.strides().data();
      offset = tensor.storage_offset();
    }
    data = reinterpret_cast<intptr_t>(storage->data()) + offset * item;
  }
};

}  // namespace

bool Signature::fits(const Tensors& tensors) const {
  const size_t count = specs_.size();
  c10::SmallVector<std::pair<const c10::StorageImpl*, intptr_t>, 16> met(count);
  uint64_t bits = 0;  // a Bloom filter of the storages met so far: most storages are new, and it tells at once
  for (size_t i = 0; i < count; i++) {
    const auto& tensor = *tensors[i].unsafeGetTensorImpl();
    const auto& spec = specs_[i];
    if (tensor.key_set() != spec.keys || tensor.dtype() != spec.type) return false;
    if (tensor.requires_grad() != spec.requires_grad) return false;
    const Lie lie(tensor, spec.item);
    met[i] = {lie.storage, lie.data};
    if (lie.storage == nullptr) {
      if (!spec.sizes.empty() && tensor.sizes() != c10::IntArrayRef(spec.sizes)) return false;
      continue;
    }
    if (lie.dim != spec.sizes.size() || (lie.data & 63) != spec.alignment) return false;
    int64_t differ = 0;  // for so few dimensions a loop is quicker than memcmp
    const int64_t *sizes = spec.sizes.data(), *strides = spec.strides.data();
    for (size_t k = 0; k < lie.dim; k++) differ |= (lie.sizes[k] ^ sizes[k]) | (lie.strides[k] ^ strides[k]);
    if (differ != 0) return false;
    size_t first = i;  // the first tensor with this storage
    uint64_t bit = uint64_t{1} << (reinterpret_cast<uintptr_t>(lie.storage) >> 6 & 63);
    if ((bits & bit) != 0) {
      first = 0;
      while (met[first].first != lie.storage) first++;
    }
    bits |= bit;
    if (first != spec.same || (first != i && lie.data - met[first].second != spec.distance)) return false;
  }
  return answer_the_same(tensors);
}

namespace {

uint32_t first_of(const Tensors& tensors, uint32_t index) {
  uint32_t first = 0;
  while (!tensors[first].is_same(tensors[index])) first++;
  return first;
}

}  // namespace

void Signature::set_asked(const std::vector<std::pair<uint32_t, uint32_t>>& asked, bool identities) {
  firsts_.clear();
  for (uint32_t i = 0; identities && i < example_.size(); i++) firsts_.push_back(first_of(example_, i));
  constexpr uint32_t kInSpecs = TensorState::kGeometry | TensorState::kRequiresGrad;
  asked_.clear();
  for (uint32_t i = 0; i < asked.size(); i++) {
    uint32_t mask = asked[i].first & ~kInSpecs;
    if (mask != 0) asked_.push_back({i, mask, asked[i].second & mask});
  }
}

bool Signature::answer_the_same(const Tensors& tensors) const {
  for (const auto& one : asked_) {
    const auto& tensor = tensors[one.index];
    uint32_t now = TensorState::autograd_of(*tensor.unsafeGetTensorImpl());
    if ((one.mask & TensorState::kOwnAttributes) != 0) {
      PyObject* object = THPVariable_Wrap(tensor);
      if (TensorState::has_own_attributes(object)) now |= TensorState::kOwnAttributes;
      Py_DECREF(object);
    }
    if ((now & one.mask) != one.bits) return false;
  }
  for (uint32_t i = 0; i < firsts_.size(); i++) {
    if (first_of(tensors, i) != firsts_[i]) return false;
  }
  return true;
}

void Signature::write(const Item& item, const std::vector<Spec>& specs, size_t& next, std::string& text) {
  switch (item.kind) {
    case Item::kTensor: {
      const auto& spec = specs[next++];
      text += tape::dtype_name(spec.dtype) + "[";
      for (size_t i = 0; i < spec.sizes.size(); i++) text += (i ? ", " : "") + std::to_string(spec.sizes[i]);
      text += spec.requires_grad ? "] with grad" : "]";
      return;
    }
    case Item::kPlain:
    case Item::kObject: {
      PyObject* value = PyWeakref_CheckRef(item.value) ? PyWeakref_GET_OBJECT(item.value) : item.value;
      PyObject* words = item.kind == Item::kPlain ? PyObject_Repr(value) : nullptr;
      const char* bytes = words == nullptr ? nullptr : PyUnicode_AsUTF8(words);
      text += bytes == nullptr ? Py_TYPE(value)->tp_name : bytes;
      PyErr_Clear();
      Py_XDECREF(words);
      return;
    }
    default: {
      const char* brackets = item.kind == Item::kTuple ? "()" : item.kind == Item::kList ? "[]" : "{}";
      text += brackets[0];
      for (size_t i = 0; i < item.parts.size(); i++) {
        if (i) text += ", ";
        write(item.parts[i], specs, next, text);
      }
      text += brackets[1];
    }
  }
}

std::string Signature::written() const {
  std::string text;
  size_t next = 0;
  for (size_t i = 0; i < items_.size(); i++) {
    if (i) text += ", ";
    if (i >= positional_) {
      const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names_, i - positional_));
      text += std::string(name == nullptr ? "?" : name) + "=";
    }
    write(items_[i], specs_, next, text);
  }
  return text;
}

}  // namespace torchreel::graphs
