#include "decode/spool/definitions.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace torchreel {

using namespace layout;

namespace {

// Ids are given one after the other; threads that define at the same moment may be out of order by a few.
// More than that is damage, which must not ask for all memory.
constexpr size_t kOutOfOrder = 256;

class Reader {
 public:
  Reader(const char* at, size_t bytes) : at_(at), end_(at + bytes) {}
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  std::string text() {
    const void* zero = memchr(at_, 0, static_cast<size_t>(end_ - at_));
    if (zero == nullptr) throw SpoolError("a text in its definitions has no end");
    std::string value(at_, static_cast<const char*>(zero));
    at_ += value.size() + 1;
    return valid_text(value);
  }
  bool more() const { return at_ < end_; }
  std::vector<uint64_t> words(size_t count) {
    if (count > static_cast<size_t>(end_ - at_) / 8) throw SpoolError("a list in its definitions is cut short");
    std::vector<uint64_t> values(count);
    if (count > 0) memcpy(values.data(), at_, count * 8);
    at_ += count * 8;
    return values;
  }

 private:
  template <typename Number>
  Number number() {
    if (static_cast<size_t>(end_ - at_) < sizeof(Number)) throw SpoolError("a record of its definitions is cut short");
    Number value;
    memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  const char* at_;
  const char* end_;
};

template <typename Item>
Item& at_id(std::vector<Item>& items, uint32_t id) {
  if (id > items.size() + kOutOfOrder) throw SpoolError("its definitions name an id of " + std::to_string(id));
  if (id >= items.size()) items.resize(id + 1);
  return items[id];
}

void read_record(Definitions& all, uint32_t type, Reader in) {
  switch (type) {
    case kNameDef: {
      auto& name = at_id(all.names, in.u32());
      name.kind = std::min<uint32_t>(in.u32(), kOther);
      name.module = in.u32();
      name.name = in.text();
      name.overload = in.text();
      break;
    }
    case kFrameDef: {
      auto& frame = at_id(all.frames, in.u32());
      frame.line = in.u32();
      frame.file = in.text();
      frame.function = in.text();
      break;
    }
    case kStackDef: {
      uint32_t id = in.u32();
      uint32_t parent = in.u32();
      uint32_t frame = in.u32();
      // Parents come first, which also rules out circles.
      if (parent >= id) throw SpoolError("a stack in its definitions stands before its caller");
      at_id(all.stacks, id) = {parent, frame};
      break;
    }
    case kInputsDef: {
      uint32_t id = in.u32();
      uint32_t count = in.u32();
      at_id(all.inputs, id) = in.words(count);
      break;
    }
    case kModuleDef: {
      auto& module = at_id(all.modules, in.u32());
      module.parent = in.u32();
      module.path = in.text();
      module.type = in.text();
      module.known = true;
      break;
    }
    case kThreadDef: {
      auto& thread = at_id(all.threads, in.u32());
      in.u32();
      thread.os_id = in.u64();
      thread.torch_id = in.u64();
      thread.name = in.text();
      break;
    }
    case kStepDef: {
      uint64_t number = in.u64();
      uint64_t tick = in.u64();
      all.steps.push_back({number, tick, in.more() ? in.u64() : kFirstStep});
      break;
    }
    case kCounterDef:
      while (in.more()) all.counters.push_back(in.text());
      break;
    case kOldBlockDef: {
      uint64_t address = in.u64();
      uint64_t bytes = in.u64();
      all.old_blocks.push_back({address, bytes, in.text()});
      break;
    }
    default: throw SpoolError("its definitions hold a record of unknown type " + std::to_string(type));
  }
}

std::string read_bytes(int file, uint64_t begin, uint64_t end) {
  std::string bytes(end > begin ? end - begin : 0, '\0');
  size_t read = 0;
  while (read < bytes.size()) {
    ssize_t count = pread(file, bytes.data() + read, bytes.size() - read, static_cast<off_t>(begin + read));
    if (count <= 0) break;
    read += static_cast<size_t>(count);
  }
  bytes.resize(read);
  return bytes;
}

// Returns how many bytes the whole records took.
size_t read_records(Definitions& all, const char* data, size_t size) {
  size_t at = 0;
  while (at + 8 <= size) {
    uint32_t record[2];
    memcpy(record, data + at, sizeof record);
    size_t padded = (size_t{record[1]} + 7) / 8 * 8;
    if (at + 8 + padded > size) break;
    if (record[0] == kProcess) {
      all.process.assign(data + at + 8, record[1]);
    } else {
      read_record(all, record[0], Reader(data + at + 8, record[1]));
    }
    at += 8 + padded;
  }
  return at;
}

}  // namespace

Definitions read_definitions(int file, uint64_t size) {
  std::string bytes = read_bytes(file, 0, size);
  uint64_t head[2];
  if (bytes.size() < sizeof head) throw SpoolError("its definitions end within their head");
  memcpy(head, bytes.data(), sizeof head);
  if (head[0] != kDefinitionsMagic) throw SpoolError("its definitions are not torchreel's");
  if (head[1] != kVersion) throw SpoolError("its layout has version " + std::to_string(head[1]));
  Definitions all;
  all.bytes_read = sizeof head + read_records(all, bytes.data() + sizeof head, bytes.size() - sizeof head);
  return all;
}

void read_more_definitions(Definitions& all, int file, uint64_t size) {
  std::string bytes = read_bytes(file, all.bytes_read, size);
  all.bytes_read += read_records(all, bytes.data(), bytes.size());
}

}  // namespace torchreel
