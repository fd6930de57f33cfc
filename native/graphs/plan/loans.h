// What an op that is none of torch's is given of the pool. It may keep it: Python can do anything with a tensor, and so
// can C++. So each call gets tensors that hold a lease, and what is kept is out of the way of later runs.
#pragma once

#include <ATen/core/stack.h>

#include <string>
#include <vector>

#include "graphs/plan/pool.h"
#include "graphs/plan/static_program.h"

namespace torchreel::graphs {

// Whether an op comes from elsewhere than torch and torchreel, so that nobody knows what it does with its arguments.
bool is_foreign(const std::string& op);

// How the tensors on one storage of a graph are given to an op.
struct Loan {
  const c10::StorageImpl* storage;  // as the graph has it
  Range range;                      // in the pool
  int64_t input = -1;               // the input that it lies in, if that is only read: the caller's own tensor is given
  int64_t shift = 0;                // of that input in its storage, in bytes, when it was recorded
};

class Loans {
 public:
  // `given` is where the tensors of the run are found, and `kept` is set to `op` where the op keeps something.
  Loans(std::shared_ptr<Pool> pool, std::vector<Loan> loans, const Tensors* const& given, int64_t& kept, uint32_t op);

  // Replaces the tensors of the graph among the arguments.
  void lend(torch::jit::Stack& arguments);
  // When nobody but the op can hold them any more: ends the leases of those that it does not keep.
  void settle();

 private:
  at::Tensor lent(const at::Tensor& tensor);
  at::Tensor of_input(const Loan& loan, const at::Tensor& tensor) const;

  std::shared_ptr<Pool> pool_;
  std::vector<Loan> loans_;
  const Tensors* const& given_;
  int64_t& kept_;
  uint32_t op_;
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> now_;
};

// The arguments of one call: they are lent here, and given back at the end, whatever happens.
class Lending {
 public:
  Lending(Loans* loans, torch::jit::Stack& stack) : loans_(loans), stack_(stack) {
    if (loans_ != nullptr) loans_->lend(stack_);
  }
  ~Lending() {
    if (loans_ == nullptr) return;
    stack_.clear();
    loans_->settle();
  }
  Lending(const Lending&) = delete;

 private:
  Loans* loans_;
  torch::jit::Stack& stack_;
};

}  // namespace torchreel::graphs
