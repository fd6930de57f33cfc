// Lets an op that has no out= make its largest result where it belongs, so that nothing is copied.
//
// The op asks torch's allocator for memory as always. At its first run what it asks for is watched, and then it is
// known which block was the result, and which others came and went: these are put at the result's place as long as it
// is not needed, or where the graph's memory is idle. An op that asks for something else at a later run, or that lets
// others hold its result, is left alone from then on.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "base/placement.h"
#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

// How the allocator of CPU tensors is told; without one nothing is placed.
void set_place_blocks(PlaceBlocks function);

class ResultPlacement final : public Placement {
 public:
  // Nothing for a result that is as well copied, and where the allocator cannot be told.
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

  // To be called with what the op gave, each held by nobody else here, before any of it is copied: what lies at the
  // place and is not the result itself is moved away. Throws if the op has kept the place.
  void look(const at::Tensor& result, std::vector<const at::Tensor*> others);

  void* take(size_t bytes) override;
  void made(void* block, size_t bytes) override;
  bool give_back(void* block) override;

 private:
  enum class Phase { kWatching, kPlacing, kOff };
  // A block that the op asks for, and when: counted in blocks that came and went.
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

  at::Tensor result_;  // at its place
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
