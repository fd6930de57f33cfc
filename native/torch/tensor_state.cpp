#include "torch/tensor_state.h"

#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string_view>
#include <typeinfo>

namespace torchreel::graphs {

namespace {

bool has_geometry(const c10::TensorImpl& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_python_dispatch() &&
         !tensor.key_set().has(c10::DispatchKey::NestedTensor);
}

}  // namespace

namespace {

// A hook that is a function of Python: torch does not export its classes. Hooks of C++, as those of
// DistributedDataParallel, are parts of ops that the tape sees.
template <typename Hook>
bool has_python(const std::vector<std::unique_ptr<Hook>>& hooks) {
  return std::any_of(hooks.begin(), hooks.end(), [](const auto& hook) {
    const auto& one = *hook;
    return std::string_view(typeid(one).name()).find("PyFunction") != std::string_view::npos;
  });
}

bool accumulator_has_hooks(const torch::autograd::AutogradMeta& meta) {
  auto accumulator = meta.grad_accumulator_.lock();
  return accumulator && (has_python(accumulator->pre_hooks()) || has_python(accumulator->post_hooks()));
}

}  // namespace

uint32_t TensorState::autograd_of(const c10::TensorImpl& tensor) {
  auto* meta = static_cast<torch::autograd::AutogradMeta*>(const_cast<c10::TensorImpl&>(tensor).autograd_meta());
  if (meta == nullptr) return 0;
  uint32_t bits = 0;
  if (meta->requires_grad_) bits |= kRequiresGrad;
  if (meta->grad_fn_) bits |= kGradFn | kRequiresGrad;
  if (meta->grad_.defined()) bits |= kGrad;
  if (!meta->hooks_.empty() || meta->cpp_hooks_list_ != nullptr) bits |= kHooks;
  if (meta->post_acc_grad_hooks_ != nullptr || accumulator_has_hooks(*meta)) bits |= kAccumulateHooks;
  if (meta->retains_grad_) bits |= kRetainsGrad;
  if (meta->fw_grad_ != nullptr && !meta->fw_grad_->empty()) bits |= kForwardGrad;
  return bits;
}

bool TensorState::has_own_attributes(PyObject* object) {
  if (object == nullptr) return false;
  PyObject** dict = _PyObject_GetDictPtr(object);
  if (dict == nullptr || *dict == nullptr || PyDict_GET_SIZE(*dict) == 0) return false;
  Py_ssize_t at = 0;
  PyObject *name, *value;
  while (PyDict_Next(*dict, &at, &name, &value)) {
    const char* text = PyUnicode_CheckExact(name) ? PyUnicode_AsUTF8(name) : nullptr;
    if (text == nullptr) PyErr_Clear();
    // What Dynamo has marked a tensor with is nothing to eager.
    if (text == nullptr || !std::string_view(text).starts_with("_dynamo_")) return true;
  }
  return false;
}

TensorState TensorState::of(const c10::TensorImpl& tensor, PyObject* object) {
  TensorState state;
  state.autograd = autograd_of(tensor) | (has_own_attributes(object) ? kOwnAttributes : 0);
  state.keys = tensor.key_set();
  state.type = tensor.dtype();
  if (has_geometry(tensor)) {
    state.sizes = c10::DimVector(tensor.sizes());
    state.strides = c10::DimVector(tensor.strides());
    state.offset = tensor.storage_offset();
  }
  return state;
}

bool TensorState::is(const c10::TensorImpl& tensor, PyObject* object, uint32_t mask) const {
  uint32_t now = autograd_of(tensor);
  if ((mask & kOwnAttributes) != 0 && has_own_attributes(object)) now |= kOwnAttributes;
  if (((now ^ autograd) & mask & ~kGeometry) != 0) return false;
  if ((mask & kGeometry) == 0) return true;
  if (tensor.key_set() != keys || tensor.dtype() != type) return false;
  if (!has_geometry(tensor)) return false;
  return tensor.sizes() == c10::IntArrayRef(sizes) && tensor.strides() == c10::IntArrayRef(strides) &&
         tensor.storage_offset() == offset;
}

}  // namespace torchreel::graphs
