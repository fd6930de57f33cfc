// The binding of the tape, torchreel._tape: it translates, and does nothing else.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ScalarOps.h>
#include <ATen/ops/empty.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "tape/capture.h"
#include "tape/decode.h"
#include "tape/escapes.h"
#include "tape/fallback.h"
#include "tape/kept.h"
#include "tape/plan.h"
#include "tape/steps.h"
#include "tape/where.h"

namespace py = pybind11;
using namespace torchreel::tape;

namespace {

py::bytes bytes_of(const at::Tensor& state) {
  return py::bytes(static_cast<const char*>(state.const_data_ptr()), state.nbytes());
}

// A capture is freed when nothing can be on its way into it any more: with the next one.
class PyCapture {
 public:
  PyCapture(const std::vector<at::Tensor>& inputs, bool hashes)
      : capture(std::make_shared<Capture>(CaptureOptions{.hashes = hashes})) {
    if (Capture::active() != nullptr) throw std::runtime_error("a tape is being recorded");
    register_capture();
    for (const auto& input : inputs) input_slots.push_back(capture->take_input(input));
    last() = capture;
    capture->start();
    Capture::follow_thread(true);
  }

  // Slots of the results; -1 for one that is no tensor of this tape's kind.
  std::vector<int64_t> end(const std::vector<at::Tensor>& results) {
    Capture::follow_thread(false);
    capture->stop();
    std::vector<int64_t> slots;
    for (const auto& result : results) slots.push_back(result.defined() ? capture->slots.read(result) : -1);
    return slots;
  }

  // The last capture is kept for ops of other threads that may be on their way, until the next one, or until now.
  static void forget_last() {
    if (Capture::active() == nullptr) last().reset();
  }

  std::shared_ptr<Capture> capture;
  std::vector<uint32_t> input_slots;

 private:
  static std::shared_ptr<Capture>& last() {
    static auto* last = new std::shared_ptr<Capture>();
    return *last;
  }
};

py::list externals(const PyCapture& self) {
  py::list all;
  const auto& slots = self.capture->slots;
  for (size_t i = 0; i < slots.externals().size(); i++) {
    const auto& tensor = slots.externals()[i];
    // Nobody else holds it: it was made within, by no op.
    bool alone = tensor.use_count() == 1 && (!tensor.has_storage() || tensor.storage().use_count() == 1);
    all.append(py::make_tuple(slots.external_slots()[i], tensor, alone));
  }
  return all;
}

// The same without numbers, which nobody has as tensors.
py::list tensors_from_outside(const PyCapture& self) {
  py::list all;
  const auto& slots = self.capture->slots;
  for (size_t i = 0; i < slots.externals().size(); i++) {
    const auto& tensor = slots.externals()[i];
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) continue;
    all.append(py::make_tuple(slots.external_slots()[i], tensor));
  }
  return all;
}

// Gradients that leaves have at the end and an op of the tape made.
py::list gradients(const PyCapture& self) {
  py::list all;
  auto& slots = self.capture->slots;
  size_t count = slots.externals().size();
  for (size_t i = 0; i < count; i++) {
    const auto& owner = slots.externals()[i];
    if (!owner.is_leaf() || !owner.requires_grad() || !owner.grad().defined()) continue;
    uint32_t slot = slots.find(owner.grad());
    if (slot == kNone || slots.all()[slot].external != kNone) continue;
    all.append(py::make_tuple(slots.external_slots()[i], slot));
  }
  return all;
}

// Gradients that leaves have at the end and no op made, though ops read or wrote them.
py::list old_gradients(const PyCapture& self) {
  py::list all;
  auto& slots = self.capture->slots;
  size_t count = slots.externals().size();
  for (size_t i = 0; i < count; i++) {
    const auto& owner = slots.externals()[i];
    if (!owner.is_leaf() || !owner.grad().defined()) continue;
    uint32_t slot = slots.find(owner.grad());
    if (slot == kNone || slots.all()[slot].external == kNone) continue;
    all.append(py::make_tuple(slots.external_slots()[i], slot));
  }
  return all;
}

// Tensors of others that have another storage or other sizes at the end than they had at first.
py::list rebound(const PyCapture& self) {
  py::list all;
  auto& slots = self.capture->slots;
  size_t count = slots.externals().size();
  for (size_t i = 0; i < count; i++) {
    const auto& tensor = slots.externals()[i];
    if (!tensor.has_storage() || tensor.layout() != c10::kStrided) continue;
    uint32_t slot = slots.find(tensor);
    if (slot != slots.external_slots()[i]) {
      all.append(py::make_tuple(slots.external_slots()[i], slot == kNone ? -1 : static_cast<int64_t>(slot)));
    }
  }
  return all;
}

