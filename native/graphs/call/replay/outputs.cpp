#include "graphs/call/replay/outputs.h"

#include <cstring>

#include "tape/capture/slots.h"

namespace torchreel::graphs {

using tape::kNone;

namespace {

c10::Storage storage_of(at::DataPtr data, size_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(data),
                                                            c10::GetAllocator(c10::DeviceType::CPU), true));
}

// As an op would make it in the mode of the caller: with autograd's keys, or as an inference tensor.
at::Tensor caller_tensor_on(const c10::Storage& storage, const tape::PlanSlot& slot, int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(slot.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(slot.sizes, slot.strides, offset);
  set_bits(tensor, slot);
  return tensor;
}

}  // namespace

const c10::Storage& Outputs::storage_for(uint32_t output) {
  auto [storage, range] = graph_.outputs()[output];
  for (const auto& [other, memory] : known_) {
    if (other == storage) return memory;
  }
  size_t bytes = program_.storages()[storage].extent;
  auto& pool = graph_.pool();
  if (copies_) {
    auto data = c10::GetAllocator(c10::DeviceType::CPU)->allocate(bytes);
    memcpy(data.get(), pool.at(range.begin), bytes);
    known_.emplace_back(storage, storage_of(std::move(data), bytes));
  } else {
    Lease* lease = pool.lease(range, &graph_, output);
    known_.emplace_back(storage, storage_of(pool.data(lease), bytes));
    lease->storage = known_.back().second.unsafeGetStorageImpl();
    lease->over = options_.over;
  }
  return known_.back().second;
}

at::Tensor Outputs::on_given(uint32_t slot, const std::vector<uint32_t>& slots) const {
  const auto& record = program_.slot(slot);
  for (size_t i = 0; i < slots.size(); i++) {
    if (slots[i] == slot) return given_[i];
  }
  for (size_t i = 0; i < slots.size(); i++) {
    if (slots[i] == kNone || program_.slot(slots[i]).storage != record.storage) continue;
    auto item = static_cast<int64_t>(c10::elementSize(record.dtype));
    auto given_item = static_cast<int64_t>(given_[i].element_size());
    int64_t distance = record.offset * item - program_.slot(slots[i]).offset * given_item;
    int64_t from = given_[i].storage_offset() * given_item + distance;
    return caller_tensor_on(given_[i].storage(), record, from / item);
  }
  return at::Tensor();
}

at::Tensor Outputs::at(uint32_t slot) {
  if (slot == kNone) return at::Tensor();
  const auto& record = program_.slot(slot);
  if (record.unplanned) return graph_.tensor(slot);
  const auto& info = program_.storage_of(slot);
  if (info.kind == StorageInfo::kInput || info.kind == StorageInfo::kGradient) {
    auto found = on_given(slot, info.kind == StorageInfo::kInput ? program_.recorded().inputs : graph_.given());
    if (found.defined()) return found;
  }
  if (info.kind == StorageInfo::kExternal || info.kind == StorageInfo::kConstant) {
    if (program_.tensor(slot).defined()) return program_.tensor(slot);
    return caller_tensor_on(info.memory, record, record.offset);
  }
  const auto& outputs = graph_.outputs();
  for (uint32_t i = 0; i < outputs.size(); i++) {
    if (outputs[i].storage == record.storage) return caller_tensor_on(storage_for(i), record, record.offset);
  }
  return graph_.tensor(slot).clone();  // of a backward: memory that the forward left
}

}  // namespace torchreel::graphs
