#include "torch/profiler_state.h"

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <memory>
#include <mutex>
#include <unordered_set>

// Of torch/csrc/profiler/collection.h, which takes long to compile.
namespace torch::profiler::impl {
TORCH_API bool get_fwd_bwd_enabled();
TORCH_API bool get_record_concrete_inputs_enabled();
}  // namespace torch::profiler::impl

namespace torchreel {

namespace {

using torch::profiler::impl::ActiveProfilerType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;
using torch::profiler::impl::ProfilerStateBase;

// A profiler that records nothing: memory is none of its business, and nobody may end it as if it were Kineto's.
class ShownProfiler final : public ProfilerStateBase {
 public:
  explicit ShownProfiler(bool shapes) : ProfilerStateBase(ProfilerConfig(ProfilerState::CPU, shapes)) {}

  void reportMemoryUsage(void*, int64_t, size_t, size_t, c10::Device) override {}
  ActiveProfilerType profilerType() override {
    return config_.disabled() ? ActiveProfilerType::NONE : ActiveProfilerType::KINETO;
  }
  void disable() { config_.state = ProfilerState::Disabled; }
};

std::mutex mutex;
std::shared_ptr<ShownProfiler> shown;

c10::DebugInfoBase* profiler_of_thread() { return c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE); }

// Takes the profiler off this thread, if it is on top of what torch keeps for it.
bool pop(const ShownProfiler* profiler) {
  if (profiler_of_thread() != profiler) return false;
  try {
    c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::PROFILER_STATE);
  } catch (const c10::Error&) {
    return false;
  }
  return true;
}

// Shows a profiler for as long as one call takes.
class BriefProfiler {
 public:
  BriefProfiler() : pushed_(profiler_of_thread() == nullptr) {
    static const std::shared_ptr<ShownProfiler> brief = std::make_shared<ShownProfiler>(true);
    if (pushed_) c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, brief);
  }
  ~BriefProfiler() {
    if (pushed_) c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::PROFILER_STATE);
  }
  BriefProfiler(const BriefProfiler&) = delete;

 private:
  const bool pushed_;
};

// The methods of the type, whose functions are replaced where torch's table has them. Guarded by the GIL.
struct Method {
  PyMethodDef* definition = nullptr;
  PyCFunction torchs = nullptr;
};
Method enter;
Method leave;
// Those that were entered while they were heard. Torch does not end a range while no profiler runs.
std::unordered_set<PyObject*> entered;

PyObject* enter_heard(PyObject* self, PyObject* arguments) {
  BriefProfiler brief;
  PyObject* result = enter.torchs(self, arguments);
  if (result != nullptr) entered.insert(self);
  return result;
}

PyObject* leave_heard(PyObject* self, PyObject* arguments) {
  if (entered.erase(self) == 0) return leave.torchs(self, arguments);
  BriefProfiler brief;
  return leave.torchs(self, arguments);
}

Method method_of(PyTypeObject* type, const char* name) {
  PyObject* found = PyDict_GetItemString(type->tp_dict, name);
  if (found == nullptr || !Py_IS_TYPE(found, &PyMethodDescr_Type)) return {};
  PyMethodDef* definition = reinterpret_cast<PyMethodDescrObject*>(found)->d_method;
  return {definition, definition->ml_meth};
}

}  // namespace

bool show_profiler(bool shapes) {
  std::lock_guard lock(mutex);
  auto* before = dynamic_cast<ShownProfiler*>(profiler_of_thread());
  if (before != nullptr && before->config().disabled()) pop(before);
  if (profiler_of_thread() != nullptr) return false;
  shown = std::make_shared<ShownProfiler>(shapes);
  c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, shown);
  return true;
}

void hide_profiler() {
  std::lock_guard lock(mutex);
  if (shown == nullptr) return;
  pop(shown.get());
  shown->disable();
  shown.reset();
}

void hear_fast_ranges(PyTypeObject* type) {
  if (leave.definition == nullptr) {
    enter = method_of(type, "__enter__");
    leave = method_of(type, "__exit__");
    if (enter.definition == nullptr || leave.definition == nullptr) {
      enter = leave = {};
      return;
    }
    // For good: a range that is open when the recording stops is ended later.
    leave.definition->ml_meth = &leave_heard;
  }
  enter.definition->ml_meth = &enter_heard;
}

bool draws_backward_arrows() { return torch::profiler::impl::get_fwd_bwd_enabled(); }
bool keeps_values() { return torch::profiler::impl::get_record_concrete_inputs_enabled(); }

void ignore_fast_ranges() {
  if (enter.definition != nullptr) enter.definition->ml_meth = enter.torchs;
}

}  // namespace torchreel
