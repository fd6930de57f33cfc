#include "graphs/call/call_cache.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <optional>

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

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

// The arguments of a call, as vectorcall has them.
struct Arguments {
  PyObject* const* all;
  size_t positional;
  PyObject* names;

  // (args, kwargs, state of the random generator or None): what a backward needs to run the function again.
  py::object as_tuple(const at::Tensor& generator_state) const {
    py::tuple args(positional);
    for (size_t i = 0; i < positional; i++) args[i] = py::reinterpret_borrow<py::object>(all[i]);
    py::dict kwargs;
    for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); i++) {
      kwargs[py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(names, i))] =
          py::reinterpret_borrow<py::object>(all[positional + static_cast<size_t>(i)]);
    }
    return py::make_tuple(args, kwargs, generator_state.defined() ? py::cast(generator_state) : py::none());
  }
};

// Of the call that runs in this thread; reused, so that a call allocates nothing.
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

// One try to replay a call by an entry whose guards hold.
class Attempt {
 public:
  Attempt(CacheEntry& entry, const Arguments& arguments, Scratch& scratch)
      : entry_(entry),
        arguments_(arguments),
        scratch_(scratch),
        differentiable_(!entry.differentiations().empty()),
        report_{.wants_graph = differentiable_} {}

  // As CallCache::call().
  PyObject* run() {
    if (differentiable_ && !prepare_backward()) return nullptr;
    Outcome outcome = replay();
    if (outcome != Outcome::kDone) {
      scratch_.last_miss = {name_of(outcome), entry_.number, report_.failure, report_.op};
      return nullptr;
    }
    entry_.relate(scratch_.results, given());
    if (differentiable_) {
      auto call = arguments_.as_tuple(generator_state_);
      connect(entry_.replay, report_.graph, entry_.differentiations(), report_.saved, given(), owners_,
              scratch_.results, call.ptr());
    }
    entry_.mark_spent(scratch_.results);
    return build();
  }

 private:
  const Tensors& given() const { return scratch_.given.all(); }

  // False if two gradients share memory, in which case the call is a miss.
  bool prepare_backward() {
    for (const auto& how : entry_.differentiations()) owners_.push_back(owners_of(*entry_.replay, *how, given()));
    if (share_gradients(owners_)) {
      scratch_.last_miss = {"shared", entry_.number, "", 0};
      return false;
    }
    if (entry_.replay->program().draws()) generator_state_ = at::detail::getDefaultCPUGenerator().get_state();
    return true;
  }

  Outcome replay() {
    try {
      std::optional<py::gil_scoped_release> released;
      if (entry_.is_long()) {
        scratch_.given.own();  // another thread may drop what this one was given
        released.emplace();
      }
      if (!entry_.is_timed()) return entry_.replay->run(given(), scratch_.results, report_);
      auto start = std::chrono::steady_clock::now();
      Outcome outcome = entry_.replay->run(given(), scratch_.results, report_);
      entry_.add_time(std::chrono::steady_clock::now() - start);
      return outcome;
    } catch (...) {
      scratch_.last_miss = {"failed", entry_.number, "", report_.op};
      throw;
    }
  }

  PyObject* build() const {
    if (entry_.result.kind == Result::kTensor && !entry_.rebuild) {
      return THPVariable_Wrap(scratch_.results[entry_.result.index]);
    }
    std::vector<py::object> tensors;
    for (const auto& tensor : scratch_.results) {
      tensors.push_back(py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor)));
    }
    if (!entry_.rebuild) return entry_.result.build(tensors).release().ptr();
    return entry_.rebuild(tensors, arguments_.as_tuple(at::Tensor())).release().ptr();
  }

  CacheEntry& entry_;
  const Arguments& arguments_;
  Scratch& scratch_;
  bool differentiable_;
  Report report_;
  Owners owners_;
  at::Tensor generator_state_;
};

}  // namespace

void CallCache::drop(uint64_t number) {
  std::erase_if(entries_, [&](const auto& entry) { return entry->number == number; });
}

const CacheMiss& CallCache::last_miss() { return Scratch::of_this_thread().last_miss; }

// Whether any entry may be tried, whatever the arguments are.
inline bool CallCache::may_replay(CacheMiss& miss) {
  if (!on || Scratch::of_this_thread().busy || is_watched()) {
    miss.why = "off";
    return false;
  }
  if (verify > 0 && ++calls_ % verify == 0) {
    miss.why = "verify";
    return false;
  }
  return true;
}

PyObject* CallCache::call(PyObject* const* args, size_t positional, PyObject* names) {
  auto& scratch = Scratch::of_this_thread();
  auto& last_miss = scratch.last_miss;
  last_miss.why = "new";
  last_miss.entry = 0;
  last_miss.detail.clear();
  last_miss.op = 0;
  if (!may_replay(last_miss)) return nullptr;
  auto modes = Modes::now();
  if (modes.are_foreign()) {
    last_miss.why = "foreign";
    return nullptr;
  }
  Arguments arguments{args, positional, names};
  for (size_t i = 0; i < entries_.size(); i++) {
    auto entry = entries_[i];
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
      made = Attempt(*entry, arguments, scratch).run();
    } catch (...) {
      scratch.clear();
      // Eager either fails in the same way, in the user's own line, or succeeds.
      if (entry->replay->program().is_pure()) return nullptr;
      throw;
    }
    scratch.clear();
    if (made == nullptr && !PyErr_Occurred()) continue;
    // Other threads may have changed the entries meanwhile.
    if (i != 0 && i < entries_.size() && entries_[i] == entry) std::swap(entries_[0], entries_[i]);
    return made;
  }
  scratch.clear();
  return nullptr;
}

}  // namespace torchreel::graphs
