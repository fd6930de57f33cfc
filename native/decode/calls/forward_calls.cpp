#include "decode/calls/forward_calls.h"

#include <algorithm>

namespace torchreel {

using namespace layout;

namespace {

constexpr size_t kMostBytes = 256 << 20;  // of all threads; beyond, those of the longest idle go

}  // namespace

void ForwardCalls::begin(Call& call) {
  if (call.seq < 0) return;
  if (call.fwd_torch_thread != 0) {
    link(call);
    if (call.fwd < 0) unlinked_.push_back(static_cast<int32_t>(rows_.size()));
    share_with_engine(call);
  } else if (call.thread < definitions_.threads.size()) {
    keep(definitions_.threads[call.thread].torch_id, call);
  }
}

void ForwardCalls::settle() {
  for (int32_t row : unlinked_) link(rows_[row]);
  unlinked_.clear();
}

size_t ForwardCalls::OfThread::add(const ForwardCall& call) {
  size_t before = calls.size();
  if (calls.empty()) calls.resize(kFirst, {-1, -1, kNone, 0});
  auto slot = [this](int64_t seq) -> ForwardCall& { return calls[static_cast<uint64_t>(seq) % calls.size()]; };
  while (calls.size() < kMost && slot(call.seq).seq >= 0 && slot(call.seq).seq != call.seq) {
    std::vector<ForwardCall> old(calls.size() * 4, {-1, -1, kNone, 0});
    old.swap(calls);
    for (const ForwardCall& known : old) {
      if (known.seq >= 0) slot(known.seq) = known;
    }
  }
  slot(call.seq) = call;
  return (calls.size() - before) * sizeof(ForwardCall);
}

const ForwardCalls::ForwardCall* ForwardCalls::OfThread::find(int64_t seq) const {
  if (calls.empty()) return nullptr;
  const ForwardCall& call = calls[static_cast<uint64_t>(seq) % calls.size()];
  return call.seq == seq ? &call : nullptr;
}

void ForwardCalls::keep(uint64_t torch_thread, const Call& call) {
  if (last_ == nullptr || last_thread_ != torch_thread) {
    last_ = &threads_[torch_thread];
    last_thread_ = torch_thread;
    last_->written = ++written_;
  }
  bytes_ += last_->add({call.seq, call.id, call.module, call.stack});
  if (bytes_ <= kMostBytes) return;
  auto older = [](const auto& a, const auto& b) { return a.second.written < b.second.written; };
  auto oldest = std::min_element(threads_.begin(), threads_.end(), older);
  bytes_ -= oldest->second.calls.size() * sizeof(ForwardCall);
  threads_.erase(oldest);
}

// A backward call stands where its forward call stood: in that module, at that line.
void ForwardCalls::link(Call& call) {
  auto calls = threads_.find(call.fwd_torch_thread);
  if (calls == threads_.end()) return;
  const ForwardCall* forward = calls->second.find(call.seq);
  if (forward == nullptr) return;
  call.fwd = forward->id;
  call.module = forward->module;
  if (forward->stack != 0) call.stack = forward->stack;
  call.of_backward = true;
}

// The engine's own call around a backward call stands where that does, and belongs to the same forward call.
void ForwardCalls::share_with_engine(const Call& call) {
  if (call.parent_row == kNoRow) return;
  Call& engine = rows_[call.parent_row];
  if (engine.of_backward || !definitions_.names[engine.name].name.starts_with("autograd::engine::")) return;
  if (engine.seq < 0) {
    engine.seq = call.seq;
    engine.fwd_torch_thread = call.fwd_torch_thread;
  }
  if (call.fwd < 0) return;
  engine.fwd = call.fwd;
  engine.module = call.module;
  engine.stack = call.stack;
  engine.of_backward = true;
}

}  // namespace torchreel
