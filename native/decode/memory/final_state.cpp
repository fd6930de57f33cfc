#include "decode/memory/final_state.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

namespace torchreel {

namespace {

using Type = Column::Type;

constexpr uint64_t kHeader = 64;  // of a block of the caching heap
constexpr uint64_t kSmallSegment = 2 << 20;
constexpr uint64_t kLargestSegment = uint64_t{1} << 46;  // larger ones are damage

struct Piece {
  uint64_t address = 0;
  uint64_t size = 0;
  int64_t requested = 0;
  int64_t alloc = -1;
  uint32_t stack = 0;
  bool active = false;
};

struct Whole {
  uint64_t size = 0;
  uint64_t allocated = 0;
  int64_t requested = 0;
};

std::unique_ptr<Batch> blocks_batch(const std::vector<Piece>& pieces) {
  auto batch = std::make_unique<Batch>();
  Column& device = batch->add("device", Type::kDictionary);
  Column& address = batch->add("address", Type::kInt64);
  Column& size = batch->add("size", Type::kInt64);
  Column& requested = batch->add("requested", Type::kInt64);
  Column& state = batch->add("state", Type::kDictionary);
  Column& stack = batch->add("stack", Type::kInt32);
  Column& alloc = batch->add("alloc", Type::kInt64);
  for (const Piece& piece : pieces) {
    device.add(0);
    address.add(static_cast<int64_t>(piece.address));
    size.add(static_cast<int64_t>(piece.size));
    requested.add(piece.requested);
    state.add(piece.active ? 0 : 1);
    stack.add(piece.stack, 0);
    alloc.add(piece.alloc, -1);
  }
  device.set_dictionary({"cpu"});
  state.set_dictionary({"active_allocated", "inactive"});
  return batch;
}

std::unique_ptr<Batch> segments_batch(const std::map<uint64_t, Whole>& segments) {
  auto batch = std::make_unique<Batch>();
  Column& device = batch->add("device", Type::kDictionary);
  Column& address = batch->add("address", Type::kInt64);
  Column& size = batch->add("size", Type::kInt64);
  Column& allocated = batch->add("allocated", Type::kInt64);
  Column& active = batch->add("active", Type::kInt64);
  Column& requested = batch->add("requested", Type::kInt64);
  Column& type = batch->add("type", Type::kDictionary);
  for (const auto& [at, segment] : segments) {
    device.add(0);
    address.add(static_cast<int64_t>(at));
    size.add(static_cast<int64_t>(segment.size));
    for (Column* column : {&allocated, &active}) column->add(static_cast<int64_t>(segment.allocated));
    requested.add(segment.requested);
    type.add(segment.size == kSmallSegment ? 0 : 1);
  }
  device.set_dictionary({"cpu"});
  type.set_dictionary({"small", "large"});
  return batch;
}

}  // namespace

// How much of the free memory belongs to a living block, as the slack of its size class, an event does not tell.
void add_final_state(const MemoryPairing& memory, Batches& batches) {
  std::map<uint64_t, Whole> segments;
  for (const auto& [at, bytes] : memory.segments()) {
    auto size = static_cast<uint64_t>(bytes);
    if (bytes > 0 && size <= kLargestSegment && at <= kLargestSegment * 2) segments[at].size = size;
  }
  std::vector<Piece> living;
  for (const auto& [at, block] : memory.living()) {
    living.push_back({at, static_cast<uint64_t>(block.bytes), block.bytes, block.alloc, block.stack, true});
  }
  std::sort(living.begin(), living.end(), [](auto& a, auto& b) { return a.address < b.address; });

  std::vector<Piece> pieces;
  auto next = living.begin();
  uint64_t covered = 0;  // segments of a damaged recording may overlap
  for (auto& [first, segment] : segments) {
    for (; next != living.end() && next->address < first; ++next) pieces.push_back(*next);
    uint64_t at = std::max(first, covered);
    uint64_t end = first + segment.size;
    for (; next != living.end() && next->address < end; ++next) {
      Piece piece = *next;
      if (piece.address > at) pieces.push_back({.address = at, .size = piece.address - at});
      piece.size = std::min((piece.size + 63) / 64 * 64 + kHeader, end - piece.address);
      segment.allocated += piece.size;
      segment.requested += piece.requested;
      at = std::max(at, piece.address + piece.size);
      pieces.push_back(piece);
    }
    if (at < end) pieces.push_back({.address = at, .size = end - at});
    covered = std::max(covered, end);
  }
  pieces.insert(pieces.end(), next, living.end());
  batches.emplace_back("blocks", blocks_batch(pieces));
  batches.emplace_back("segments", segments_batch(segments));
}

}  // namespace torchreel
