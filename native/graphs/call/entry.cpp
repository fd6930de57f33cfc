#include "graphs/call/entry.h"

#include <ATen/CPUGeneratorImpl.h>
#include <structmember.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace torchreel::graphs {

Result Result::of(const py::handle& shape, const py::handle& place) {
  Result result;
  if (py::isinstance(shape, place)) {
    result.kind = kTensor;
    result.index = shape.attr("index").cast<size_t>();
  } else if (PyTuple_CheckExact(shape.ptr()) || PyList_CheckExact(shape.ptr())) {
    result.kind = PyTuple_CheckExact(shape.ptr()) ? kTuple : kList;
    for (const auto& part : shape) result.parts.push_back(of(part, place));
  } else if (PyDict_CheckExact(shape.ptr())) {
    result.kind = kDict;
    auto dict = py::reinterpret_borrow<py::dict>(shape);
    py::tuple keys(dict.size());
    size_t next = 0;
    for (const auto& [key, part] : dict) {
      keys[next++] = key;
      result.parts.push_back(of(part, place));
    }
    result.value = keys;
  } else {
    result.value = py::reinterpret_borrow<py::object>(shape);
  }
  return result;
}

py::object Result::build(const std::vector<py::object>& tensors) const {
  switch (kind) {
    case kTensor: return tensors[index];
    case kConstant: return value;
    case kTuple: {
      py::tuple made(parts.size());
      for (size_t i = 0; i < parts.size(); i++) made[i] = parts[i].build(tensors);
      return made;
    }
    case kList: {
      py::list made;
      for (const auto& part : parts) made.append(part.build(tensors));
      return made;
    }
    case kDict: {
      py::dict made;
      for (size_t i = 0; i < parts.size(); i++) made[value[py::int_(i)]] = parts[i].build(tensors);
      return made;
    }
  }
  return py::none();
}

namespace {

constexpr uint32_t kTimed = 16;                        // runs
constexpr auto kLong = std::chrono::microseconds(50);  // than which the GIL is worth giving away

// A debugger wants to see the function run, and so does a profile function of Python (profilers in C are no functions).
bool is_watched() {
  const PyThreadState* thread = PyThreadState_Get();
  return thread->c_tracefunc != nullptr || (thread->c_profilefunc != nullptr && thread->c_profileobj != nullptr &&
                                            PyCallable_Check(thread->c_profileobj));
}

const char* name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone: return "done";
    case Outcome::kMoved: return "moved";
    case Outcome::kAliased: return "aliased";
    case Outcome::kGuard: return "guard";
    case Outcome::kHeld: return "held";
    case Outcome::kKept: return "kept";
  }
  return "";
}

// What a backward needs to run the function again: (args, kwargs, state of the random generator or None).
py::object call_of(PyObject* const* args, size_t positional, PyObject* names, const at::Tensor& drawn) {
  py::tuple given(positional);
  for (size_t i = 0; i < positional; i++) given[i] = py::reinterpret_borrow<py::object>(args[i]);
  py::dict named;
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); i++) {
    named[py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(names, i))] =
        py::reinterpret_borrow<py::object>(args[positional + static_cast<size_t>(i)]);
  }
  return py::make_tuple(given, named, drawn.defined() ? py::cast(drawn) : py::none());
}

}  // namespace

namespace {

// Of the call that is on its way in this thread; kept for their memory.
struct Scratch {
  Missed missed;
  Borrowed given;
  Tensors results;
  bool busy = false;

  static Scratch& of_this_thread() {
    thread_local Scratch scratch;
    return scratch;
  }
  void clear() {
    given.clear();
    results.clear();
    busy = false;
  }
};

}  // namespace

void Way::time(std::chrono::nanoseconds one) {
  least = std::min(least, one);
  if (++runs == kTimed) is_long = least > kLong;
}

namespace {

// Stands for a history that is gone.
class SpentBackward : public torch::autograd::Node {
 public:
  explicit SpentBackward(std::string function) : function_(std::move(function)) {}
  std::string name() const override { return "SpentBackward<" + function_ + ">"; }

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    TORCH_CHECK(false, "Trying to backward through the graph a second time: this is an output of ", function_,
                ", which torchreel.graphed replays with the backward that the function runs itself, so that its "
                "outputs have no history. Run this backward inside of the function, or graph the forward alone.");
  }

 private:
  std::string function_;
};

}  // namespace

