#include "tape/capture/slots.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>

#include <cstring>
#include <mutex>

namespace torchreel::tape {

namespace {

// Reads strides without checks. Tensors with symbolic or Python-made sizes never get here.
bool is_strided(const at::TensorImpl* impl) {
  return impl->layout() == c10::kStrided && impl->has_storage() && !impl->key_set().has(c10::DispatchKey::NestedTensor);
}

uint32_t kind_of(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  uint32_t kind = static_cast<uint32_t>(c10::typeMetaToScalarType(impl->dtype()));
  auto keys = impl->key_set();
  if (keys.has(c10::DispatchKey::Conjugate)) kind |= kConjugate;
  if (keys.has(c10::DispatchKey::Negative)) kind |= kNegative;
  if (impl->is_wrapped_number()) kind |= kWrappedNumber;
  return kind;
}

c10::StorageImpl* storage_impl(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

size_t hash_of(const void* target) {
  auto value = reinterpret_cast<uint64_t>(target) * 0x9e3779b97f4a7c15;
  return value ^ (value >> 32);
}

void put(std::string& words, int64_t word) { words.append(reinterpret_cast<const char*>(&word), sizeof(word)); }

void put(std::string& words, c10::IntArrayRef values) {
  put(words, static_cast<int64_t>(values.size()));
  for (int64_t value : values) put(words, value);
}

}  // namespace

// Keeps the empty lists of the last tape for the next one: to free and allocate blocks of this size would evict the
// program's own small blocks from the caches of malloc.
struct SpareLists {
  std::mutex mutex;
  std::vector<SlotRecord> slots;
  std::vector<StorageRecord> storages;
  std::vector<uint32_t> live;
};

static SpareLists& spare_lists() {
  static auto* lists = new SpareLists();
  return *lists;
}

Slots::Slots(Arena& arena) : arena_(arena) {
  {
    std::lock_guard lock(spare_lists().mutex);
    slots_.swap(spare_lists().slots);
    storages_.swap(spare_lists().storages);
    live_.swap(spare_lists().live);
  }
  slots_.reserve(128);
  storages_.reserve(128);
  rehash(1024);
}

Slots::~Slots() {
  constexpr size_t kMost = 1 << 16;  // a longer list is not worth its memory
  close();
  if (slots_.capacity() > kMost) return;
  slots_.clear();
  storages_.clear();
  std::lock_guard lock(spare_lists().mutex);
  slots_.swap(spare_lists().slots);
  storages_.swap(spare_lists().storages);
  live_.swap(spare_lists().live);
}

void Slots::close() {
  for (uint32_t storage : live_) {
    c10::raw::weak_intrusive_ptr::decref(storages_[storage].target);
    storages_[storage].target = nullptr;
  }
  live_.clear();
  table_.assign(table_.size(), 0);
  others_.clear();
}

uint32_t Slots::lookup(const void* target) const {
  size_t mask = table_.size() - 1;
  for (size_t at = hash_of(target) & mask; table_[at] != 0; at = (at + 1) & mask) {
    if (storages_[table_[at] - 1].target == target) return table_[at] - 1;
  }
  return kNone;
}

void Slots::rehash(size_t size) {
  table_.assign(size, 0);
  for (uint32_t storage : live_) {
    size_t at = hash_of(storages_[storage].target) & (size - 1);
    while (table_[at] != 0) at = (at + 1) & (size - 1);
    table_[at] = storage + 1;
  }
}

// Drops weak references to storages that the program has freed, so that they do not pile up in the heap.
void Slots::sweep() {
  size_t kept = 0;
  for (uint32_t storage : live_) {
    auto& target = storages_[storage].target;
    if (c10::raw::weak_intrusive_ptr::use_count(target) > 0) {
      live_[kept++] = storage;
    } else {
      c10::raw::weak_intrusive_ptr::decref(target);
      target = nullptr;
    }
  }
  live_.resize(kept);
  size_t size = table_.size();
  next_sweep_ = std::max(kFirstSweep, kept * 2);
  while (size < next_sweep_ * 2) size *= 2;
  rehash(size);
}

uint32_t Slots::storage(c10::intrusive_ptr_target* target, uint64_t bytes, bool made) {
  uint32_t known = lookup(target);
  if (known != kNone) return known;
  if (live_.size() >= next_sweep_) sweep();
  c10::raw::weak_intrusive_ptr::incref(target);
  storages_.push_back({.target = target, .external = !made, .bytes = bytes});
  auto index = static_cast<uint32_t>(storages_.size() - 1);
  size_t mask = table_.size() - 1;
  size_t at = hash_of(target) & mask;
  while (table_[at] != 0) at = (at + 1) & mask;
  table_[at] = index + 1;
  live_.push_back(index);
  return index;
}

uint32_t Slots::find(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (!is_strided(impl)) {
    auto known = others_.find(identity(tensor));
    return known == others_.end() ? kNone : known->second;
  }
  uint32_t storage = lookup(storage_impl(tensor));
  if (storage == kNone) return kNone;
  auto sizes = impl->sizes();
  auto strides = impl->strides();
  uint32_t kind = kind_of(tensor);
  int64_t offset = impl->storage_offset();
  for (uint32_t slot = storages_[storage].slots; slot != kNone; slot = slots_[slot].next) {
    const auto& record = slots_[slot];
    if (record.kind != kind || record.offset != offset || record.dimensions != sizes.size()) continue;
    if (memcmp(record.geometry, sizes.data(), sizes.size() * 8) != 0) continue;
    if (memcmp(record.geometry + sizes.size(), strides.data(), sizes.size() * 8) == 0) return slot;
  }
  return kNone;
}

uint32_t Slots::storage_of(const at::Tensor& tensor) const {
  if (!tensor.defined() || !is_strided(tensor.unsafeGetTensorImpl())) return kNone;
  return lookup(storage_impl(tensor));
}

uint32_t Slots::keep(const at::Tensor& tensor, uint32_t slot) {
  externals_.push_back(tensor);
  external_slots_.push_back(slot);
  return static_cast<uint32_t>(externals_.size() - 1);
}

uint32_t Slots::add(const at::Tensor& tensor, bool made) {
  return is_strided(tensor.unsafeGetTensorImpl()) ? add_strided(tensor, made) : add_other(tensor, made);
}

uint32_t Slots::add_strided(const at::Tensor& tensor, bool made) {
  auto* impl = tensor.unsafeGetTensorImpl();
  uint32_t index = storage(storage_impl(tensor), storage_impl(tensor)->nbytes(), made);
  auto& record = storages_[index];
  auto sizes = impl->sizes();
  auto strides = impl->strides();
  auto* geometry = reinterpret_cast<int64_t*>(arena_.take(sizes.size() * 2 + 1));
  memcpy(geometry, sizes.data(), sizes.size() * 8);
  memcpy(geometry + sizes.size(), strides.data(), sizes.size() * 8);
  auto slot = static_cast<uint32_t>(slots_.size());
  bool external = !made && record.external;
  slots_.push_back({.storage = index,
                    .next = record.slots,
                    .kind = kind_of(tensor),
                    .dimensions = static_cast<uint32_t>(sizes.size()),
                    .offset = impl->storage_offset(),
                    .geometry = geometry,
                    .external = external ? keep(tensor, slot) : kNone,
                    .layout = static_cast<uint8_t>(c10::kStrided),
                    .device = impl->device(),
                    .alias_at = made || external ? kNone : op});
  record.slots = slot;
  return slot;
}

uint32_t Slots::add_other(const at::Tensor& tensor, bool made) {
  auto* impl = tensor.unsafeGetTensorImpl();
  std::vector<int64_t> sizes;
  if (!tensor.is_nested()) sizes = tensor.sizes().vec();
  auto* geometry = reinterpret_cast<int64_t*>(arena_.take(sizes.size() + 1));
  memcpy(geometry, sizes.data(), sizes.size() * 8);
  auto slot = static_cast<uint32_t>(slots_.size());
  slots_.push_back({.storage = kNone,
                    .next = kNone,
                    .kind = kind_of(tensor),
                    .dimensions = static_cast<uint32_t>(sizes.size()),
                    .offset = 0,
                    .geometry = geometry,
                    .external = made ? kNone : keep(tensor, slot),
                    .layout = static_cast<uint8_t>(impl->layout()),
                    .device = impl->device(),
                    .alias_at = kNone});
  others_.emplace(identity(tensor), slot);
  return slot;
}

uint32_t Slots::read_storage(const c10::Storage& storage) {
  uint32_t known = lookup(storage.unsafeGetStorageImpl());
  if (known != kNone && storages_[known].slots != kNone) return storages_[known].slots;
  auto keys = c10::DispatchKeySet(storage.device_type() == c10::kCPU ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA);
  auto bytes =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), keys, c10::scalarTypeToTypeMeta(c10::kByte));
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous(std::vector<int64_t>{static_cast<int64_t>(storage.nbytes())});
  return read(bytes);
}

