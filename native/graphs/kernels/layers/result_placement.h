// Lets an op without out= make its largest result in planned memory, so that nothing is copied.
//
// The op asks torch's allocator for memory as always. The first run records its requests, and so shows which block is
// the result and which are temporary. In later runs the allocator gives the op the planned memory for the result.
// Temporary blocks get idle memory of the graph, or that of the result before it is needed. If a later run makes other
// requests, or others hold the result, the op allocates as in eager from then on.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "base/placement.h"
#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

// The interface of the front allocator of CPU tensors. Without it, results are copied.
void set_place_blocks(PlaceBlocks function);

class ResultPlacement final : public Placement {
 public:
  // Null for a result that is so small that a copy is as good, and without the front allocator.
  static std::unique_ptr<ResultPlacement> of(const at::Tensor& result, const Idle& idle);

  // The op runs while this lives.
  class During {
   public:
    explicit During(ResultPlacement* placement);
    ~During();
    During(const During&) = delete;

   private:
    bool on_;
  };

  // Call it with the results of the op, of which nobody else holds any here, before they are copied. Moves other
  // tensors away from the planned memory. Throws if the op keeps that memory.
  void look(const at::Tensor& result, std::vector<const at::Tensor*> others);

  void* take(size_t bytes) override;
  void made(void* block, size_t bytes) override;
  bool give_back(void* block) override;

 private:
  enum class Phase { kWatching, kPlacing, kOff };
  // A block that the op asks for, and its life, counted in requests and frees.
  struct Asked {
    size_t bytes;
    const void* block;
    uint32_t made;
    uint32_t freed;
    char* address = nullptr;
  };
  struct Block {
    char* begin;
    size_t bytes;
  };

  ResultPlacement(const at::Tensor& result, const Idle& idle)
      : result_(result), address_(static_cast<char*>(result.mutable_data_ptr())), idle_(idle) {}
  void learn(const at::Tensor& result, const std::vector<const at::Tensor*>& others);
  void find_addresses(const Asked& result);
  bool is_here(const at::Tensor& tensor) const;

  at::Tensor result_;  // in planned memory
  char* address_;
  Idle idle_;
  Phase phase_ = Phase::kWatching;
  std::vector<Asked> asked_;
  std::vector<Block> taken_;
  size_t next_ = 0;
  uint32_t clock_ = 0;
  int tries_ = 0;
};

}  // namespace torchreel::graphs
