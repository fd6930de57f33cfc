// A table from addresses to values: open addressing, no allocation per entry. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace torchreel {

template <class Value>
class AddressMap {
 public:
  // The value at an address that is not null; a new one if there was none.
  Value& operator[](uintptr_t address) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[find(address)];
    if (slot.address == 0) {
      slot = {address, Value{}};
      count_++;
    }
    return slot.value;
  }

  // Removes and returns what is there; false if nothing is.
  bool take(uintptr_t address, Value& value) {
    if (count_ == 0) return false;
    size_t at = find(address);
    if (slots_[at].address == 0) return false;
    value = slots_[at].value;
    count_--;
    // What comes after moves up, so that no search ends too early.
    for (size_t next = at;;) {
      next = (next + 1) & mask();
      if (slots_[next].address == 0) break;
      size_t home = hash(slots_[next].address) & mask();
      if (((next - home) & mask()) < ((next - at) & mask())) continue;
      slots_[at] = slots_[next];
      at = next;
    }
    slots_[at].address = 0;
    return true;
  }

  // Copies what is there; false if nothing is.
  bool get(uintptr_t address, Value& value) const {
    if (count_ == 0) return false;
    const Slot& slot = slots_[find(address)];
    if (slot.address == 0) return false;
    value = slot.value;
    return true;
  }

  template <class Visitor>
  void visit(Visitor visitor) const {
    for (const Slot& slot : slots_) {
      if (slot.address != 0) visitor(slot.address, slot.value);
    }
  }

  void clear() {
    slots_.clear();
    count_ = 0;
  }
  size_t size() const { return count_; }

 private:
  struct Slot {
    uintptr_t address = 0;
    Value value{};
  };

  static size_t hash(uintptr_t address) {
    uint64_t mixed = (address >> 4) * 0x9e3779b97f4a7c15;
    return mixed ^ (mixed >> 32);
  }
  size_t mask() const { return slots_.size() - 1; }
  size_t find(uintptr_t address) const {
    size_t at = hash(address) & mask();
    while (slots_[at].address != 0 && slots_[at].address != address) at = (at + 1) & mask();
    return at;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 1024 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.address != 0) slots_[find(slot.address)] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace torchreel
