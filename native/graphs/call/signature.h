// How a function was called: the structure of its arguments, what they are, and how their tensors lie.
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <string>
#include <vector>

namespace torchreel::graphs {

using Tensors = std::vector<at::Tensor>;

// Tensors of a call, which the call itself keeps alive: they are not counted, unless own() is called.
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
  // The GIL is held in all of these. A call as vectorcall has it: positional arguments, then those by name.
  Signature(PyObject* const* args, size_t positional, PyObject* names);
  Signature(const Signature&) = delete;
  ~Signature();

  // Whether a call is as this one was. Its tensors are written to `tensors`, in the order of the arguments.
  bool matches(PyObject* const* args, size_t positional, PyObject* names, Borrowed& tensors) const;
  // Whether its tensors lie as they did: dtype, sizes, strides, alignment, and which share memory.
  bool fits(const Tensors& tensors) const;
  // For arguments of other classes than torch's and Python's own: a function that gives their tensors as a list, or
  // None if the call is another one.
  void set_fit(PyObject* fit, const Tensors& tensors);
  // What Python asked the tensors of the recorded call, and what they answered when it began: masks and bits of
  // TensorState, one for each tensor. From here on other calls must have the same answers.
  // With `identities`, also the same of them must be one and the same tensor.
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
    PyTypeObject* type = nullptr;  // of a tensor; those of torch itself live for ever
    PyObject* value = nullptr;     // of a plain one; a weak reference or the object; the keys of a dict as a tuple
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
    uint32_t same;     // the first tensor with this storage: itself for most
    int64_t distance;  // in bytes from that one
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
  std::vector<uint32_t> firsts_;  // for each tensor the index of the first that is the same one, where identities count
  Tensors example_;
  PyObject* fit_ = nullptr;
  bool plain_ = true;
  std::string text_;
};

}  // namespace torchreel::graphs
