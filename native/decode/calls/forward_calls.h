// Finds the forward call of a backward call: the one with the same sequence number on the thread that autograd names.
// No torch, no Python.
//
//     thread 1   ── aten::linear (seq 7) ──► kept: {7, id, module, stack}
//     thread 2   ── AddmmBackward0 (seq 7, forward thread 1) ──► gets fwd, module and stack of it
//
// The Decoder owns it, and OpenCalls hands it every call that begins. A backward call may be read before its forward
// call, because threads are decoded block by block: it is tried again when both have been read.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "decode/calls/call_rows.h"
#include "decode/spool/definitions.h"

namespace torchreel {

class ForwardCalls {
 public:
  ForwardCalls(const Definitions& definitions, CallRows& rows) : definitions_(definitions), rows_(rows) {}

  // Of a call that is about to be the next row.
  void begin(Call& call);
  // After a promise: links the calls that were read before their forward calls.
  void settle();

 private:
  struct ForwardCall {
    int64_t seq;
    int64_t id;
    uint32_t module;
    uint32_t stack;
  };

  // The last differentiable calls of a thread, by sequence number. It grows with what the thread does: most threads do
  // little.
  struct OfThread {
    static constexpr size_t kFirst = 128;
    static constexpr size_t kMost = 1 << 17;  // how many calls back a backward call may find its forward call
    std::vector<ForwardCall> calls;
    uint64_t written = 0;  // when it was last written to, among all
    // The bytes that it grew by.
    size_t add(const ForwardCall& call);
    const ForwardCall* find(int64_t seq) const;
  };

  void link(Call& call);
  void share_with_engine(const Call& call);
  void keep(uint64_t torch_thread, const Call& call);

  const Definitions& definitions_;
  CallRows& rows_;
  std::unordered_map<uint64_t, OfThread> threads_;
  OfThread* last_ = nullptr;
  uint64_t last_thread_ = 0;
  uint64_t written_ = 0;
  size_t bytes_ = 0;
  std::vector<int32_t> unlinked_;
};

}  // namespace torchreel
