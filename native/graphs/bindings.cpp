// The binding of graphs, torchreel._graphs: it translates, and does nothing else.
#include "graphs/bindings.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "graphs/call/cached_call.h"
#include "graphs/call/call_cache.h"
#include "graphs/kernels/layers/result_placement.h"
#include "memory/private_pools.h"
#include "tape/capture/slots.h"
#include "tape/steps/steps.h"

namespace py = pybind11;
using namespace torchreel::graphs;
namespace tape = torchreel::tape;

namespace {

std::vector<uint32_t> slots_of(const std::vector<int64_t>& slots) {
  std::vector<uint32_t> all;
  for (int64_t slot : slots) all.push_back(slot < 0 ? tape::kNone : static_cast<uint32_t>(slot));
  return all;
}

// The op that each begins with, slots of gradients, and of derivatives.
using Segments = std::vector<std::tuple<size_t, std::vector<int64_t>, std::vector<int64_t>>>;

std::shared_ptr<StaticProgram> make_static_program(const py::list& slots, const py::list& ops, const tape::Kept& kept,
                                                   const std::map<uint32_t, at::Tensor>& tensors,
                                                   const std::vector<int64_t>& inputs,
                                                   const std::vector<int64_t>& outputs, const Segments& segments,
                                                   const py::list& bindings, size_t boundary,
                                                   std::vector<std::pair<at::Tensor, at::Tensor>> held_gradients,
                                                   bool elides, const std::map<uint32_t, uint32_t>& bumps) {
  Recorded recorded;
  for (const auto& slot : slots) recorded.slots.push_back(tape::slot_of(slot));
  uint32_t index = 0;
  for (const auto& op : ops) recorded.steps.push_back(tape::step_of(op, index++, kept));
  recorded.tensors.resize(recorded.slots.size());
  for (const auto& [slot, tensor] : tensors) recorded.tensors.at(slot) = tensor;
  recorded.inputs = slots_of(inputs);
  recorded.outputs = slots_of(outputs);
  for (const auto& [begin, gradients, derivatives] : segments) {
    recorded.segments.push_back({begin, slots_of(gradients), slots_of(derivatives)});
  }
  for (const auto& binding : bindings) {
    auto kind = binding.attr("kind").cast<std::string>();
    auto value = binding.attr("value").cast<int64_t>();
    recorded.bindings.push_back({kind == "grad"   ? tape::Binding::kGradient
                                 : kind == "data" ? tape::Binding::kData
                                                  : tape::Binding::kCopy,
                                 binding.attr("owner").cast<uint32_t>(),
                                 value < 0 ? tape::kNone : static_cast<uint32_t>(value),
                                 binding.attr("cleared").cast<bool>()});
  }
  recorded.boundary = boundary;
  recorded.held_gradients = std::move(held_gradients);
  recorded.elides = elides;
  recorded.bumps.assign(recorded.slots.size(), 1);
  for (const auto& [slot, count] : bumps) recorded.bumps.at(slot) = count;
  return std::make_shared<StaticProgram>(std::move(recorded));
}

// A call as vectorcall would have it.
struct Call {
  Call(const py::tuple& args, const py::dict& kwargs) : positional(args.size()) {
    for (const auto& each : args) all.push_back(each.ptr());
    if (kwargs.empty()) return;
    names = py::tuple(kwargs.size());
    size_t next = 0;
    for (const auto& [key, value] : kwargs) {
      names[next++] = key;
      all.push_back(value.ptr());
    }
  }
  PyObject* name_tuple() const { return names.empty() ? nullptr : names.ptr(); }
  size_t positional;
  std::vector<PyObject*> all;
  py::tuple names;
};

std::shared_ptr<Signature> make_signature(const py::tuple& args, const py::dict& kwargs) {
  Call call(args, kwargs);
  return std::make_shared<Signature>(call.all.data(), call.positional, call.name_tuple());
}

py::list graphs_of(const Replay& replay) {
  py::list all;
  for (const auto& graph : replay.graphs()) {
    py::dict row;
    row["part"] = graph->part().is_forward() ? "forward" : "backward";
    row["kernels"] = graph->kernels();
    row["hits"] = graph->hits;
    row["bytes"] = graph->bytes();
    row["id"] = graph->id;
    row["parents"] = graph->parents;
    row["outputs"] = graph->output_bytes();
    row["beside"] = graph->beside();
    py::dict layers;
    for (const auto& [layer, count] : graph->kernels_by_layer()) layers[py::str(layer)] = count;
    row["layers"] = layers;
    all.append(row);
  }
  return all;
}

using Pointers = std::vector<std::tuple<int64_t, int64_t, size_t>>;
// Steps, slots by the kernel's numbers, outputs and what is written of what was there before.
using Clusters =
    std::vector<std::tuple<int64_t, int64_t, std::vector<uint32_t>, std::vector<uint32_t>, std::vector<uint32_t>>>;

void lower(Replay& replay, const std::string& library, const std::string& entry, const Pointers& pointers,
           const std::vector<size_t>& scratch, const Clusters& clusters) {
  std::vector<Generated::Pointer> wanted;
  for (const auto& [slot, own, offset] : pointers) wanted.push_back({slot, own, offset});
  std::vector<std::shared_ptr<Cluster>> all;
  for (const auto& [begin, end, slots, outputs, written] : clusters) {
    auto cluster = std::make_shared<Cluster>();
    cluster->begin = begin;
    cluster->end = end;
    cluster->slots = slots;
    cluster->outputs = outputs;
    cluster->written = written;
    all.push_back(std::move(cluster));
  }
  auto generated = std::make_shared<Generated>(library, entry, std::move(wanted), scratch);
  replay.lowering().add(generated, std::move(all));
}

py::list clusters_of(const Replay& replay) {
  py::list all;
  for (const auto& row : replay.lowering().rows()) {
    const char* state = row.state == Replacement::kToCheck ? "to check"
                        : row.state == Replacement::kUsed  ? "used"
                                                           : "dropped";
    all.append(py::make_tuple(row.begin, row.end, state, row.why, row.exact_time, row.generated_time));
  }
  return all;
}

py::list kernels_of(const Replay& replay) {
  py::list all;
  for (const auto& graph : replay.graphs()) {
    py::list rows;
    for (size_t i = 0; i < graph->kernels(); i++) {
      rows.append(py::make_tuple(graph->op_of(i), graph->kernel(i).layer()));
    }
    all.append(rows);
  }
  return all;
}

std::shared_ptr<Replay> make_replay(const std::shared_ptr<StaticProgram>& program, const std::string& name,
                                    const std::string& held, size_t branches, bool exact, const std::string& over,
                                    const std::vector<bool>& fixed, int cores) {
  ReplayOptions options;
  options.held = held == "copy" ? Held::kCopy : held == "error" ? Held::kError : Held::kBranch;
  options.branches = branches;
  options.exact = exact;
  options.cores = cores;
  options.fixed = fixed;
  if (options.held == Held::kError) options.over = std::make_shared<std::string>(over);
  return std::make_shared<Replay>(program, options, name);
}

py::list timed_run(Replay& self, const Tensors& given) {
  py::list rows;
  for (const auto& row : self.timed_run(given)) rows.append(py::make_tuple(row.op, row.layer, row.nanoseconds));
  return rows;
}

std::shared_ptr<CacheEntry> make_entry(const std::shared_ptr<Signature>& signature, const Modes& modes,
                                       const std::shared_ptr<Replay>& replay, std::shared_ptr<PythonGuards> guards,
                                       const py::object& shape, const py::object& leaf, const py::object& rebuild,
                                       uint64_t number) {
  auto entry = std::make_shared<CacheEntry>(signature, modes, replay, std::move(guards), number);
  if (rebuild.is_none()) {
    entry->result = Result::of(shape, leaf);
  } else {
    entry->rebuild = rebuild;
  }
  return entry;
}

void differentiate(CacheEntry& self, const std::vector<uint32_t>& outputs, const std::vector<uint32_t>& owners,
                   const std::vector<uint32_t>& cuts, const std::vector<uint32_t>& reads, bool frees,
                   py::object again) {
  auto how = std::make_shared<Differentiation>();
  how->outputs = outputs;
  how->owners = owners;
  how->cuts = cuts;
  how->reads = reads;
  how->frees = frees;
  how->again = again.release().ptr();
  self.differentiate(std::move(how));
}

void set_aliases(CacheEntry& self, const std::vector<std::tuple<uint32_t, std::string, uint32_t, bool>>& aliases,
                 const std::vector<std::pair<uint32_t, bool>>& in_inference) {
  std::vector<OutputAlias> all;
  for (const auto& [output, from, index, is_view] : aliases) {
    auto kind = from == "output" ? OutputAlias::kOutput : from == "input" ? OutputAlias::kInput : OutputAlias::kOwn;
    all.push_back({output, kind, index, is_view});
  }
  self.set_aliases(std::move(all), in_inference);
}

void bind_programs(py::module_& module) {
  static py::exception<NotStatic> not_static(module, "NotStaticError", PyExc_RuntimeError);
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const NotStatic& refusal) {
      py::object value = py::reinterpret_borrow<py::object>(not_static)(py::str(refusal.what()));
      value.attr("op") = refusal.op;
      PyErr_SetObject(not_static.ptr(), value.ptr());
    }
  });
  py::class_<StaticProgram, std::shared_ptr<StaticProgram>>(module, "StaticProgram")
      .def(py::init(&make_static_program), py::kw_only(), py::arg("slots"), py::arg("ops"), py::arg("kept"),
           py::arg("tensors"), py::arg("inputs"), py::arg("outputs"), py::arg("segments"), py::arg("bindings"),
           py::arg("boundary"), py::arg("held_gradients"), py::arg("elides"), py::arg("bumps"))
      .def_property_readonly("written_inputs", &StaticProgram::written_inputs)
      .def_property_readonly("has_guards", &StaticProgram::has_guards)
      .def_property_readonly("boundaries", &StaticProgram::boundaries)
      .def_property_readonly("step_ops", &StaticProgram::step_ops)
      .def("life",
           [](const StaticProgram& self, uint32_t storage) {
             const auto& info = self.storages().at(storage);
             return py::make_tuple(info.kind == StorageInfo::kMade, info.last, info.handed_out);
           })
      .def_property_readonly("steps", [](const StaticProgram& self) { return self.steps().size(); });
}

