// The binding of the recorder, torchreel._core: it translates, and does nothing else.
#include "memory/bindings.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <deque>
#include <memory>
#include <optional>

#include "memory/front_allocator.h"
#include "record/backend_reports.h"
#include "record/counters.h"
#include "record/models.h"
#include "record/optimizer_steps.h"
#include "record/python_calls.h"
#include "record/recorder.h"
#include "record/recording.h"
#include "record/termination.h"
#include "torch/profiler_state.h"
#include "torch/script_stack.h"

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
  auto text = [&](const char* key) {
    return given.contains(key) ? python_bytes(py::object(given[key]).ptr()) : std::string();
  };
  auto flag = [&](const char* key) { return given.contains(key) && given[key].cast<bool>(); };
  auto list = [&](const char* key) {
    std::vector<std::string> texts;
    if (!given.contains(key)) return texts;
    for (py::handle item : given[key]) texts.push_back(python_text(item.ptr()));
    return texts;
  };
  options.spool = text("spool");
  options.process = text("process");
  if (given.contains("ring_bytes")) options.ring_bytes = given["ring_bytes"].cast<size_t>();
  if (given.contains("memory_bytes")) options.memory_bytes = given["memory_bytes"].cast<size_t>();
  options.shapes = flag("shapes");
  options.memory = flag("memory");
  options.stacks = flag("stacks");
  options.modules = flag("modules");
  options.models = flag("models");
  options.counters = list("counters");
  options.hidden_files = list("hidden_files");
  return options;
}

py::object* thread_namer = nullptr;

