// The binding of the recorder, torchreel._core: it translates, and does nothing else.
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <deque>
#include <memory>

#include "allocator.h"
#include "counters.h"
#include "lite.h"
#include "memory_module.h"
#include "models.h"
#include "python_calls.h"
#include "recorder.h"
#include "recording.h"

namespace py = pybind11;
using namespace torchreel;

namespace {

Recording& active() {
  Recording* recording = Recording::active();
  if (recording == nullptr) throw std::runtime_error("nothing is being recorded");
  return *recording;
}

RecordingOptions options_from(const py::dict& given) {
  RecordingOptions options;
  auto text = [&](const char* key) { return given.contains(key) ? given[key].cast<std::string>() : std::string(); };
  auto flag = [&](const char* key) { return given.contains(key) && given[key].cast<bool>(); };
  auto list = [&](const char* key) {
    return given.contains(key) ? given[key].cast<std::vector<std::string>>() : std::vector<std::string>();
  };
  options.spool = text("spool");
  options.process = text("process");
  if (given.contains("ring_bytes")) options.ring_bytes = given["ring_bytes"].cast<size_t>();
  if (given.contains("memory_bytes")) options.memory_bytes = given["memory_bytes"].cast<size_t>();
  options.shapes = flag("shapes");
  options.memory = flag("memory");
  options.stacks = flag("stacks");
  options.models = flag("models");
  options.counters = list("counters");
  options.hidden_files = list("hidden_files");
  return options;
}

py::object* thread_namer = nullptr;

std::string name_of_thread() {
  py::gil_scoped_acquire gil;
  try {
    return (*thread_namer)().cast<std::string>();
  } catch (const std::exception&) {
    return "";
  }
}

// A recording is not freed as soon as it stops: a thread may still be within one of its calls. The last few are kept.
constexpr size_t kKept = 4;
std::deque<Recording*> kept;

Recording* new_recording(RecordingOptions options) {
  kept.push_back(new Recording(std::move(options)));
  if (kept.size() > kKept) {
    delete kept.front();
    kept.pop_front();
  }
  return kept.back();
}

void start(const py::dict& given, const py::object& name_thread) {
  if (Recording::active() != nullptr) throw std::runtime_error("a recording is running");
  watch_forks();
  if (thread_namer == nullptr) thread_namer = new py::object(name_thread);
  python_thread_name = &name_of_thread;
  Recording* recording = new_recording(options_from(given));
  {
    py::gil_scoped_release nogil;
    recording->start();
  }
  if (recording->options.models) return;
  if (recording->options.memory) watch_allocations(true);
  attach_callbacks(*recording);
}

py::dict stop() {
  Recording& recording = active();
  detach_callbacks();
  unwatch_calls();
  watch_allocations(false);
  watch_model_allocations(false);
  {
    py::gil_scoped_release nogil;
    recording.stop();
  }
  recording.frames.release();
  py::dict result;
  result["lost"] = recording.lost();
  result["error"] = recording.spool.error() == 0 ? "" : strerror(recording.spool.error());
  return result;
}

// What a child of fork() has of its parent's recording: callbacks and hooks, which must not serve its own.
void abandon() {
  kept.clear();  // not freed: their threads and locks are the parent's
  detach_callbacks();
  unwatch_calls();
  watch_allocations(false);
  watch_model_allocations(false);
  stop_emitting();
}

void pause_recording() {
  active();
  detach_callbacks();
  pause_calls(true);
  watch_allocations(false);
}

void resume_recording() {
  Recording& recording = active();
  if (recording.options.memory) watch_allocations(true);
  pause_calls(false);
  attach_callbacks(recording);
}

// A range of the user's, seen by every observer of torch's, not by ours alone.
class Range {
 public:
  explicit Range(std::string name) : name_(std::move(name)) {}
  void enter() {
    auto call = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
    if (call->isActive()) call->before(std::string_view(name_));
    open_.push_back(std::move(call));
  }
  void exit() {
    if (!open_.empty()) open_.pop_back();
  }

