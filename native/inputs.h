// The arguments of a call as words, and distinct lists of them as ids. Does not require the GIL.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "layout.h"
#include "stream.h"

namespace torchreel {

class Spool;

struct InputsEntry {
  uint64_t hash;
  uint32_t id;
  uint32_t count;
  std::unique_ptr<uint64_t[]> words;
};

class InputsTable {
 public:
  explicit InputsTable(Spool& spool) : spool_(spool) {}
  // Null when there are so many that further ones must stand in the stream.
  const InputsEntry* find(const uint64_t* words, size_t count, uint64_t hash);

 private:
  static constexpr size_t kMostWords = 4 << 20;

  Spool& spool_;
  std::mutex mutex_;
  size_t words_ = 0;
  uint32_t next_ = 0;
  std::unordered_multimap<uint64_t, std::unique_ptr<InputsEntry>> entries_;
};

// A thread's own view of the table, without a lock.
struct InputsCache {
  static constexpr size_t kEntries = 2048;
  static constexpr size_t kNames = 512;
  const InputsEntry* entries[kEntries] = {};
  const InputsEntry* last[kNames] = {};  // by name: most calls of an op are like the one before
  uint64_t scratch[kMaxInlineWords + 64];
};

// Encodes arguments into `words` (kMaxInlineWords and a little more); returns how many were written.
size_t encode_inputs(c10::ArrayRef<const c10::IValue> inputs, uint64_t* words);

// Writes what must precede the begin event, if anything, and gives the id, or kNone if they stand inline.
uint64_t* put_inputs(Stream* stream, uint64_t* at, c10::ArrayRef<const c10::IValue> inputs, uint32_t name,
                     uint32_t* id);

}  // namespace torchreel