at::Tensor wrapped_number(const py::object& number) {
  c10::Scalar value;
  if (py::isinstance<py::bool_>(number)) {
    value = number.cast<bool>();
  } else if (py::isinstance<py::int_>(number)) {
    value = number.cast<int64_t>();
  } else if (PyComplex_Check(number.ptr())) {
    value = c10::complex<double>(PyComplex_RealAsDouble(number.ptr()), PyComplex_ImagAsDouble(number.ptr()));
  } else {
    value = number.cast<double>();
  }
  auto tensor = c10::scalar_to_tensor(value);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

py::list generators(const PyCapture& self) {
  py::list all;
  for (const auto& known : self.capture->generators) {
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

}  // namespace

PYBIND11_MODULE(_tape, module) {
  py::class_<Kept>(module, "Kept").def(py::init(&make_kept), py::arg("states"));
  py::class_<PyCapture>(module, "Capture")
      .def_static("forget_last", &PyCapture::forget_last)
      .def(py::init<const std::vector<at::Tensor>&, bool>(), py::arg("inputs"), py::arg("hashes"))
      .def("end", &PyCapture::end)
      .def("decode", [](PyCapture& self, const py::dict& model) { return decode(*self.capture, model); })
      .def("close", [](PyCapture& self) { self.capture->slots.close(); })
      .def("externals", &externals)
      .def("tensors_from_outside", &tensors_from_outside)
      .def("gradients", &gradients)
      .def("old_gradients", &old_gradients)
      .def("rebound", &rebound)
      .def("generators", &generators)
      .def("kept",
           [](PyCapture& self) {
             Kept kept{.objects = self.capture->objects};
             for (const auto& known : self.capture->generators) kept.generators.push_back(known.generator);
             return kept;
           })
      .def("objects",
           [](PyCapture& self) {
             std::vector<std::string> all;
             for (const auto& object : self.capture->objects) all.push_back(object.type()->str());
             return all;
           })
      .def("modules",
           [](PyCapture& self) {
             py::list all;
             for (void* each : self.capture->modules)
               all.append(py::reinterpret_borrow<py::object>(static_cast<PyObject*>(each)));
             return all;
           })
      .def_property_readonly("input_slots", [](PyCapture& self) { return self.input_slots; })
      .def_property_readonly("asked_inputs",
                             [](PyCapture& self) {
                               std::vector<int> asked;
                               auto& slots = self.capture->slots;
                               for (uint32_t slot : self.input_slots) {
                                 uint32_t storage = slots.all()[slot].storage;
                                 asked.push_back(storage == kNone ? 0 : slots.storages()[storage].asked);
                               }
                               return asked;
                             })
      .def_property_readonly("ranges", [](PyCapture& self) { return self.capture->ranges; })
      .def_property_readonly("gradients_set",
                             [](PyCapture& self) {
                               py::dict all;
                               for (const auto& [tensor, index] : self.capture->gradients_set)
                                 all[py::int_(reinterpret_cast<uintptr_t>(tensor))] = py::int_(index);
                               return all;
                             })
      .def_property_readonly("gradients_read",
                             [](PyCapture& self) {
                               py::set all;
                               for (const void* tensor : self.capture->gradients_read)
                                 all.add(py::int_(reinterpret_cast<uintptr_t>(tensor)));
                               return all;
                             })
      .def_property_readonly("version_read", [](PyCapture& self) { return self.capture->version_read; })
      .def_property_readonly("first_backward",
                             [](PyCapture& self) {
                               const auto& ops = self.capture->ops;
                               size_t index = 0;
                               while (index < ops.size() && !ops[index].backward) index++;
                               return index;
                             })
      .def_property_readonly("op_count", [](PyCapture& self) { return self.capture->ops.size(); })
      .def("find",
           [](PyCapture& self, const at::Tensor& tensor) {
             return static_cast<int64_t>(static_cast<int32_t>(self.capture->slots.find(tensor)));
           })
      .def("start_storages", [](PyCapture& self) { return self.capture->start_storages; });
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
  module.def("is_recording", [] { return Capture::active() != nullptr; });
  module.def("follow_thread", &Capture::follow_thread);
  module.def("opaque", [](int64_t region, const std::vector<at::Tensor>& given, const std::vector<at::Tensor>& gave) {
    if (Capture::active() != nullptr) Capture::active()->opaque(region, given, gave);
  });
  module.def("wrapped_number", &wrapped_number);
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
