// The device below the allocator: it gives addresses, or refuses. And whatever else an allocator cannot know by itself.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "simulator/block.h"

namespace torchreel::simulator {

class Simulator;

// A request on its way through the allocator.
struct Request {
  uint64_t requested;
  uint64_t size;          // of the block
  uint64_t segment_size;  // of what has to be taken from the device if there is no block
  uint64_t stream;
  Pool* pool;
  PoolPair* owner;
  bool expandable;
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  // Whether the process may take more at all: it may have limited itself.
  virtual bool grants(Simulator& simulator, const Request& request) = 0;
  // cudaMalloc: an address, or nothing.
  virtual std::optional<uint64_t> allocate(const Request& request) = 0;
  virtual void free(const Block& block) = 0;
  // Address space for an expandable segment of the request's stream and pool.
  virtual uint64_t reserve(const Request& request, uint64_t bytes) = 0;
  virtual bool map(uint64_t address, uint64_t bytes) = 0;
  virtual void unmap(const Block& block, uint64_t address, uint64_t bytes) = 0;

  // Every stream has come to its end: the pending frees are to be completed.
  virtual void synchronize(Simulator& simulator) = 0;
  // How many bytes of garbage have to go before anything is taken from the device; 0 for none.
  virtual uint64_t garbage(Simulator& simulator) = 0;
  // After a refusal: whether the allocator releases oversize blocks, or all that it has cached.
  virtual bool releases_oversize(Simulator&, const Request&) { return true; }
  virtual bool releases_cached(Simulator&, const Request& request) { return request.owner->retries; }
  // Whether the oversize blocks that were released are enough.
  virtual bool is_enough(uint64_t released, uint64_t wanted) { return released >= wanted; }
  // The pools whose cached segments go in a release, in order.
  virtual std::vector<PoolPair*> released_pools(Simulator& simulator) = 0;
  // Only asked while the order among equals is being learned.
  virtual FreeSet::iterator choose(const Request&, FreeSet::iterator first) { return first; }
  virtual void arrange(std::vector<Block*>&, bool /*descending*/) {}
};

// A device of a given size. Its addresses only grow, or with a seed jump about, and then are used again at times.
class GeneratedGpu : public Gpu {
 public:
  explicit GeneratedGpu(const Rules& rules) : rules_(rules) {}

  bool grants(Simulator& simulator, const Request& request) override;
  std::optional<uint64_t> allocate(const Request& request) override;
  void free(const Block& block) override;
  uint64_t reserve(const Request& request, uint64_t bytes) override;
  bool map(uint64_t address, uint64_t bytes) override;
  void unmap(const Block&, uint64_t, uint64_t bytes) override { used_ -= bytes; }
  void synchronize(Simulator& simulator) override;
  uint64_t garbage(Simulator& simulator) override;
  std::vector<PoolPair*> released_pools(Simulator& simulator) override;

 private:
  bool take(uint64_t bytes);
  uint64_t address(uint64_t bytes);

  const Rules& rules_;
  uint64_t used_ = 0;
  uint64_t next_ = uint64_t{0x7f} << 40;
  uint64_t jumps_ = 0;
  std::map<uint64_t, std::vector<uint64_t>> freed_;  // addresses by size
  // Apart from the segments, so that neither runs into the other.
  uint64_t next_range_ = uint64_t{1} << 61;
};

}  // namespace torchreel::simulator