void Way::set_spent(const std::vector<uint32_t>& places) {
  spent = places;
  spent_node = c10::make_intrusive<SpentBackward>(route->name);
  const auto& recording = route->recording();
  for (uint32_t place : places) {
    const auto& slot = recording.slot(recording.recorded().outputs[place]);
    auto options = at::TensorOptions().dtype(slot.dtype);
    spent_node->add_input_metadata(options, c10::SymIntArrayRef(c10::fromIntArrayRefSlow(slot.sizes)), false, false,
                                   std::nullopt);
  }
}

void Way::relate(Tensors& results, const Tensors& given) const {
  for (auto [place, inference] : in_inference) {
    const auto& before = results[place];
    c10::InferenceMode mode(inference);
    auto after = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(before.storage()),
                                                          c10::DispatchKeySet(c10::DispatchKey::CPU), before.dtype());
    after.unsafeGetTensorImpl()->set_sizes_and_strides(before.sizes(), before.strides(), before.storage_offset());
    after._set_conj(before.is_conj());
    after._set_neg(before.is_neg());
    results[place] = after;
  }
  for (const auto& alias : aliases) {
    const auto& base = alias.from == OutputAlias::kOutput  ? results[alias.index]
                       : alias.from == OutputAlias::kInput ? given[alias.index]
                                                           : route->recording().tensor(alias.index);
    auto& result = results[alias.place];
    if (result.is_same(base)) continue;
    bool alike = base.scalar_type() == result.scalar_type() && base.is_conj() == result.is_conj() &&
                 base.is_neg() == result.is_neg();
    if (alias.is_view && alike) {
      result = base.as_strided(result.sizes(), result.strides(), result.storage_offset());
    } else if (!base.is_inference() && !result.is_inference()) {
      result.unsafeGetTensorImpl()->set_version_counter(base.unsafeGetTensorImpl()->version_counter());
    }
  }
}

void Way::mark_spent(Tensors& results) {
  for (uint32_t i = 0; i < spent.size(); i++) {
    auto& tensor = results[spent[i]];
    if (tensor.defined() && !tensor.requires_grad()) {
      torch::autograd::impl::set_gradient_edge(tensor, torch::autograd::Edge(spent_node, i));
    }
  }
}

PyObject* Ways::run(Way& way, const Tensors& given, PyObject* const* args, size_t positional, PyObject* names) {
  auto& scratch = Scratch::of_this_thread();
  auto& missed = scratch.missed;
  auto& results = scratch.results;
  at::Tensor drawn;
  Owners owners;
  bool differentiable = !way.differentiations.empty();
  if (differentiable) {
    for (const auto& how : way.differentiations) owners.push_back(owners_of(*way.route, *how, given));
    if (share_gradients(owners)) {
      missed = {"shared", way.number, "", 0};
      return nullptr;
    }
  }
  if (differentiable && way.route->recording().draws()) {
    auto generator = at::detail::getDefaultCPUGenerator();
    drawn = generator.get_state();
  }
  Report report{.wants_graph = differentiable};
  Outcome outcome;
  try {
    // Other threads go on meanwhile, if it is worth while.
    std::optional<py::gil_scoped_release> released;
    if (way.is_long) {
      scratch.given.own();  // another thread may drop what this one was given
      released.emplace();
    }
    if (way.runs >= kTimed) {
      outcome = way.route->run(given, results, report);
    } else {
      auto start = std::chrono::steady_clock::now();
      outcome = way.route->run(given, results, report);
      way.time(std::chrono::steady_clock::now() - start);
    }
  } catch (...) {
    missed = {"failed", way.number, "", report.op};
    throw;
  }
  if (outcome != Outcome::kDone) {
    missed = {name_of(outcome), way.number, report.failure, report.op};
    return nullptr;
  }
  for (uint32_t place : way.detached) results[place] = results[place].detach();
  if (!way.aliases.empty() || !way.in_inference.empty()) way.relate(results, given);
  if (differentiable) {
    auto call = call_of(args, positional, names, drawn);
    connect(way.route, report.graph, way.differentiations, report.saved, given, owners, results, call.ptr());
  }
  if (!way.spent.empty()) way.mark_spent(results);
  if (way.result.kind == Result::kTensor && !way.rebuild) {
    return THPVariable_Wrap(results[way.result.index]);
  }
  std::vector<py::object> tensors;
  for (const auto& tensor : results) tensors.push_back(py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor)));
  if (way.rebuild) {
    return way.rebuild(tensors, call_of(args, positional, names, at::Tensor())).release().ptr();
  }
  return way.result.build(tensors).release().ptr();
}

const Missed& Ways::missed() { return Scratch::of_this_thread().missed; }