void bind_signatures(py::module_& module) {
  py::class_<Signature, std::shared_ptr<Signature>>(module, "Signature")
      .def(py::init(&make_signature), py::arg("args"), py::arg("kwargs"))
      .def_property_readonly("is_plain", &Signature::is_plain)
      .def_property_readonly("tensors", &Signature::tensors)
      .def_property_readonly("has_fit", &Signature::has_fit)
      .def("set_fit",
           [](Signature& self, const py::object& fit, const Tensors& tensors) { self.set_fit(fit.ptr(), tensors); })
      .def("matches",
           [](const Signature& self, const py::tuple& args, const py::dict& kwargs) {
             Call call(args, kwargs);
             Borrowed tensors;
             return self.matches(call.all.data(), call.positional, call.name_tuple(), tensors) &&
                    self.fits(tensors.all());
           })
      .def("is_alike",
           [](const Signature& self, const py::tuple& args, const py::dict& kwargs) {
             Call call(args, kwargs);
             Borrowed tensors;
             return self.matches(call.all.data(), call.positional, call.name_tuple(), tensors);
           })
      .def("set_asked", &Signature::set_asked)
      .def("forget_example", &Signature::forget_example)
      .def("__str__", &Signature::text);
  py::class_<Modes>(module, "Modes")
      .def("compute_as", &Modes::compute_as)
      .def_static("now", &Modes::now)
      .def("are_foreign", &Modes::are_foreign)
      .def("__eq__", [](const Modes& a, const Modes& b) { return a == b; })
      .def_property_readonly("grad", &Modes::grad)
      .def_property_readonly("inference", &Modes::inference)
      .def_readonly("threads", &Modes::threads);
}

