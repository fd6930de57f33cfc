// The definitions of a spool, read back. No torch, no Python.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/spool_format.h"

namespace torchreel {

// The bytes of a spool make no sense; the text says where.
struct SpoolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Definitions {
  struct Name {
    std::string name;
    std::string overload;
    uint32_t kind = layout::kOther;
    uint32_t module = layout::kNone;
  };
  struct Frame {
    std::string file;
    std::string function;
    uint32_t line = 0;
  };
  struct Stack {
    uint32_t parent = 0;
    uint32_t frame = layout::kNone;
  };
  struct Module {
    std::string path;
    std::string type;
    uint32_t parent = layout::kNone;
    bool known = false;
  };
  struct Thread {
    uint64_t os_id = 0;
    uint64_t torch_id = 0;
    std::string name;
  };
  struct Step {
    uint64_t number;
    uint64_t tick;
    uint64_t kind;
  };
  struct OldBlock {
    uint64_t address;
    uint64_t bytes;
    std::string category;
  };

  std::string process;  // JSON
  std::vector<Name> names;
  std::vector<Frame> frames;
  std::vector<Stack> stacks;
  std::vector<std::vector<uint64_t>> inputs;
  std::vector<Module> modules;
  std::vector<Thread> threads;
  std::vector<Step> steps;
  std::vector<std::string> counters;
  std::vector<OldBlock> old_blocks;
  uint64_t bytes_read = 0;  // up to the end of the last whole record
};

// Of the first `size` bytes of a file. One that ends within a record is read up to there: its writer was killed, or is
// still at it. Throws SpoolError.
Definitions read_definitions(int file, uint64_t size);
// The records that came since the last one that was read.
void read_more_definitions(Definitions& all, int file, uint64_t size);

}  // namespace torchreel
