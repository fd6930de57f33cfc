#include "record/models.h"

#include <ATen/record_function.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include "record/counters.h"
#include "record/recorder.h"
#include "record/recording.h"
#include "torch/script_stack.h"

namespace torchreel {

namespace {

constexpr std::string_view kModelName = "TORCHREEL_MODEL";
const c10::DebugInfoKind kModel(&kModelName);

// One call of a model that is under way on this thread.
struct Visit {
  std::shared_ptr<Model> model;
  std::shared_ptr<c10::ThreadLocalDebugInfo> before;
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
  uint64_t epoch = 0;  // of the recording that has its begin; 0 if none has
  bool counted = false;
};
thread_local std::vector<Visit> visits;
__thread Model* entered __attribute__((tls_model("initial-exec"))) = nullptr;

uint64_t write_call_begin(const Model& model) {
  Stream* stream = writable_stream();
  if (stream == nullptr) return 0;
  uint64_t* at = begin_event(stream);
  if ((model.wants & kCountersWanted) != 0) at = put_counters(stream, at);
  stream->model = model.id;
  commit_event(stream, put_head(stream, at, layout::kBegin, model.name));
  return stream->epoch;
}

void write_call_end(const Visit& visit) {
  Stream* stream = open_stream(visit.epoch);
  if (stream == nullptr) return;
  uint64_t* at = begin_event(stream);
  if (visit.counted) at = put_counters(stream, at);
  commit_event(stream, put_head(stream, at, layout::kEnd, 0));
}

ScriptLocation script_location(const std::vector<torch::jit::StackEntry>& stack) {
  ScriptLocation location;
  if (stack.empty()) return location;
  location.modules = torch::jit::currentModuleHierarchy();
  for (const auto& entry : stack) {
    auto where = original(entry.range).file_line_col();
    if (where) location.frames.emplace_back(std::get<0>(*where), static_cast<int>(std::get<1>(*where)), entry.filename);
  }
  return location;
}

}  // namespace

c10::ArrayRef<const c10::IValue> Model::inputs_of(const at::RecordFunction& call) const {
  if ((wants & kInputsWanted) == 0) return {};
  auto inputs = call.inputs();
  if (handles != Handles::kLite) return inputs;
  auto arity = arities_.find(call.debugHandle());
  if (arity == arities_.end() || arity->second >= inputs.size()) return inputs;
  return inputs.slice(inputs.size() - arity->second);
}

int64_t Model::place_now() {
  auto stack = torch::jit::currentCallstack();
  ScriptLocation location = script_location(stack);
  if (location.modules.empty() && location.frames.empty()) return -1;
  std::lock_guard lock(mutex_);
  auto [known, added] = locations_.emplace(std::move(location), static_cast<int64_t>(locations_.size()));
  if (added) {
    auto& texts = texts_.emplace_back();
    for (const auto& entry : stack) {
      auto range = original(entry.range);
      if (range.file_line_col()) texts.push_back(range.str());
    }
  }
  return known->second;
}

std::vector<std::pair<ScriptLocation, std::vector<std::string>>> Model::locations() {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<ScriptLocation, std::vector<std::string>>> all(locations_.size());
  for (const auto& [location, handle] : locations_) all[handle] = {location, texts_[handle]};
  return all;
}

Model* current_model() {
  // A thread that was called needs not look for what torch carried to it.
  return entered != nullptr ? entered : static_cast<Model*>(c10::ThreadLocalDebugInfo::get(kModel));
}

std::shared_ptr<BackendReports> reports_of_call() {
  if (!visits.empty()) return visits.back().model->reports;
  Model* model = current_model();
  return model == nullptr ? nullptr : model->reports;
}

void enter_model(const std::shared_ptr<Model>& model) {
  Visit visit;
  visit.model = model;
  visit.before = c10::ThreadLocalDebugInfo::current();
  visit.counted = (model->wants & kCountersWanted) != 0;
  bool outermost = current_model() == nullptr;
  visit.epoch = write_call_begin(*model);
  if (outermost) {
    c10::ThreadLocalDebugInfo::_push(kModel, model);
    entered = model.get();
    visit.callback = at::addThreadLocalCallback(model_callback(*model));
  }
  visits.push_back(std::move(visit));
}

void leave_model() {
  if (visits.empty()) return;  // a call that began before the model was recorded
  Visit visit = std::move(visits.back());
  visits.pop_back();
  if (visit.callback != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(visit.callback);
    entered = nullptr;
    c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(std::move(visit.before));
  }
  if (visit.epoch != 0) write_call_end(visit);
}

}  // namespace torchreel
