// Brings a simulation to the state that was recorded, where the two have parted: so that one difference counts once.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "simulator/recorded/rebuilt_state.h"

namespace torchreel::simulator {

class Correction {
 public:
  Correction(RebuiltState& simulator, std::unordered_map<uint64_t, Block*>& live)
      : simulator_(simulator), live_(live) {}

  // The block at the address, whatever was there.
  Block* place(uint64_t address, const Request& request);
  void add_segment(uint64_t address, uint64_t size, const Request& request);
  void remove_segment(uint64_t address);
  void map(uint64_t address, uint64_t bytes, const Request& request);
  void unmap(uint64_t address, uint64_t bytes);
  // The block that the address lies in, or nullptr.
  Block* block_at(uint64_t address);
  // Whether there is no memory, so that a segment can be.
  bool is_vacant(uint64_t address, uint64_t size);

 private:
  Block* free_block_at(uint64_t address);
  void free(Block* block);

  RebuiltState& simulator_;
  std::unordered_map<uint64_t, Block*>& live_;
};

}  // namespace torchreel::simulator
