#include "graphs/call/replay/rollback.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>

#include <cstring>

namespace torchreel::graphs {

namespace {

at::Tensor copied_bytes(const c10::Storage& storage) {
  auto copy = at::detail::empty_cpu({static_cast<int64_t>(storage.nbytes())}, at::kByte);
  memcpy(copy.mutable_data_ptr(), storage.data(), storage.nbytes());
  return copy;
}

}  // namespace

void Rollback::save(const StaticProgram& program) {
  bytes_.clear();
  if (!program.has_guards()) return;
  for (uint32_t slot : program.written_before_guard()) bytes_.push_back(copied_bytes(program.tensor(slot).storage()));
  if (program.draws_before_guard()) generator_ = at::detail::getDefaultCPUGenerator().get_state();
}

void Rollback::restore(const StaticProgram& program) const {
  for (size_t i = 0; i < bytes_.size(); i++) {
    const auto& storage = program.tensor(program.written_before_guard()[i]).storage();
    memcpy(storage.mutable_data(), bytes_[i].const_data_ptr(), storage.nbytes());
  }
  if (!program.draws_before_guard()) return;
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(generator_);
}

}  // namespace torchreel::graphs
