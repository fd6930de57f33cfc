#include "decode/spool/blocks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "decode/spool/definitions.h"

namespace torchreel {

using namespace layout;

SpoolBlocks::SpoolBlocks(Descriptor events, uint64_t size, const std::string& head)
    : events_(std::move(events)), size_(size) {
  if (size_ < sizeof header_ || head.size() != sizeof header_) return;
  EventsHeader header{};
  memcpy(&header, head.data(), sizeof header);
  if (header.magic == 0) return;  // killed before the header was first written: blocks are there, times are not
  if (header.magic != kEventsMagic) throw SpoolError("its events are not torchreel's");
  if (header.version != kVersion) throw SpoolError("its layout has version " + std::to_string(header.version));
  header_ = header;
}

bool SpoolBlocks::next(SpoolBlock& block) {
  BlockHeader& header = block.header;
  block.begin = block.end = nullptr;
  if (offset_ + sizeof header > size_ || !events_.read(&header, sizeof header, offset_)) return false;
  if (header.magic != kBlockMagic) throw SpoolError("its events hold no block at byte " + std::to_string(offset_));
  offset_ += sizeof header;
  if (block.is_promise()) return true;
  size_t words = std::min<uint64_t>(header.words, (size_ - offset_) / 8);
  words_.resize(words);
  if (!events_.read(words_.data(), words * 8, offset_)) return false;
  offset_ += words * 8;
  block.begin = words_.data();
  block.end = words_.data() + words;
  return true;
}

bool SpoolBlocks::next_whole(SpoolBlock& block) {
  BlockHeader header;
  if (offset_ + sizeof header > size_ || !events_.read(&header, sizeof header, offset_)) return false;
  bool promise = header.thread == kNoThread;
  if (header.magic == kBlockMagic && !promise && header.words > (size_ - offset_ - sizeof header) / 8) return false;
  return next(block);
}

}  // namespace torchreel