PyObject* Ways::call(PyObject* const* args, size_t positional, PyObject* names) {
  auto& scratch = Scratch::of_this_thread();
  auto& missed = scratch.missed;
  missed.why = "new";
  missed.way = 0;
  missed.detail.clear();
  missed.op = 0;
  if (!on || scratch.busy || is_watched()) {
    missed.why = "off";
    return nullptr;
  }
  if (verify > 0 && ++calls % verify == 0) {
    missed.why = "verify";
    return nullptr;
  }
  auto modes = Modes::now();
  if (modes.are_foreign()) {
    missed.why = "foreign";
    return nullptr;
  }
  for (size_t i = 0; i < all.size(); i++) {
    auto way = all[i];
    if (way->modes != modes || !way->signature->matches(args, positional, names, scratch.given)) continue;
    if (!way->signature->fits(scratch.given.all())) continue;
    if (way->guards != nullptr && !way->guards->hold()) {
      missed = {"changed", way->number, "", 0};
      continue;
    }
    if (verify_first && !way->verified) {
      missed = {"verify", way->number, "", 0};
      break;
    }
    scratch.busy = true;
    PyObject* made = nullptr;
    try {
      made = run(*way, scratch.given.all(), args, positional, names);
    } catch (...) {
      scratch.clear();
      // Eager either fails in the same way, in the user's own line, or does better.
      if (way->route->recording().is_pure()) return nullptr;
      throw;
    }
    scratch.clear();
    if (made == nullptr && !PyErr_Occurred()) continue;
    if (i != 0 && i < all.size() && all[i] == way) std::swap(all[0], all[i]);  // others may have run meanwhile
    return made;
  }
  scratch.clear();
  return nullptr;
}

namespace {

struct Entry {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* dict;
  PyObject* weak;
  PyObject* miss;
  std::shared_ptr<Ways>* ways;
};

PyObject* call_entry(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  auto* entry = reinterpret_cast<Entry*>(self);
  size_t positional = PyVectorcall_NARGS(count);
  if (entry->ways == nullptr || entry->miss == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "This graphed function was not made by torchreel.graphed().");
    return nullptr;
  }
  HANDLE_TH_ERRORS
  PyObject* made = (*entry->ways)->call(args, positional, names);
  if (made != nullptr || PyErr_Occurred()) return made;
  return PyObject_Vectorcall(entry->miss, args, positional, names);
  END_HANDLE_TH_ERRORS
}

PyObject* new_entry(PyTypeObject* type, PyObject*, PyObject*) {
  // Before 3.12, Python lets no class that is written in it have this from the class that it is derived of.
  if (type->tp_call == PyVectorcall_Call) type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  auto* entry = reinterpret_cast<Entry*>(type->tp_alloc(type, 0));
  if (entry != nullptr) entry->vectorcall = call_entry;
  return reinterpret_cast<PyObject*>(entry);
}

int init_entry(PyObject* self, PyObject* args, PyObject*) {
  PyObject *ways, *miss;
  if (!PyArg_ParseTuple(args, "OO", &ways, &miss)) return -1;
  auto* entry = reinterpret_cast<Entry*>(self);
  try {
    entry->ways = new std::shared_ptr<Ways>(py::cast<std::shared_ptr<Ways>>(py::handle(ways)));
  } catch (const py::cast_error& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
    return -1;
  }
  Py_INCREF(miss);
  entry->miss = miss;
  return 0;
}

int traverse_entry(PyObject* self, visitproc visit, void* arg) {
  auto* entry = reinterpret_cast<Entry*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(entry->miss);
  Py_VISIT(entry->dict);
  return 0;
}

int clear_entry(PyObject* self) {
  auto* entry = reinterpret_cast<Entry*>(self);
  Py_CLEAR(entry->miss);
  Py_CLEAR(entry->dict);
  delete entry->ways;
  entry->ways = nullptr;
  return 0;
}

void free_entry(PyObject* self) {
  auto* entry = reinterpret_cast<Entry*>(self);
  PyObject_GC_UnTrack(self);
  if (entry->weak != nullptr) PyObject_ClearWeakRefs(self);
  clear_entry(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef kMembers[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(Entry, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Entry, weak), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Entry, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef kAttributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot kSlots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_entry)},
    {Py_tp_init, reinterpret_cast<void*>(init_entry)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_entry)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_entry)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_entry)},
    {Py_tp_members, kMembers},
    {Py_tp_getset, kAttributes},
    {0, nullptr},
};

PyType_Spec kSpec = {"torchreel._graphs.Entry", sizeof(Entry), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                     kSlots};

}  // namespace

void bind_entry(py::module_& module) {
  py::object type = py::reinterpret_steal<py::object>(PyType_FromSpec(&kSpec));
  if (!type) throw py::error_already_set();
  module.add_object("Entry", type);
}

}  // namespace torchreel::graphs