std::string name_of_thread() {
  py::gil_scoped_acquire gil;
  try {
    return python_text((*thread_namer)().ptr());
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

void receive_calls(const Recording& recording) {
  py::object fast = py::module_::import("torch._C._profiler").attr("_RecordFunctionFast");
  hear_fast_ranges(reinterpret_cast<PyTypeObject*>(fast.ptr()));
  attach_callbacks(recording);
}

void ignore_calls() {
  detach_callbacks();
  ignore_fast_ranges();
}

void start(const py::dict& given, const py::object& name_thread) {
  if (Recording::active() != nullptr) throw std::runtime_error("a recording is running");
  watch_forks();
  flush_on_termination(true);
  if (thread_namer == nullptr) thread_namer = new py::object(name_thread);
  python_thread_name = &name_of_thread;
  Recording* recording = new_recording(options_from(given));
  {
    py::gil_scoped_release nogil;
    recording->start();
  }
  const auto& options = recording->options;
  // Before the recorder's own callbacks, which ask for the place.
  if (options.models || options.stacks || options.modules) read_scripts(ScriptReader::kRecorder, true);
  if (options.models) return;
  if (options.memory) watch_allocations(true);
  receive_calls(*recording);
}

py::dict stop() {
  Recording& recording = active();
  ignore_calls();
  read_scripts(ScriptReader::kRecorder, false);
  unwatch_calls();
  watch_allocations(false);
  watch_model_allocations(false);
  bool quiet;
  {
    py::gil_scoped_release nogil;
    quiet = recording.stop();
  }
  flush_on_termination(false);
  recording.frames.release();
  if (quiet) recording.forget_tables();
  py::dict result;
  result["lost"] = recording.lost();
  result["error"] = recording.spool.error() == 0 ? "" : strerror(recording.spool.error());
  return result;
}

// What a child of fork() has of its parent's recording: callbacks and hooks, which must not serve its own.
void abandon() {
  kept.clear();  // not freed: their threads and locks are the parent's
  ignore_calls();
  read_scripts(ScriptReader::kRecorder, false);
  unwatch_calls();
  watch_allocations(false);
  watch_model_allocations(false);
  stop_emitting();
}

void pause_recording() {
  active();
  ignore_calls();
  pause_calls(true);
  watch_allocations(false);
}

void resume_recording() {
  Recording& recording = active();
  if (recording.options.memory) watch_allocations(true);
  pause_calls(false);
  receive_calls(recording);
}

std::string name_from(const py::object& name) {
  if (!PyUnicode_Check(name.ptr()) && !PyBytes_Check(name.ptr())) {
    std::string type = py::str(py::type::of(name).attr("__name__"));
    throw py::type_error("The name of a range or a mark is a text, and this is a value of type " + type + ".");
  }
  return python_text(name.ptr());
}

// A range of the user's, seen by every observer of torch's, not by ours alone.
class Range {
 public:
  explicit Range(const py::object& name) : name_(name_from(name)) {}
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
    py::object module_type = py::module_::import("torch.nn").attr("Module");
    watch_calls(python, module_call.is_none() ? nullptr : module_call.ptr(),
                name_module.is_none() ? nullptr : name_module.ptr(), module_type.ptr());
  });
  module.def("stop", &stop);
  module.def("hold_termination", &hold_termination);
  module.def("abandon", &abandon);
  module.def("pause", &pause_recording);
  module.def("resume", &resume_recording);
  module.def("thread_memory", [] {
    ThreadMemory memory = thread_memory();
    py::dict result;
    result["threads"] = memory.threads;
    result["chunks"] = memory.chunks;
    result["mapped"] = memory.mapped;
    result["caches"] = memory.caches;
    return result;
  });
  module.def("recording", [] { return Recording::active() != nullptr; });
  module.def("flush", [] {
    Recording& recording = active();
    {
      py::gil_scoped_release nogil;
      recording.flush();
    }
    return std::string(recording.spool.error() == 0 ? "" : strerror(recording.spool.error()));
  });
  module.def("dump", [](const py::object& path) {
    Recording& recording = active();
    std::string spool = python_bytes(path.ptr());
    int error;
    {
      py::gil_scoped_release nogil;
      error = recording.dump(spool);
    }
    if (error != 0) throw std::runtime_error(strerror(error));
  });
  module.def("mark", [](const py::object& name) { mark(name_from(name)); });
  module.def("flow", [](const py::object& name, uint64_t id, bool in) { flow(name_from(name), id, in); });
  module.def("define_process", [](const std::string& text) { active().spool.define(layout::kProcess, text); });
  module.def("now", [] { return ticks(); });
  module.def("start_tick", [] { return active().start_tick(); });
  module.def(
      "define_step",
      [](uint64_t number, int kind, std::optional<uint64_t> tick) {
        active().define_step(number, static_cast<layout::StepKind>(kind), tick.value_or(ticks()));
      },
      py::arg("number"), py::arg("kind") = 0, py::arg("tick") = py::none());
  module.def("count_optimizer_steps", &count_optimizer_steps, py::arg("first"), py::arg("begun"));
  module.def("stop_counting_optimizer_steps", &stop_counting_optimizer_steps);
  module.def("define_module", [](uint32_t id, int64_t parent, const py::str& path, const py::str& type) {
    return active().define_module(id, parent < 0 ? layout::kNone : static_cast<uint32_t>(parent),
                                  python_text(path.ptr()), python_text(type.ptr()));
  });
  module.def("define_old_block", [](uint64_t address, uint64_t bytes, const std::string& category) {
    active().spool.define(layout::kOldBlockDef, Payload().u64(address).u64(bytes).text(category));
  });
  module.def("on_garbage", [](const std::string& phase, const py::object&) { collects_garbage(phase == "start"); });
  module.def("own_work", &do_own_work);
  module.def("show_profiler", &show_profiler);
  module.def("hide_profiler", &hide_profiler);
  module.def("draws_backward_arrows", &draws_backward_arrows);
  module.def("keeps_values", &keeps_values);
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
      .def("begin_reports", [](Model& model) { model.reports->begin(); })
      .def("end_reports", [](Model& model) { model.reports->end(); })
      .def("reported_events",
           [](Model& model) {
             py::list all;
             for (const auto& event : model.reports->events()) {
               all.append(py::make_tuple(event.start_us, event.end_us, event.debug_handle, py::bytes(event.name),
                                         py::bytes(event.backend), event.told_ns, event.os_thread));
             }
             return all;
           })
      .def("reported_memory",
           [](Model& model) {
             py::list all;
             for (const auto& event : model.reports->memory()) {
               all.append(py::make_tuple(event.address, event.bytes, event.allocated, event.reserved,
                                         py::bytes(event.device), event.told_ns, event.os_thread));
             }
             return all;
           })
      .def("locations", [](Model& model) {
        py::list all;
        for (const auto& [location, texts] : model.locations()) {
          all.append(py::make_tuple(location.modules, location.frames, texts));
        }
        return all;
      });
  module.def("backend_functions", [] {
    return py::make_tuple(reinterpret_cast<uintptr_t>(&take_backend_event),
                          reinterpret_cast<uintptr_t>(&take_backend_memory));
  });
  module.def("forget_backend_reports", &forget_backend_reports);
  bind_memory(module);
  py::class_<Range>(module, "Range")
      .def(py::init<py::object>())
      .def("__enter__",
           [](py::object self) {
             self.cast<Range&>().enter();
             return self;
           })
      .def("__exit__", [](Range& range, const py::args&) { range.exit(); });
}
