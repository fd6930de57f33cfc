// The binding of the tape, torchreel._tape: it translates, and does nothing else.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "tape/capture/decode.h"
#include "tape/capture/traced_call.h"
#include "tape/capture/where.h"
#include "tape/dispatch/escapes.h"
#include "tape/dispatch/fallback.h"
#include "tape/replay/numbers.h"
#include "tape/replay/plan.h"
#include "tape/steps/kept.h"
#include "tape/steps/scalars.h"
#include "tape/steps/steps.h"

namespace py = pybind11;
using namespace torchreel::tape;

namespace {

py::bytes bytes_of(const at::Tensor& state) {
  return py::bytes(static_cast<const char*>(state.const_data_ptr()), state.nbytes());
}

py::list externals(const TracedCall& self) {
  py::list all;
  for (const auto& one : self.externals()) all.append(py::make_tuple(one.slot, one.tensor, one.alone));
  return all;
}

py::list tensors_from_outside(const TracedCall& self) {
  py::list all;
  for (const auto& one : self.tensors_from_outside()) all.append(py::make_tuple(one.slot, one.tensor));
  return all;
}

py::list generators(const TracedCall& self) {
  py::list all;
  for (const auto& known : self.capture().generators) {
    long holders = known.generator.getIntrusivePtr().use_count();
    all.append(py::make_tuple(known.generator.device().str(), known.is_default, holders == 1, bytes_of(known.first)));
  }
  return all;
}

py::tuple run(Plan& plan, const std::vector<std::pair<uint32_t, at::Tensor>>& inputs,
              const std::vector<uint32_t>& wanted, bool digests) {
  py::object failure = py::none();
  std::vector<at::Tensor> values;
  {
    py::gil_scoped_release nogil;
    std::lock_guard lock(plan.mutex);
    auto failed = [&](auto make) {
      py::gil_scoped_acquire gil;
      failure = make();
    };
    for (const auto& [slot, tensor] : inputs) plan.set_input(slot, tensor);
    try {
      plan.run(digests);
      for (uint32_t slot : wanted) values.push_back(plan.value(slot));
    } catch (const GuardFailure& error) {
      failed([&] { return py::make_tuple("guard", error.op, error.recorded, error.now); });
    } catch (const ShapeFailure& error) {
      failed([&] { return py::make_tuple("shape", error.op, error.recorded, error.now); });
    } catch (const StateFailure& error) {
      failed([&] { return py::make_tuple("state", error.slot, error.recorded, error.now); });
    } catch (const GradientFailure& error) {
      failed([&] { return py::make_tuple("gradient", error.slot, "", ""); });
    } catch (const OpFailure& error) {
      failed([&] { return py::make_tuple("op", error.op, error.message, ""); });
    } catch (const std::exception& error) {
      failed([&] { return py::make_tuple("result", 0, std::string(error.what()), ""); });
    }
    plan.clear();
  }
  return py::make_tuple(failure, values);
}

py::dict digests(const Plan& plan) {
  py::dict all;
  for (const auto& [op, digests] : plan.digests()) {
    py::list rows;
    for (const auto& digest : digests) {
      if (digest.has_value()) {
        rows.append(py::make_tuple(digest->hash, digest->norm, py::tuple(py::cast(digest->samples))));
      } else {
        rows.append(py::none());
      }
    }
    all[py::int_(op)] = rows;
  }
  return all;
}

std::shared_ptr<Plan> make_plan(const py::list& slots, const py::list& ops, const Kept& kept,
                                const std::vector<uint32_t>& wanted) {
  std::vector<PlanSlot> all;
  for (const auto& slot : slots) all.push_back(slot_of(slot));
  auto plan = std::make_shared<Plan>(std::move(all));
  uint32_t index = 0;
  for (const auto& op : ops) plan->add(step_of(op, index++, kept));
  plan->close(wanted);
  return plan;
}

Kept make_kept(const std::vector<std::tuple<bool, std::string>>& states) {
  Kept kept;
  for (const auto& [is_default, state] : states) {
    auto generator = is_default ? at::detail::getDefaultCPUGenerator() : at::detail::createCPUGenerator();
    if (!is_default) {
      auto bytes = at::empty({static_cast<int64_t>(state.size())}, at::kByte);
      memcpy(bytes.data_ptr(), state.data(), state.size());
      generator.set_state(bytes);
    }
    kept.generators.push_back(generator);
  }
  return kept;
}

void set_region(Plan& plan, py::function function) {
  auto call = std::make_shared<py::function>(std::move(function));
  plan.set_region([call](int64_t region, const std::vector<at::Tensor>& given) {
    py::gil_scoped_acquire gil;
    return (*call)(region, given).cast<std::vector<at::Tensor>>();
  });
}

std::vector<std::string> object_types(const TracedCall& self) {
  std::vector<std::string> all;
  for (const auto& object : self.capture().objects) all.push_back(object.type()->str());
  return all;
}

py::list modules(const TracedCall& self) {
  py::list all;
  for (void* each : self.capture().modules) all.append(py::handle(static_cast<PyObject*>(each)));
  return all;
}

py::dict gradients_set(const TracedCall& self) {
  py::dict all;
  for (const auto& [tensor, index] : self.capture().gradients_set) {
    all[py::int_(reinterpret_cast<uintptr_t>(tensor))] = py::int_(index);
  }
  return all;
}

py::set gradients_read(const TracedCall& self) {
  py::set all;
  for (const void* tensor : self.capture().gradients_read) all.add(py::int_(reinterpret_cast<uintptr_t>(tensor)));
  return all;
}

void bind_capture(py::module_& module) {
  py::class_<Kept>(module, "Kept").def(py::init(&make_kept), py::arg("states"));
  py::class_<TracedCall>(module, "Capture")
      .def_static("forget_last", &TracedCall::forget_last)
      .def(py::init<const std::vector<at::Tensor>&, bool>(), py::arg("inputs"), py::arg("hashes"))
      .def("end", &TracedCall::end)
      .def("decode", [](TracedCall& self, const py::dict& model) { return decode(self.capture(), model); })
      .def("close", [](TracedCall& self) { self.capture().slots.close(); })
      .def("externals", &externals)
      .def("tensors_from_outside", &tensors_from_outside)
      .def("gradients", &TracedCall::gradients)
      .def("old_gradients", &TracedCall::old_gradients)
      .def("rebound", &TracedCall::rebound)
      .def("generators", &generators)
      .def("kept", &TracedCall::kept)
      .def("objects", &object_types)
      .def("modules", &modules)
      .def_property_readonly("input_slots", &TracedCall::input_slots)
      .def_property_readonly("asked_inputs", &TracedCall::asked_inputs)
      .def_property_readonly("ranges", [](const TracedCall& self) { return self.capture().ranges; })
      .def_property_readonly("gradients_set", &gradients_set)
      .def_property_readonly("gradients_read", &gradients_read)
      .def_property_readonly("version_read", [](const TracedCall& self) { return self.capture().version_read; })
      .def_property_readonly("first_backward", &TracedCall::first_backward)
      .def_property_readonly("op_count", [](const TracedCall& self) { return self.capture().ops.size(); })
      .def("find",
           [](const TracedCall& self, const at::Tensor& tensor) {
             return static_cast<int64_t>(static_cast<int32_t>(self.capture().slots.find(tensor)));
           })
      .def("start_storages", [](const TracedCall& self) { return self.capture().start_storages; });
}

void bind_plan(py::module_& module) {
  py::class_<Plan, std::shared_ptr<Plan>>(module, "Plan")
      .def(py::init(&make_plan), py::arg("slots"), py::arg("ops"), py::arg("kept"), py::arg("wanted"))
      .def("set_external", &Plan::set_external)
      .def("set_region", &set_region)
      .def("bind",
           [](Plan& plan, const std::string& kind, uint32_t owner, int64_t value, bool cleared) {
             auto which = kind == "grad" ? Binding::kGradient : kind == "data" ? Binding::kData : Binding::kCopy;
             plan.bind({which, owner, value < 0 ? kNone : static_cast<uint32_t>(value), cleared});
           })
      .def("run", &run, py::arg("inputs"), py::arg("wanted"), py::arg("digests"))
      .def("digests", &digests)
      .def_property_readonly("steps", &Plan::steps);
}

void bind_hooks(py::module_& module) {
  module.def("is_recording", [] { return Capture::active() != nullptr; });
  module.def("follow_thread", &Capture::follow_thread);
  module.def("opaque", [](int64_t region, const std::vector<at::Tensor>& given, const std::vector<at::Tensor>& gave) {
    if (Capture::active() != nullptr) Capture::active()->opaque(region, given, gave);
  });
  module.def("wrapped_number", [](const py::object& number) { return wrapped_number(scalar_of(number)); });
  module.def("watch_escapes", &watch_escapes);
  module.def("set_module_call",
             [](const py::object& code) { set_module_call(reinterpret_cast<PyCodeObject*>(code.ptr())); });
  module.def("hide_files", &hide_files);
  module.def("use_wrappers", [](bool on) {
    register_capture();
    use_wrappers(on);
  });
  module.def("frames", [] {
    std::vector<std::tuple<std::string, int, std::string>> all;
    for (const auto& row : frames()) all.emplace_back(row.file, row.line, row.function);
    return all;
  });
  module.def("stacks", [] {
    std::vector<std::pair<uint32_t, uint32_t>> all;
    for (const auto& row : stacks()) all.emplace_back(row.parent, row.frame);
    return all;
  });
}

}  // namespace

PYBIND11_MODULE(_tape, module) {
  bind_capture(module);
  bind_plan(module);
  bind_hooks(module);
}