void bind_replays(py::module_& module) {
  py::class_<Replay, std::shared_ptr<Replay>>(module, "Replay")
      .def(py::init(&make_replay), py::arg("program"), py::arg("name"), py::arg("held"), py::arg("branches"),
           py::arg("exact"), py::arg("over"), py::arg("fixed"), py::arg("cores"))
      .def_property_readonly("hits", [](const Replay& self) { return self.hits.load(); })
      .def_property_readonly("draws", [](const Replay& self) { return self.program().draws(); })
      .def("make_first", &Replay::make_first)
      .def("lower", &lower, py::arg("library"), py::arg("entry"), py::arg("pointers"), py::arg("scratch"),
           py::arg("clusters"))
      .def("lowered_all", [](Replay& self, bool always) { self.lowering().arrived(always); })
      .def("clusters", &clusters_of)
      .def("graphs", &graphs_of)
      .def("kernels", &kernels_of)
      .def("timed_run", &timed_run);
}

void bind_call_cache(py::module_& module) {
  py::class_<CacheEntry, std::shared_ptr<CacheEntry>>(module, "CacheEntry")
      .def(py::init(&make_entry), py::arg("signature"), py::arg("modes"), py::arg("replay"), py::arg("guards"),
           py::arg("shape"), py::arg("leaf"), py::arg("rebuild"), py::arg("number"))
      .def("differentiate", &differentiate)
      .def("set_spent", &CacheEntry::set_spent)
      .def("set_aliases", &set_aliases)
      .def("set_detached", &CacheEntry::set_detached)
      .def_readwrite("verified", &CacheEntry::verified)
      .def_readonly("number", &CacheEntry::number)
      .def_readonly("replay", &CacheEntry::replay);
  py::class_<CallCache, std::shared_ptr<CallCache>>(module, "CallCache")
      .def(py::init<>())
      .def_readwrite("on", &CallCache::on)
      .def_readwrite("verify", &CallCache::verify)
      .def_readwrite("verify_first", &CallCache::verify_first)
      .def("add", &CallCache::add)
      .def("drop", &CallCache::drop)
      .def_property_readonly("last_miss", [](const CallCache&) {
        const auto& last_miss = CallCache::last_miss();
        return py::make_tuple(last_miss.why, last_miss.entry, last_miss.detail, last_miss.op);
      });
}

