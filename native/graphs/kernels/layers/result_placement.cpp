#include "graphs/kernels/layers/result_placement.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "graphs/plan/memory_plan.h"
#include "graphs/plan/pool.h"

namespace torchreel::graphs {

namespace {

PlaceBlocks place_blocks = nullptr;

constexpr size_t kLeast = 16 * 1024;  // smaller blocks are neither recorded nor placed
constexpr size_t kMostBlocks = 64;
constexpr int kTries = 3;  // recorded runs, for ops that prepare something in their first run
constexpr uint32_t kNever = UINT32_MAX;

bool is_held_alone(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.has_storage() && tensor.storage().use_count() == 1;
}

const void* memory_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().data() : nullptr;
}

// Others who hold the tensor keep its present content.
void move_away(const at::Tensor& tensor) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  auto data = c10::GetAllocator(c10::DeviceType::CPU)->allocate(storage->nbytes());
  std::memcpy(data.get(), storage->data(), storage->nbytes());
  storage->set_data_ptr_noswap(std::move(data));
}

// Installs the front allocator. Another allocator may forbid that.
bool can_place() {
  if (place_blocks == nullptr) return false;
  try {
    place_blocks(place_blocks(nullptr));
    return true;
  } catch (const c10::Error&) {
    place_blocks = nullptr;
    return false;
  }
}

}  // namespace

void set_place_blocks(PlaceBlocks function) { place_blocks = function; }

std::unique_ptr<ResultPlacement> ResultPlacement::of(const at::Tensor& result, const Idle& idle) {
  if (!result.defined() || result.nbytes() < kLeast || !result.is_non_overlapping_and_dense()) return nullptr;
  if (reinterpret_cast<uintptr_t>(result.const_data_ptr()) % Pool::kAlignment != 0 || !can_place()) return nullptr;
  return std::unique_ptr<ResultPlacement>(new ResultPlacement(result, idle));
}

ResultPlacement::During::During(ResultPlacement* placement)
    : on_(placement != nullptr && placement->phase_ != Phase::kOff) {
  if (placement != nullptr) placement->taken_.clear();
  if (!on_) return;
  placement->next_ = 0;
  placement->clock_ = 0;
  if (placement->phase_ == Phase::kWatching) placement->asked_.clear();
  auto* outer = place_blocks(placement);
  if (outer == nullptr) return;
  on_ = false;  // an op within an op: the planned memory is for the outer one
  place_blocks(outer);
}

ResultPlacement::During::~During() {
  if (on_) place_blocks(nullptr);
}

void* ResultPlacement::take(size_t bytes) {
  if (bytes < kLeast || phase_ != Phase::kPlacing) return nullptr;
  if (next_ >= asked_.size() || asked_[next_].bytes != bytes) {
    phase_ = Phase::kOff;
    return nullptr;
  }
  char* address = asked_[next_++].address;
  if (address == nullptr) return nullptr;
  for (const auto& other : taken_) {
    if (address < other.begin + other.bytes && other.begin < address + bytes) return nullptr;
  }
  taken_.push_back({address, bytes});
  return address;
}

void ResultPlacement::made(void* block, size_t bytes) {
  if (bytes < kLeast || phase_ != Phase::kWatching || asked_.size() > kMostBlocks) return;
  asked_.push_back({bytes, block, clock_++, kNever});
}

bool ResultPlacement::give_back(void* block) {
  auto found = std::find_if(taken_.begin(), taken_.end(), [&](const Block& taken) { return taken.begin == block; });
  if (found != taken_.end()) {
    taken_.erase(found);
    return true;
  }
  if (phase_ != Phase::kWatching) return false;
  for (auto& asked : asked_) {
    if (asked.block == block && asked.freed == kNever) asked.freed = clock_++;
  }
  return false;
}

// The requests are known if only the results are left of them after the op, and nobody else holds the largest.
void ResultPlacement::learn(const at::Tensor& result, const std::vector<const at::Tensor*>& others) {
  const Asked* found = nullptr;
  bool known = asked_.size() <= kMostBlocks && is_held_alone(result);
  for (const auto& asked : asked_) {
    if (asked.freed != kNever) continue;
    bool other = std::any_of(others.begin(), others.end(),
                             [&](const at::Tensor* tensor) { return memory_of(*tensor) == asked.block; });
    if (asked.block == memory_of(result) && asked.bytes == result_.nbytes()) found = &asked;
    known = known && (other || found == &asked);
  }
  if (known && found != nullptr) {
    find_addresses(*found);
    phase_ = Phase::kPlacing;
  } else if (++tries_ >= kTries) {
    phase_ = Phase::kOff;
  }
}

void ResultPlacement::find_addresses(const Asked& result) {
  uint32_t last = 0;  // how long temporary blocks use the memory of the result
  std::vector<Need> needs;
  std::vector<Asked*> needers;
  for (auto& asked : asked_) {
    if (&asked == &result) {
      asked.address = address_;
    } else if (asked.freed == kNever) {
      continue;  // another result: it is copied
    } else if (asked.bytes <= result.bytes && asked.made >= last && asked.freed < result.made) {
      asked.address = address_;
      last = asked.freed;
    } else {
      needs.push_back({asked.bytes, Life::of(asked.made, asked.freed)});
      needers.push_back(&asked);
    }
  }
  plan_memory(needs, {}, kNever);
  for (size_t i = 0; i < needs.size(); i++) {
    if (needs[i].offset + needs[i].bytes <= idle_.bytes) needers[i]->address = idle_.data + needs[i].offset;
  }
}

bool ResultPlacement::is_here(const at::Tensor& tensor) const {
  const auto* memory = memory_of(tensor);
  return std::any_of(taken_.begin(), taken_.end(), [&](const Block& taken) { return taken.begin == memory; });
}

void ResultPlacement::look(const at::Tensor& result, std::vector<const at::Tensor*> others) {
  if (phase_ == Phase::kWatching) return learn(result, others);
  if (taken_.empty()) return;
  bool there = memory_of(result) == address_ && result.const_data_ptr() == address_ &&
               result.strides() == result_.strides() && is_held_alone(result);
  if (!there || taken_.size() != 1) phase_ = Phase::kOff;
  if (!there) others.push_back(&result);
  for (const at::Tensor* tensor : others) {
    if (!is_here(*tensor)) continue;
    give_back(tensor->storage().mutable_data());
    move_away(*tensor);
  }
  size_t left = std::exchange(taken_, {}).size();
  if (left > (there ? 1 : 0)) {
    throw std::runtime_error("An op has kept memory that a graph gave it for the time of its run.");
  }
}

}  // namespace torchreel::graphs
