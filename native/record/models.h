// Models that are recorded by themselves: what happens within their calls becomes events, on whichever thread torch
// does it, and nothing else does. Torch carries who is calling from thread to thread, as it does its own settings.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "record/backend_reports.h"
#include "record/stream.h"

namespace torchreel {

// How an op says where in the model's source it stands.
enum class Handles { kNone, kLite, kTorchScript };

// Where an op of TorchScript stands: modules from the outermost, frames from the innermost.
struct ScriptLocation {
  std::vector<std::string> modules;
  std::vector<std::tuple<std::string, int, std::string>> frames;  // file, line, function
  auto operator<=>(const ScriptLocation&) const = default;
};

class Model final : public c10::DebugInfoBase {
 public:
  // `arities` says, by debug handle, how many of the values that the lite interpreter tells of are the op's own.
  Model(uint32_t id, uint32_t name, int wants, bool memory, bool nested, Handles handles,
        std::unordered_map<int64_t, size_t> arities)
      : id(id),
        name(name),
        wants(wants),
        memory(memory),
        nested(nested),
        handles(handles),
        arities_(std::move(arities)) {}

  // The inputs of a call. The lite interpreter shows its whole stack, on which they are the last.
  c10::ArrayRef<const c10::IValue> inputs_of(const at::RecordFunction& call) const;

  // An op, by its name's id, was seen to call so many others.
  void calls_others(uint32_t op, int count) {
    if (op < kOps && count >= kWorthSilence) callers_[op].store(true, std::memory_order_relaxed);
  }
  bool is_worth_silence(uint32_t op) const { return op < kOps && callers_[op].load(std::memory_order_relaxed); }

  // The handle of the place at which TorchScript's interpreter is on this thread, or -1 if it does not run.
  int64_t place_now();
  // By handle, each with the text of the source around each of its frames.
  std::vector<std::pair<ScriptLocation, std::vector<std::string>>> locations();

  const uint32_t id;    // from 1
  const uint32_t name;  // of its calls, in the recording's names
  const int wants;      // Wants, as for the recorder
  const bool memory;
  const bool nested;  // ops that ops call, too
  const Handles handles;
  const std::shared_ptr<BackendReports> reports = std::make_shared<BackendReports>();

 private:
  static constexpr uint32_t kOps = 4096;
  static constexpr int kWorthSilence = 3;  // to switch torch's telling off and on costs as much as two calls

  std::vector<std::atomic<bool>> callers_ = std::vector<std::atomic<bool>>(kOps);
  const std::unordered_map<int64_t, size_t> arities_;
  std::mutex mutex_;
  std::map<ScriptLocation, int64_t> locations_;
  std::vector<std::vector<std::string>> texts_;
};

// The model within whose call this thread works, or null.
Model* current_model();

// The reports to the model within whose call this thread works, the innermost if there are several; or null.
std::shared_ptr<BackendReports> reports_of_call();

// A call of the model begins and ends on this thread. Calls may be nested; the outermost decides what is recorded.
void enter_model(const std::shared_ptr<Model>& model);
void leave_model();

}  // namespace torchreel