 private:
  std::string name_;
  std::vector<std::unique_ptr<at::RecordFunction>> open_;
};

// The address and size of a tensor's storage, if its free will be seen from now on.
py::object adopt(uintptr_t storage_impl) { return py::bool_(adopt_storage(reinterpret_cast<void*>(storage_impl))); }

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.def("start", &start, py::arg("options"), py::arg("name_thread"));
  module.def("watch_calls", [](bool python, const py::object& module_call, const py::object& name_module) {
    watch_calls(python, module_call.is_none() ? nullptr : module_call.ptr(),
                name_module.is_none() ? nullptr : name_module.ptr());
  });
  module.def("stop", &stop);
  module.def("abandon", &abandon);
  module.def("pause", &pause_recording);
  module.def("resume", &resume_recording);
  module.def("recording", [] { return Recording::active() != nullptr; });
  module.def("flush", [] {
    Recording& recording = active();
    py::gil_scoped_release nogil;
    recording.flush();
  });
  module.def("dump", [](const std::string& spool) {
    Recording& recording = active();
    int error;
    {
      py::gil_scoped_release nogil;
      error = recording.dump(spool);
    }
    if (error != 0) throw std::runtime_error(strerror(error));
  });
  module.def("mark", [](const std::string& name) { mark(name); });
  module.def("flow", [](const std::string& name, uint64_t id, bool in) { flow(name, id, in); });
  module.def("define_process", [](const std::string& text) { active().spool.define(layout::kProcess, text); });
  module.def("define_step", [](uint64_t number) { active().define_step(number); });
  module.def("define_module", [](uint32_t id, int64_t parent, const std::string& path, const std::string& type) {
    return active().define_module(id, parent < 0 ? layout::kNone : static_cast<uint32_t>(parent), path, type);
  });
  module.def("define_old_block", [](uint64_t address, uint64_t bytes, const std::string& category) {
    active().spool.define(layout::kOldBlockDef, Payload().u64(address).u64(bytes).text(category));
  });
  module.def("forget_module", [](uintptr_t module) { forget_module(reinterpret_cast<PyObject*>(module)); });
  module.def("adopt_storage", &adopt);
  module.def("emit_ranges", &emit_ranges);
  module.def("stop_emitting", &stop_emitting);
  module.def("counter_names", &counter_names);
  module.def("counter_problem", &counter_problem);
  module.def("watch_model_allocations", &watch_model_allocations);
  py::class_<Model, std::shared_ptr<Model>>(module, "Model")
      .def(py::init([](uint32_t id, uint32_t name, bool shapes, bool stacks, bool counters, bool memory, bool nested,
                       const std::string& handles, std::unordered_map<int64_t, size_t> arities) {
             int wants = (shapes ? kInputsWanted : 0) | (stacks ? kStackWanted : 0) | (counters ? kCountersWanted : 0);
             Handles kind = handles == "lite"          ? Handles::kLite
                            : handles == "torchscript" ? Handles::kTorchScript
                                                       : Handles::kNone;
             return std::make_shared<Model>(id, name, wants, memory, nested, kind, std::move(arities));
           }),
           py::arg("id"), py::arg("name"), py::arg("shapes"), py::arg("stacks"), py::arg("counters"), py::arg("memory"),
           py::arg("nested"), py::arg("handles"), py::arg("arities"))
      .def("enter", [](const std::shared_ptr<Model>& model) { enter_model(model); })
      .def("leave", [](const std::shared_ptr<Model>&) { leave_model(); })
      .def("places", [](Model& model) {
        py::list all;
        for (const auto& [place, texts] : model.places()) {
          all.append(py::make_tuple(place.modules, place.frames, texts));
        }
        return all;
      });
  bind_lite(module);
  bind_memory(module);
  py::class_<Range>(module, "Range")
      .def(py::init<std::string>())
      .def("__enter__",
           [](py::object self) {
             self.cast<Range&>().enter();
             return self;
           })
      .def("__exit__", [](Range& range, const py::args&) { range.exit(); });
}
