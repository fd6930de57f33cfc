#include "graphs/call/call_cache.h"

#include <ATen/CPUGeneratorImpl.h>
#include <structmember.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace torchreel::graphs {

Result Result::of(const py::handle& shape, const py::handle& leaf) {
  Result result;
  if (py::isinstance(shape, leaf)) {
    result.kind = kTensor;
    result.index = shape.attr("index").cast<size_t>();
  } else if (PyTuple_CheckExact(shape.ptr()) || PyList_CheckExact(shape.ptr())) {
    result.kind = PyTuple_CheckExact(shape.ptr()) ? kTuple : kList;
    for (const auto& part : shape) result.parts.push_back(of(part, leaf));
  } else if (PyDict_CheckExact(shape.ptr())) {
    result.kind = kDict;
    auto dict = py::reinterpret_borrow<py::dict>(shape);
    py::tuple keys(dict.size());
    size_t next = 0;
    for (const auto& [key, part] : dict) {
      keys[next++] = key;
      result.parts.push_back(of(part, leaf));
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
  CacheMiss last_miss;
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

void CacheEntry::time(std::chrono::nanoseconds one) {
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

void CacheEntry::set_spent(const std::vector<uint32_t>& indices) {
  spent = indices;
  spent_node = c10::make_intrusive<SpentBackward>(replay->name);
  const auto& program = replay->program();
  for (uint32_t index : indices) {
    const auto& slot = program.slot(program.recorded().outputs[index]);
    auto options = at::TensorOptions().dtype(slot.dtype);
    spent_node->add_input_metadata(options, c10::SymIntArrayRef(c10::fromIntArrayRefSlow(slot.sizes)), false, false,
                                   std::nullopt);
  }
}

void CacheEntry::relate(Tensors& results, const Tensors& given) const {
  for (auto [index, inference] : in_inference) {
    const auto& before = results[index];
    c10::InferenceMode mode(inference);
    auto after = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(before.storage()),
                                                          c10::DispatchKeySet(c10::DispatchKey::CPU), before.dtype());
    after.unsafeGetTensorImpl()->set_sizes_and_strides(before.sizes(), before.strides(), before.storage_offset());
    after._set_conj(before.is_conj());
    after._set_neg(before.is_neg());
    results[index] = after;
  }
  for (const auto& alias : aliases) {
    const auto& base = alias.from == OutputAlias::kOutput  ? results[alias.index]
                       : alias.from == OutputAlias::kInput ? given[alias.index]
                                                           : replay->program().tensor(alias.index);
    auto& result = results[alias.output];
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

void CacheEntry::mark_spent(Tensors& results) {
  for (uint32_t i = 0; i < spent.size(); i++) {
    auto& tensor = results[spent[i]];
    if (tensor.defined() && !tensor.requires_grad()) {
      torch::autograd::impl::set_gradient_edge(tensor, torch::autograd::Edge(spent_node, i));
    }
  }
}

PyObject* CallCache::run(CacheEntry& entry, const Tensors& given, PyObject* const* args, size_t positional,
                         PyObject* names) {
  auto& scratch = Scratch::of_this_thread();
  auto& last_miss = scratch.last_miss;
  auto& results = scratch.results;
  at::Tensor drawn;
  Owners owners;
  bool differentiable = !entry.differentiations.empty();
  if (differentiable) {
    for (const auto& how : entry.differentiations) owners.push_back(owners_of(*entry.replay, *how, given));
    if (share_gradients(owners)) {
      last_miss = {"shared", entry.number, "", 0};
      return nullptr;
    }
  }
  if (differentiable && entry.replay->program().draws()) {
    auto generator = at::detail::getDefaultCPUGenerator();
    drawn = generator.get_state();
  }
  Report report{.wants_graph = differentiable};
  Outcome outcome;
  try {
    // Other threads go on meanwhile, if it is worth while.
    std::optional<py::gil_scoped_release> released;
    if (entry.is_long) {
      scratch.given.own();  // another thread may drop what this one was given
      released.emplace();
    }
    if (entry.runs >= kTimed) {
      outcome = entry.replay->run(given, results, report);
    } else {
      auto start = std::chrono::steady_clock::now();
      outcome = entry.replay->run(given, results, report);
      entry.time(std::chrono::steady_clock::now() - start);
    }
  } catch (...) {
    last_miss = {"failed", entry.number, "", report.op};
    throw;
  }
  if (outcome != Outcome::kDone) {
    last_miss = {name_of(outcome), entry.number, report.failure, report.op};
    return nullptr;
  }
  for (uint32_t index : entry.detached) results[index] = results[index].detach();
  if (!entry.aliases.empty() || !entry.in_inference.empty()) entry.relate(results, given);
  if (differentiable) {
    auto call = call_of(args, positional, names, drawn);
    connect(entry.replay, report.graph, entry.differentiations, report.saved, given, owners, results, call.ptr());
  }
  if (!entry.spent.empty()) entry.mark_spent(results);
  if (entry.result.kind == Result::kTensor && !entry.rebuild) {
    return THPVariable_Wrap(results[entry.result.index]);
  }
  std::vector<py::object> tensors;
  for (const auto& tensor : results) tensors.push_back(py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor)));
  if (entry.rebuild) {
    return entry.rebuild(tensors, call_of(args, positional, names, at::Tensor())).release().ptr();
  }
  return entry.result.build(tensors).release().ptr();
}

const CacheMiss& CallCache::last_miss() { return Scratch::of_this_thread().last_miss; }

PyObject* CallCache::call(PyObject* const* args, size_t positional, PyObject* names) {
  auto& scratch = Scratch::of_this_thread();
  auto& last_miss = scratch.last_miss;
  last_miss.why = "new";
  last_miss.entry = 0;
  last_miss.detail.clear();
  last_miss.op = 0;
  if (!on || scratch.busy || is_watched()) {
    last_miss.why = "off";
    return nullptr;
  }
  if (verify > 0 && ++calls % verify == 0) {
    last_miss.why = "verify";
    return nullptr;
  }
  auto modes = Modes::now();
  if (modes.are_foreign()) {
    last_miss.why = "foreign";
    return nullptr;
  }
  for (size_t i = 0; i < entries.size(); i++) {
    auto entry = entries[i];
    if (entry->modes != modes || !entry->signature->matches(args, positional, names, scratch.given)) continue;
    if (!entry->signature->fits(scratch.given.all())) continue;
    if (entry->guards != nullptr && !entry->guards->hold()) {
      last_miss = {"changed", entry->number, "", 0};
      continue;
    }
    if (verify_first && !entry->verified) {
      last_miss = {"verify", entry->number, "", 0};
      break;
    }
    scratch.busy = true;
    PyObject* made = nullptr;
    try {
      made = run(*entry, scratch.given.all(), args, positional, names);
    } catch (...) {
      scratch.clear();
      // Eager either fails in the same way, in the user's own line, or does better.
      if (entry->replay->program().is_pure()) return nullptr;
      throw;
    }
    scratch.clear();
    if (made == nullptr && !PyErr_Occurred()) continue;
    if (i != 0 && i < entries.size() && entries[i] == entry)
      std::swap(entries[0], entries[i]);  // others may have run meanwhile
    return made;
  }
  scratch.clear();
  return nullptr;
}

namespace {

struct CachedCall {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* dict;
  PyObject* weak;
  PyObject* miss;
  std::shared_ptr<CallCache>* cache;
};

PyObject* call_cached(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  auto* cached = reinterpret_cast<CachedCall*>(self);
  size_t positional = PyVectorcall_NARGS(count);
  if (cached->cache == nullptr || cached->miss == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "This graphed function was not made by torchreel.graphed().");
    return nullptr;
  }
  HANDLE_TH_ERRORS
  PyObject* made = (*cached->cache)->call(args, positional, names);
  if (made != nullptr || PyErr_Occurred()) return made;
  return PyObject_Vectorcall(cached->miss, args, positional, names);
  END_HANDLE_TH_ERRORS
}

PyObject* new_cached_call(PyTypeObject* type, PyObject*, PyObject*) {
  // Before 3.12, Python lets no class that is written in it have this from the class that it is derived of.
  if (type->tp_call == PyVectorcall_Call) type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  auto* cached = reinterpret_cast<CachedCall*>(type->tp_alloc(type, 0));
  if (cached != nullptr) cached->vectorcall = call_cached;
  return reinterpret_cast<PyObject*>(cached);
}

int init_cached_call(PyObject* self, PyObject* args, PyObject*) {
  PyObject *cache, *miss;
  if (!PyArg_ParseTuple(args, "OO", &cache, &miss)) return -1;
  auto* cached = reinterpret_cast<CachedCall*>(self);
  try {
    cached->cache = new std::shared_ptr<CallCache>(py::cast<std::shared_ptr<CallCache>>(py::handle(cache)));
  } catch (const py::cast_error& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
    return -1;
  }
  Py_INCREF(miss);
  cached->miss = miss;
  return 0;
}

int traverse_cached_call(PyObject* self, visitproc visit, void* arg) {
  auto* cached = reinterpret_cast<CachedCall*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(cached->miss);
  Py_VISIT(cached->dict);
  return 0;
}

int clear_cached_call(PyObject* self) {
  auto* cached = reinterpret_cast<CachedCall*>(self);
  Py_CLEAR(cached->miss);
  Py_CLEAR(cached->dict);
  delete cached->cache;
  cached->cache = nullptr;
  return 0;
}

void free_cached_call(PyObject* self) {
  auto* cached = reinterpret_cast<CachedCall*>(self);
  PyObject_GC_UnTrack(self);
  if (cached->weak != nullptr) PyObject_ClearWeakRefs(self);
  clear_cached_call(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef kMembers[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(CachedCall, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CachedCall, weak), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CachedCall, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef kAttributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot kSlots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_cached_call)},
    {Py_tp_init, reinterpret_cast<void*>(init_cached_call)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_cached_call)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_cached_call)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_cached_call)},
    {Py_tp_members, kMembers},
    {Py_tp_getset, kAttributes},
    {0, nullptr},
};

PyType_Spec kSpec = {"torchreel._graphs.CachedCall", sizeof(CachedCall), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                     kSlots};

}  // namespace

void bind_cached_call(py::module_& module) {
  py::object type = py::reinterpret_steal<py::object>(PyType_FromSpec(&kSpec));
  if (!type) throw py::error_already_set();
  module.add_object("CachedCall", type);
}

}  // namespace torchreel::graphs
