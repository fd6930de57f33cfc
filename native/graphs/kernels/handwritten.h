// What handwritten kernels have in common. Each family of them adds itself to a table, by its add_...() below.
#pragma once

#include <ATen/native/TensorIterator.h>
#include <ATen/ops/from_blob.h>

#include <utility>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

template <class Body>
class Prepared final : public Kernel {
 public:
  Prepared(const char* layer, Body body) : layer_(layer), body_(std::move(body)) {}
  void run() override { body_(); }
  const char* layer() const override { return layer_; }

 private:
  const char* layer_;
  Body body_;
};

// The body is called without indirection. It holds pointers and numbers, and what keeps their memory alive.
template <class Body>
std::unique_ptr<Kernel> kernel_of(const char* layer, Body body) {
  return std::make_unique<Prepared<Body>>(layer, std::move(body));
}

// A tensor argument; undefined if it is None.
inline at::Tensor tensor_at(const KernelCall& call, size_t index) {
  const auto& value = call.arguments[index];
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

// Without gaps, overlaps, and lazy conjugation or negation.
inline bool is_dense(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && !tensor.is_conj() && !tensor.is_neg();
}

// Bytes that a kernel may keep for itself from run to run. Torch allocates such memory for the time of one op; here
// more would add up over a graph, so such ops are left to torch.
constexpr size_t kMostKept = 1 << 20;

// A tensor like another on idle memory; undefined if that is too small.
inline at::Tensor tensor_on_idle(const Idle& idle, const at::Tensor& like) {
  if (idle.bytes < like.nbytes() || !like.is_non_overlapping_and_dense()) return at::Tensor();
  return at::from_blob(idle.data, like.sizes(), like.strides(), like.options());
}

inline bool may_keep(const at::Tensor& like) { return like.nbytes() <= kMostKept; }

inline bool is_contiguous(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

inline bool same_layout(const at::Tensor& one, const at::Tensor& other) {
  return one.scalar_type() == other.scalar_type() && one.sizes() == other.sizes() && one.strides() == other.strides();
}

void add_activations(Preparers& table);
void add_attention(Preparers& table);
void add_batched_products(Preparers& table);
void add_convolution(Preparers& table);
void add_copies(Preparers& table);
void add_fills(Preparers& table);
void add_foreach(Preparers& table);
void add_losses(Preparers& table);
void add_lookups(Preparers& table);
void add_matrix_products(Preparers& table);
void add_norms(Preparers& table);
void add_pieces(Preparers& table);
void add_pointwise(Preparers& table);
void add_pools(Preparers& table);
void add_reductions(Preparers& table);
void add_vector_products(Preparers& table);

}  // namespace torchreel::graphs
