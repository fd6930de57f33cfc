#include "graphs/plan/loans.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace torchreel::graphs {

namespace {

constexpr std::array<std::string_view, 18> kOfTorch = {"aten",
                                                       "prims",
                                                       "prim",
                                                       "quantized",
                                                       "quantized_decomposed",
                                                       "mkldnn",
                                                       "mkldnn_prepacked",
                                                       "mkl",
                                                       "onednn",
                                                       "sparse",
                                                       "c10d",
                                                       "_c10d_functional",
                                                       "_c10d_functional_autograd",
                                                       "xnnpack",
                                                       "prepacked",
                                                       "rngprims",
                                                       "profiler",
                                                       "torchreel"};

const c10::StorageImpl* storage_impl(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// A tensor like another, on other memory, as an op makes it.
at::Tensor like(const at::Tensor& tensor, const c10::Storage& storage, int64_t offset) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                       c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), offset);
  made._set_conj(tensor.is_conj());
  made._set_neg(tensor.is_neg());
  return made;
}

}  // namespace

bool is_foreign(const std::string& op) {
  auto space = std::string_view(op).substr(0, op.find("::"));
  return std::find(kOfTorch.begin(), kOfTorch.end(), space) == kOfTorch.end();
}

Loans::Loans(std::shared_ptr<Pool> pool, std::vector<Loan> loans, const Tensors* const& given, int64_t& kept,
             uint32_t op)
    : pool_(std::move(pool)), loans_(std::move(loans)), given_(given), kept_(kept), op_(op) {}

void Loans::lend(torch::jit::Stack& arguments) {
  now_.clear();
  for (auto& value : arguments) {
    if (value.isTensor()) {
      value = lent(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(lent(tensor));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor.has_value() ? std::optional(lent(*tensor)) : std::nullopt);
      }
      value = std::move(list);
    }
  }
}

at::Tensor Loans::lent(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return tensor;
  const auto* storage = storage_impl(tensor);
  for (const auto& [known, memory] : now_) {
    if (known == storage) return like(tensor, memory, tensor.storage_offset());
  }
  auto loan = std::find_if(loans_.begin(), loans_.end(), [&](const auto& one) { return one.storage == storage; });
  if (loan == loans_.end()) return tensor;
  if (loan->input >= 0) return of_input(*loan, tensor);
  auto* lease = pool_->lease(loan->range, nullptr, Lease::kLent);
  auto data = pool_->data(lease, const_cast<void*>(storage->data()));
  now_.emplace_back(storage, c10::Storage(c10::Storage::use_byte_size_t(), storage->nbytes(), std::move(data),
                                          c10::GetAllocator(c10::DeviceType::CPU), false));
  return like(tensor, now_.back().second, tensor.storage_offset());
}

at::Tensor Loans::of_input(const Loan& loan, const at::Tensor& tensor) const {
  const auto& input = (*given_)[static_cast<size_t>(loan.input)];
  auto bytes = static_cast<int64_t>(tensor.element_size());
  int64_t from = tensor.storage_offset() * bytes - loan.shift +
                 input.storage_offset() * static_cast<int64_t>(input.element_size());
  bool same = from == input.storage_offset() * static_cast<int64_t>(input.element_size()) &&
              input.scalar_type() == tensor.scalar_type() && input.sizes() == tensor.sizes() &&
              input.strides() == tensor.strides() && input.is_conj() == tensor.is_conj() &&
              input.is_neg() == tensor.is_neg();
  return same ? input : like(tensor, input.storage(), from / bytes);
}

void Loans::settle() {
  for (const auto& [storage, memory] : now_) {
    if (memory.use_count() > 1) kept_ = op_;
  }
  now_.clear();
}

}  // namespace torchreel::graphs
