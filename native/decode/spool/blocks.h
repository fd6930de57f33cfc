// Reads the blocks of a spool's events, one after the other. No torch, no Python.
//
//     | EventsHeader | block of thread 0 | block of thread 1 | promise | block of thread 0 | ...
//
// The Decoder owns one, and asks for the next block until there is none. The words of a block stay in a buffer of the
// reader's, until the next one is read. The last block of a process that was killed may be shorter than its header
// says: the words that are there are handed out, and the file ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/spool_format.h"
#include "decode/spool/files.h"

namespace torchreel {

struct SpoolBlock {
  layout::BlockHeader header;
  const uint64_t* begin;
  const uint64_t* end;

  // Every event before header.base_tick has been read.
  bool is_promise() const { return header.thread == layout::kNoThread; }
};

class SpoolBlocks {
 public:
  // Of the first `size` bytes. Throws SpoolError if the head is not that of a spool.
  SpoolBlocks(Descriptor events, uint64_t size, const std::string& head);

  // False at the end. Throws SpoolError where no block begins.
  bool next(SpoolBlock& block);
  // The same, of a file that grows: a block of which only a part is there is left for later.
  bool next_whole(SpoolBlock& block);
  // There is more now: the next blocks are those up to this size.
  void grow(uint64_t size) { size_ = size; }
  // All zeros if the process was killed before it first wrote one.
  const layout::EventsHeader& header() const { return header_; }

 private:
  Descriptor events_;
  uint64_t size_;
  uint64_t offset_ = sizeof(layout::EventsHeader);
  layout::EventsHeader header_{};
  std::vector<uint64_t> words_;
};

}  // namespace torchreel
