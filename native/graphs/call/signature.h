// How a function was called: the structure of its arguments, their plain values, and the layout of their tensors. A
// cached recording is replayed only for calls with its signature.
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <string>
#include <vector>

namespace torchreel::graphs {

using Tensors = std::vector<at::Tensor>;

// Tensors among the arguments of a call. The call keeps them alive, so no references are counted. After own(), this
// list holds references itself.
class Borrowed {
 public:
  Borrowed() = default;
  Borrowed(const Borrowed&) = delete;
  ~Borrowed() { clear(); }
  void push(const at::Tensor& tensor) {
    if (owned_) {
      all_.push_back(tensor);
    } else {
      all_.emplace_back(
          c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(tensor.unsafeGetTensorImpl()));
    }
  }
  void own() {
    if (owned_) return;
    for (const auto& tensor : all_) c10::raw::intrusive_ptr::incref(tensor.unsafeGetTensorImpl());
    owned_ = true;
  }
  void clear() {
    if (!owned_) {
      for (auto& tensor : all_) tensor.unsafeReleaseTensorImpl();
    }
    all_.clear();
    owned_ = false;
  }
  const Tensors& all() const { return all_; }
  size_t size() const { return all_.size(); }

 private:
  Tensors all_;
  bool owned_ = false;
};

class Signature {
 public:
  // All functions need the GIL. Arguments come as in a vectorcall: positional ones first, then those given by name.
  Signature(PyObject* const* args, size_t positional, PyObject* names);
  Signature(const Signature&) = delete;
  ~Signature();

  // Compares structure and plain values with another call. Writes that call's tensors to `tensors`, in the order of the
  // arguments. fits() then compares the tensors.
  bool matches(PyObject* const* args, size_t positional, PyObject* names, Borrowed& tensors) const;
  // Compares the tensors: dispatch keys, dtype, sizes, strides, requires_grad, alignment, which of them share memory,
  // and what set_asked() added.
  bool fits(const Tensors& tensors) const;
  // For arguments of other classes than torch's and Python's own. `fit` is called with the arguments of a call, and
  // returns their tensors as a list, or None if the call does not match. `tensors` are those of the recorded call.
  void set_fit(PyObject* fit, const Tensors& tensors);
  // What the function's Python asked each tensor while it was recorded, as (mask, bits) of TensorState, and what the
  // tensor answered when the call began. Other calls must give the same answers. With `identities`, arguments that were
  // one and the same tensor must be so again, and no others.
  void set_asked(const std::vector<std::pair<uint32_t, uint32_t>>& asked, bool identities);
  bool is_plain() const { return plain_; }
  bool has_fit() const { return fit_ != nullptr; }
  void forget_example() { example_.clear(); }
  // "float32[1, 64], 3"
  const std::string& text() const { return text_; }
  size_t tensors() const { return specs_.size(); }

 private:
  struct Item {
    enum Kind { kTensor, kTuple, kList, kDict, kPlain, kObject };
    Kind kind;
    PyTypeObject* type = nullptr;  // kTensor: its class, which lives as long as torch does
    PyObject* value = nullptr;  // kPlain: the value; kObject: a weak reference, or the object; kDict: a tuple of keys
    std::vector<Item> parts;
  };
  struct Spec {
    c10::DispatchKeySet keys;
    caffe2::TypeMeta type;
    c10::ScalarType dtype;
    int64_t item;  // bytes of an element
    c10::DimVector sizes, strides;
    bool requires_grad;
    uint8_t alignment;
    uint32_t same;     // index of the first tensor with the same storage: for most tensors their own
    int64_t distance;  // of their data, in bytes
    bool operator==(const Spec& other) const = default;
  };

  Item take(PyObject* value, int depth);
  static bool same(const Item& item, PyObject* value, Borrowed& tensors);
  static Spec spec_of(const Tensors& tensors, size_t index);
  static void free(Item& item);
  std::string written() const;
  static void write(const Item& item, const std::vector<Spec>& specs, size_t& next, std::string& text);

  std::vector<Item> items_;
  PyObject* names_ = nullptr;
  size_t positional_;
  struct Asked {
    uint32_t index, mask, bits;
  };
  bool answer_the_same(const Tensors& tensors) const;

  std::vector<Spec> specs_;
  std::vector<Asked> asked_;
  // With `identities`: for each tensor the index of the first argument that is the same tensor. Else empty.
  std::vector<uint32_t> firsts_;
  Tensors example_;  // of the recorded call, until forget_example()
  PyObject* fit_ = nullptr;
  bool plain_ = true;
  std::string text_;
};

}  // namespace torchreel::graphs
