#include "tape/capture/traced_call.h"

#include <stdexcept>

#include "tape/dispatch/fallback.h"

namespace torchreel::tape {

namespace {

std::shared_ptr<Capture>& last_capture() {
  static auto* last = new std::shared_ptr<Capture>();  // never freed: threads may outlive static objects
  return *last;
}

}  // namespace

TracedCall::TracedCall(const std::vector<at::Tensor>& inputs, bool hashes)
    : capture_(std::make_shared<Capture>(CaptureOptions{.hashes = hashes})) {
  if (Capture::active() != nullptr) throw std::runtime_error("a tape is being recorded");
  register_capture();
  for (const auto& input : inputs) input_slots_.push_back(capture_->take_input(input));
  last_capture() = capture_;
  capture_->start();
  Capture::follow_thread(true);
}

std::vector<int64_t> TracedCall::end(const std::vector<at::Tensor>& results) {
  Capture::follow_thread(false);
  capture_->stop();
  std::vector<int64_t> slots;
  for (const auto& result : results) slots.push_back(result.defined() ? capture_->slots.read(result) : -1);
  return slots;
}

void TracedCall::forget_last() {
  if (Capture::active() == nullptr) last_capture().reset();
}

std::vector<TracedCall::External> TracedCall::externals() const {
  std::vector<External> all;
  const auto& slots = capture_->slots;
  for (size_t i = 0; i < slots.externals().size(); i++) {
    const auto& tensor = slots.externals()[i];
    bool alone = tensor.use_count() == 1 && (!tensor.has_storage() || tensor.storage().use_count() == 1);
    all.push_back({slots.external_slots()[i], tensor, alone});
  }
  return all;
}

std::vector<TracedCall::External> TracedCall::tensors_from_outside() const {
  auto all = externals();
  std::erase_if(all, [](const auto& one) { return one.tensor.unsafeGetTensorImpl()->is_wrapped_number(); });
  return all;
}

TracedCall::SlotPairs TracedCall::gradients_of_leaves(bool made) const {
  SlotPairs all;
  auto& slots = capture_->slots;
  size_t count = slots.externals().size();
  for (size_t i = 0; i < count; i++) {
    const auto& owner = slots.externals()[i];
    if (!owner.is_leaf() || (made && !owner.requires_grad()) || !owner.grad().defined()) continue;
    uint32_t slot = slots.find(owner.grad());
    if (slot == kNone || (slots.all()[slot].external == kNone) != made) continue;
    all.emplace_back(slots.external_slots()[i], slot);
  }
  return all;
}

TracedCall::SlotPairs TracedCall::rebound() const {
  SlotPairs all;
  auto& slots = capture_->slots;
  size_t count = slots.externals().size();
  for (size_t i = 0; i < count; i++) {
    const auto& tensor = slots.externals()[i];
    if (!tensor.has_storage() || tensor.layout() != c10::kStrided) continue;
    uint32_t slot = slots.find(tensor), before = slots.external_slots()[i];
    if (slot != before) all.emplace_back(before, slot == kNone ? -1 : static_cast<int64_t>(slot));
  }
  return all;
}

std::vector<int> TracedCall::asked_inputs() const {
  std::vector<int> asked;
  auto& slots = capture_->slots;
  for (uint32_t slot : input_slots_) {
    uint32_t storage = slots.all()[slot].storage;
    asked.push_back(storage == kNone ? 0 : slots.storages()[storage].asked);
  }
  return asked;
}

size_t TracedCall::first_backward() const {
  const auto& ops = capture_->ops;
  size_t index = 0;
  while (index < ops.size() && !ops[index].backward) index++;
  return index;
}

Kept TracedCall::kept() const {
  Kept kept{.objects = capture_->objects};
  for (const auto& known : capture_->generators) kept.generators.push_back(known.generator);
  return kept;
}

}  // namespace torchreel::tape