void bind_pools(py::module_& module) {
  module.def("force_two_cores", [](bool on) { Autotuner::forced = on; });
  module.def("mark_step_begin", [] { Pool::of_this_thread()->begin_step(); });
  module.def("pools", [] {
    std::vector<std::pair<size_t, size_t>> all;
    for (const auto& pool : Pool::all()) all.emplace_back(pool->total_reached(), pool->leases());
    return all;
  });
  module.def("trim_pools", &Pool::trim_all, py::call_guard<py::gil_scoped_release>());
  module.def("pool", [] {
    const auto& pool = Pool::of_this_thread();
    return py::make_tuple(pool->reached(), pool->leases());
  });
}

}  // namespace

PYBIND11_MODULE(_graphs, module) {
  py::capsule capsule = py::module_::import("torchreel._core").attr("place_blocks");
  py::capsule pools = py::module_::import("torchreel._core").attr("private_pools");
  set_private_pools(pools.get_pointer<torchreel::PrivatePools>());
  set_place_blocks(*capsule.get_pointer<torchreel::PlaceBlocks>());
  bind_kernels(module);
  bind_guards(module);
  bind_follower(module);
  bind_cached_call(module);
  bind_programs(module);
  bind_signatures(module);
  bind_replays(module);
  bind_call_cache(module);
  bind_pools(module);
}
