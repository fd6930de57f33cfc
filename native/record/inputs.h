// The arguments of a call as words, and distinct lists of them as ids. Does not require the GIL.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/spool_format.h"
#include "record/stream.h"

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
  // Forgets all of them: no thread may know any.
  void clear();

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
  InputsCache() { entries.prepare(); }

  static constexpr size_t kNames = 512;
  SmallCache<const InputsEntry*, 128, 2048> entries;
  const InputsEntry* last[kNames] = {};  // by name: most calls of an op are like the one before
};

// Arguments that are given by name. Only calls of _RecordFunctionFast have any.
using Keywords = std::unordered_map<std::string, c10::IValue>;

// Encodes arguments into `words` (kMaxInlineWords and a little more); returns how many were written.
size_t encode_inputs(c10::ArrayRef<const c10::IValue> inputs, const Keywords* keywords, uint64_t* words);

// Writes what must precede the begin event, if anything, and gives the id, or kNone if they stand inline.
uint64_t* put_inputs(Stream* stream, uint64_t* at, c10::ArrayRef<const c10::IValue> inputs, const Keywords* keywords,
                     uint32_t name, uint32_t* id);

}  // namespace torchreel
