#include "result_place.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "copies.h"
#include "pool.h"

namespace torchreel::graphs {

namespace {

PlaceBlocks place_blocks = nullptr;

constexpr size_t kLeast = 16 * 1024;  // less is neither watched nor placed
constexpr size_t kMostBlocks = 64;
constexpr int kTries = 3;  // runs that are watched, where an op prepares something once
constexpr uint32_t kNever = UINT32_MAX;

bool is_held_alone(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.has_storage() && tensor.storage().use_count() == 1;
}

const void* memory_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().data() : nullptr;
}

// Whoever else holds it keeps what is there now.
void move_away(const at::Tensor& tensor) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  auto data = c10::GetAllocator(c10::DeviceType::CPU)->allocate(storage->nbytes());
  std::memcpy(data.get(), storage->data(), storage->nbytes());
  storage->set_data_ptr_noswap(std::move(data));
}

// Installs the allocator that can be told, which another one may forbid.
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

std::unique_ptr<ResultPlace> ResultPlace::of(const at::Tensor& result) {
  if (!result.defined() || result.nbytes() < kLeast || !result.is_non_overlapping_and_dense()) return nullptr;
  if (reinterpret_cast<uintptr_t>(result.const_data_ptr()) % Pool::kAlignment != 0 || !can_place()) return nullptr;
  return std::unique_ptr<ResultPlace>(new ResultPlace(result));
}

ResultPlace::During::During(ResultPlace* place) : on_(place != nullptr && place->phase_ != Phase::kOff) {
  if (!on_) return;
  place->next_ = 0;
  place->clock_ = 0;
  if (place->phase_ == Phase::kWatching) place->asked_.clear();
  auto* outer = place_blocks(place);
  if (outer == nullptr) return;
  on_ = false;  // an op within an op: the place is the outer one's
  place_blocks(outer);
}

ResultPlace::During::~During() {
  if (on_) place_blocks(nullptr);
}

void* ResultPlace::take(size_t bytes) {
  if (bytes < kLeast || phase_ != Phase::kPlacing) return nullptr;
  if (next_ >= asked_.size() || asked_[next_].bytes != bytes) {
    phase_ = Phase::kOff;
    return nullptr;
  }
  if (!asked_[next_++].placed || taken_) return nullptr;
  taken_ = true;
  return place_;
}

void ResultPlace::made(void* block, size_t bytes) {
  if (bytes < kLeast || phase_ != Phase::kWatching || asked_.size() > kMostBlocks) return;
  asked_.push_back({bytes, block, clock_++, kNever});
}

bool ResultPlace::give_back(void* block) {
  if (block == place_) {
    taken_ = false;
    return true;
  }
  if (phase_ != Phase::kWatching) return false;
  for (auto& asked : asked_) {
    if (asked.block == block && asked.freed == kNever) asked.freed = clock_++;
  }
  return false;
}

void ResultPlace::learn(const at::Tensor& result) {
  const auto* memory = memory_of(result);
  auto lives = [](const Asked& asked) { return asked.freed == kNever; };
  auto found = std::find_if(asked_.begin(), asked_.end(), lives);
  bool known = found != asked_.end() && found->block == memory && found->bytes == result_.nbytes() &&
               std::count_if(asked_.begin(), asked_.end(), lives) == 1 && asked_.size() <= kMostBlocks &&
               is_held_alone(result);
  if (!known) {
    if (++tries_ >= kTries) phase_ = Phase::kOff;
    return;
  }
  found->placed = true;
  uint32_t last = 0;  // until when the place is taken by others
  for (auto& asked : asked_) {
    if (lives(asked) || asked.bytes > found->bytes) continue;
    if (asked.made < last || asked.freed > found->made) continue;
    asked.placed = true;
    last = asked.freed;
  }
  phase_ = Phase::kPlacing;
}

bool ResultPlace::is_here(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return false;
  return !apart(tensor, result_);
}

void ResultPlace::look(const at::Tensor& result, std::vector<const at::Tensor*> others) {
  if (phase_ == Phase::kWatching) return learn(result);
  if (!std::exchange(taken_, false)) return;
  if (memory_of(result) == place_ && result.const_data_ptr() == place_ && result.strides() == result_.strides()) {
    if (is_held_alone(result)) return;
    move_away(result);  // and it is copied back from there
    phase_ = Phase::kOff;
    return;
  }
  phase_ = Phase::kOff;
  bool moved = false;
  others.push_back(&result);
  for (const at::Tensor* tensor : others) {
    if (!is_here(*tensor)) continue;
    move_away(*tensor);
    moved = true;
  }
  if (!moved) throw std::runtime_error("An op has kept memory that a graph gave it for the time of its run.");
}

}  // namespace torchreel::graphs
