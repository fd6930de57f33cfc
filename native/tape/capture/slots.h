// The identity of tensors: a slot is one view of one storage. The tape holds storages weakly: the program frees their
// memory as always, but no other storage gets the address of one that the tape knows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tape/capture/arena.h"

namespace torchreel::tape {

constexpr uint32_t kNone = ~uint32_t{0};

// Beside the dtype in SlotRecord::kind.
enum SlotFlags : uint32_t { kConjugate = 1 << 8, kNegative = 1 << 9, kWrappedNumber = 1 << 10 };

struct SlotRecord {
  uint32_t storage;  // kNone for a layout without strides
  uint32_t next;     // slot of this storage, or kNone
  uint32_t kind;     // dtype | SlotFlags
  uint32_t dimensions;
  int64_t offset;
  const int64_t* geometry;  // sizes, strides
  uint32_t external;        // in Slots::externals(); kNone if an op made it
  uint8_t layout;
  c10::Device device;
  uint32_t alias_at;  // the op that read this view, if no op made it; else kNone
};

enum Asked : uint8_t { kLayoutAsked = 1, kGradientAsked = 2, kAddressAsked = 4 };

struct StorageRecord {
  c10::intrusive_ptr_target* target;  // held weakly; null once it is known to be dead
  uint32_t slots = kNone;             // the first of a list
  bool external = false;
  bool shared = false;  // with NumPy and others that read and write it without ops
  bool blank = false;   // no op has written it yet
  uint8_t asked = 0;    // Asked: what Python asked of a tensor on it, beside its values
  uint64_t bytes = 0;
  uint64_t digest = 0;  // if shared: of its bytes after the last op that used it
};

class Slots {
 public:
  explicit Slots(Arena& arena);
  Slots(const Slots&) = delete;
  ~Slots();

  uint32_t op = 0;  // the op that is being recorded

  // The slot of a tensor that an op reads. One that no op made becomes external, and is kept.
  uint32_t read(const at::Tensor& tensor) {
    uint32_t slot = find(tensor);
    return slot != kNone ? slot : add(tensor, false);
  }
  // The slot of a tensor that an op gave.
  uint32_t made(const at::Tensor& tensor) {
    uint32_t slot = find(tensor);
    return slot != kNone ? slot : add(tensor, true);
  }
  // kNone if the tape does not know this view of it.
  uint32_t find(const at::Tensor& tensor);
  // kNone if the tape does not know the storage.
  uint32_t storage_of(const at::Tensor& tensor) const;
  // A tensor on the whole of a storage, as a slot that an op reads.
  uint32_t read_storage(const c10::Storage& storage);
  const std::vector<SlotRecord>& all() const { return slots_; }
  std::vector<StorageRecord>& storages() { return storages_; }
  const std::vector<at::Tensor>& externals() const { return externals_; }
  const std::vector<uint32_t>& external_slots() const { return external_slots_; }
  // Lets go of every weak reference: addresses mean nothing from now on.
  void close();

 private:
  static constexpr size_t kFirstSweep = 256;
  uint32_t add(const at::Tensor& tensor, bool made);
  uint32_t add_strided(const at::Tensor& tensor, bool made);
  uint32_t add_other(const at::Tensor& tensor, bool made);
  uint32_t keep(const at::Tensor& tensor, uint32_t slot);
  uint32_t storage(c10::intrusive_ptr_target* target, uint64_t bytes, bool made);
  uint32_t lookup(const void* target) const;
  void sweep();
  void rehash(size_t size);
  // A key for a tensor without strides.
  std::string identity(const at::Tensor& tensor);

  Arena& arena_;
  std::vector<SlotRecord> slots_;
  std::vector<StorageRecord> storages_;
  std::vector<at::Tensor> externals_;
  std::vector<uint32_t> external_slots_;
  std::vector<uint32_t> table_;  // open addressing: storage + 1
  std::vector<uint32_t> live_;   // storages that are in the table
  size_t next_sweep_ = kFirstSweep;
  std::unordered_map<std::string, uint32_t> others_;
};

}  // namespace torchreel::tape
