// Arguments for foreign ops. Such an op may keep a tensor that it is given: Python can do anything with it, and so can
// C++. So each call gets tensors that hold a lease on the pool, and later runs do not overwrite what the op keeps.
#pragma once

#include <ATen/core/stack.h>

#include <string>
#include <vector>

#include "graphs/plan/pool.h"
#include "graphs/plan/static_program.h"

namespace torchreel::graphs {

// Whether an op is neither torch's nor torchreel's, so that nobody knows what it does with its arguments.
bool is_foreign(const std::string& op);

// How the tensors on one storage of a graph are given to an op.
struct Loan {
  const c10::StorageImpl* storage;  // as the graph has it
  Range range;                      // in the pool
  int64_t input = -1;               // an input that is only read: the op gets the caller's own tensor; else -1
  int64_t shift = 0;                // bytes from the beginning of the storage to that input, as recorded
};

class Loans {
 public:
  // `given` points to the tensors of the run. `kept` is set to `op` if the op keeps something.
  Loans(std::shared_ptr<Pool> pool, std::vector<Loan> loans, const Tensors* const& given, int64_t& kept, uint32_t op);

  // Replaces the tensors of the graph among the arguments.
  void lend(torch::jit::Stack& arguments);
  // Ends the leases of those that the op does not keep. By now nobody but the op can hold them.
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

// Lends the arguments of one call, and settles at its end, whatever happens.
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
