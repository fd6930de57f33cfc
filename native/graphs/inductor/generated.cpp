#include "graphs/inductor/generated.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

namespace torchreel::graphs {

namespace {

constexpr int kTimes = 5;  // how often one check times both

class GeneratedKernel final : public Kernel {
 public:
  GeneratedKernel(std::shared_ptr<const Generated> generated, std::vector<void*> pointers)
      : generated_(std::move(generated)), run_(generated_->run), pointers_(std::move(pointers)) {}
  void run() override { run_(pointers_.data()); }
  const char* layer() const override { return "inductor"; }

 private:
  std::shared_ptr<const Generated> generated_;
  void (*run_)(void**);
  std::vector<void*> pointers_;
};

struct Tolerance {
  double relative, absolute;
};

// The tolerances of torch.testing.
Tolerance tolerance_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return {1e-7, 1e-7};
    case at::kFloat: return {1.3e-6, 1e-5};
    case at::kHalf: return {1e-3, 1e-5};
    case at::kBFloat16: return {1.6e-2, 1e-5};
    default: return {0, 0};
  }
}

// By all bits, but any NaN equals any other: its bits depend on the operand that a compiler takes first.
template <class Number>
bool same_numbers(const Number* one, const Number* other, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (memcmp(one + i, other + i, sizeof(Number)) != 0 && !(std::isnan(one[i]) && std::isnan(other[i]))) return false;
  }
  return true;
}

bool is_same(const at::Tensor& given_one, const at::Tensor& given_other, bool exact) {
  auto one = given_one.contiguous(), other = given_other.contiguous();
  if (memcmp(one.const_data_ptr(), other.const_data_ptr(), one.nbytes()) == 0) return true;
  auto dtype = one.scalar_type();
  if (!at::isFloatingType(dtype)) return false;
  if (!exact) {
    auto tolerance = tolerance_of(dtype);
    return at::allclose(other, one, tolerance.relative, tolerance.absolute, true);
  }
  if (dtype == at::kFloat) return same_numbers(one.const_data_ptr<float>(), other.const_data_ptr<float>(), one.numel());
  if (dtype == at::kDouble) {
    return same_numbers(one.const_data_ptr<double>(), other.const_data_ptr<double>(), one.numel());
  }
  return false;
}

class TrialKernel final : public Kernel {
 public:
  TrialKernel(std::shared_ptr<Lowering> lowering, std::shared_ptr<Cluster> cluster,
              std::vector<std::unique_ptr<Kernel>> exact, std::unique_ptr<Kernel> generated, TrialMemory memory)
      : lowering_(std::move(lowering)),
        cluster_(std::move(cluster)),
        exact_(std::move(exact)),
        generated_(std::move(generated)),
        memory_(std::move(memory)) {}

  void run() override {
    bool open = cluster_->replacement->state == Replacement::kToCheck && cluster_->checks < Lowering::kChecks;
    if (open) {
      check();
    } else {
      run_exact();
    }
  }
  const char* layer() const override { return "trial"; }

 private:
  void run_exact() {
    for (auto& kernel : exact_) kernel->run();
  }

  void put_back(const std::vector<at::Tensor>& targets, const std::vector<at::Tensor>& values) const {
    for (size_t i = 0; i < targets.size(); i++) targets[i].copy_(values[i]);
  }

  template <class Run>
  double timed(const std::vector<at::Tensor>& before, Run run) const {
    put_back(memory_.written, before);
    auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
  }

  void check() {
    std::vector<at::Tensor> before, wanted;
    for (const auto& tensor : memory_.written) before.push_back(tensor.clone());
    run_exact();
    for (const auto& tensor : memory_.outputs) wanted.push_back(tensor.clone());
    put_back(memory_.written, before);
    generated_->run();
    bool same = true;
    for (size_t i = 0; i < wanted.size(); i++) {
      same = same && is_same(wanted[i], memory_.outputs[i], lowering_->exact());
    }
    if (same) {
      double exact_time = 1e18, generated_time = 1e18;
      for (int i = 0; i < kTimes; i++) {
        exact_time = std::min(exact_time, timed(before, [&] { run_exact(); }));
        generated_time = std::min(generated_time, timed(before, [&] { generated_->run(); }));
      }
      lowering_->checked(*cluster_, exact_time, generated_time);
    } else {
      lowering_->drop(*cluster_, lowering_->exact() ? "it gives other bits" : "it differs by more than the tolerance");
    }
    put_back(memory_.outputs, wanted);
  }

  std::shared_ptr<Lowering> lowering_;
  std::shared_ptr<Cluster> cluster_;
  std::vector<std::unique_ptr<Kernel>> exact_;
  std::unique_ptr<Kernel> generated_;
  TrialMemory memory_;
};

}  // namespace

std::unique_ptr<Kernel> generated_kernel(std::shared_ptr<const Generated> generated, std::vector<void*> pointers) {
  return std::make_unique<GeneratedKernel>(std::move(generated), std::move(pointers));
}

std::unique_ptr<Kernel> trial_kernel(std::shared_ptr<Lowering> lowering, std::shared_ptr<Cluster> cluster,
                                     std::vector<std::unique_ptr<Kernel>> exact, std::unique_ptr<Kernel> generated,
                                     TrialMemory memory) {
  return std::make_unique<TrialKernel>(std::move(lowering), std::move(cluster), std::move(exact), std::move(generated),
                                       std::move(memory));
}

}  // namespace torchreel::graphs