std::string Slots::identity(const at::Tensor& tensor) {
  std::string words;
  auto* impl = tensor.unsafeGetTensorImpl();
  put(words, static_cast<int64_t>(impl->layout()));
  auto part = [&](const at::Tensor& component) {
    auto* inner = component.unsafeGetTensorImpl();
    put(words, storage(storage_impl(component), storage_impl(component)->nbytes(), true));
    put(words, kind_of(component));
    put(words, inner->storage_offset());
    put(words, inner->sizes());
    put(words, inner->strides());
  };
  if (tensor.is_nested()) {
    auto* nested = static_cast<at::native::NestedTensorImpl*>(impl);
    auto values = [&](const at::Tensor& table) {
      put(words, c10::IntArrayRef(table.const_data_ptr<int64_t>(), table.numel()));
    };
    put(words,
        storage(nested->get_unsafe_storage_as_tensor().unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl(),
                0, true));
    put(words, kind_of(tensor));
    values(nested->get_nested_sizes());
    values(nested->get_nested_strides());
    values(nested->get_storage_offsets());
  } else if (impl->layout() == c10::kSparse) {
    auto* sparse = static_cast<at::SparseTensorImpl*>(impl);
    put(words, tensor.sizes());
    put(words, sparse->coalesced());
    part(sparse->indices());
    part(sparse->values());
  } else if (at::sparse_csr::is_sparse_compressed(tensor)) {
    auto* sparse = static_cast<at::SparseCsrTensorImpl*>(impl);
    put(words, tensor.sizes());
    part(sparse->compressed_indices());
    part(sparse->plain_indices());
    part(sparse->values());
  } else {
    put(words, storage(impl, 0, true));
  }
  return words;
}

}  // namespace torchreel::tape
