#include "decode/tables/ops.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "decode/tables/batches.h"

namespace torchreel {

using namespace layout;
using Type = Column::Type;

namespace {

const std::vector<std::string> kKinds = {"op",    "backward", "torchscript", "lite", "custom", "static_runtime",
                                         "range", "module",   "python",      "other"};

}  // namespace

OpsTable::OpsTable(const Definitions& definitions, const SpoolClock& clock, int64_t node)
    : definitions_(definitions), clock_(clock), node_(node) {
  for (uint32_t i = 0; i < definitions.threads.size(); i++) thread_of_torch_id_[definitions.threads[i].torch_id] = i;
}

int64_t OpsTable::forward_thread(const Call& call) const {
  if (call.fwd_torch_thread == 0) return -1;
  auto known = thread_of_torch_id_.find(call.fwd_torch_thread);
  return known == thread_of_torch_id_.end() ? -1 : static_cast<int64_t>(known->second);
}

std::unique_ptr<Batch> OpsTable::batch(const CallRows& rows, const Finished& finished) const {
  auto batch = std::make_unique<Batch>();
  auto count = static_cast<size_t>(std::count(finished.begin(), finished.end(), 1));
  auto column = [&](const char* name, Type type) -> Column& {
    Column& made = batch->add(name, type);
    made.reserve(count);
    return made;
  };
  Column& id = column("id", Type::kInt64);
  Column& parent = column("parent", Type::kInt64);
  Column& thread = column("thread", Type::kInt32);
  Column& name = column("name", Type::kDictionary);
  Column& overload = column("overload", Type::kDictionary);
  Column& kind = column("kind", Type::kDictionary);
  Column& start = column("start_ns", Type::kInt64);
  Column& duration = column("dur_ns", Type::kInt64);
  Column& self = column("self_ns", Type::kInt64);
  Column& depth = column("depth", Type::kInt32);
  Column& step = column("step", Type::kInt32);
  Column& seq = column("seq", Type::kInt64);
  Column& fwd_thread = column("fwd_thread", Type::kInt32);
  Column& fwd = column("fwd", Type::kInt64);
  Column& module = column("module", Type::kInt32);
  Column& stack = column("stack", Type::kInt32);
  Column& inputs = column("inputs", Type::kInt32);
  Column& alloc = column("alloc_bytes", Type::kInt64);
  Column& self_alloc = column("self_alloc_bytes", Type::kInt64);
  Column& async = column("async", Type::kBool);
  Column& open = column("open", Type::kBool);
  Column& end_thread = column("end_thread", Type::kInt32);
  Column& node = column("node", Type::kInt32);
  Column& handle = column("debug_handle", Type::kInt64);
  Column& record_id = column("record_id", Type::kInt64);
  Column& script = column("script_modules", Type::kDictionary);

  Texts names;
  Texts overloads;
  Texts scripts;
  std::vector<std::pair<int32_t, int32_t>> ids;
  for (const auto& known : definitions_.names) ids.emplace_back(names.id(known.name), overloads.id(known.overload));
  for (int32_t i = 0; i < static_cast<int32_t>(rows.size()); i++) {
    if (!finished[i] || rows[i].hidden) continue;
    const Call& call = rows[i];
    int64_t from = clock_.time_ns(call.begin);
    int64_t took = clock_.time_ns(call.end) - from;
    id.add(call.id);
    parent.add(call.parent, -1);
    thread.add(call.thread);
    name.add(ids[call.name].first);
    overload.add(ids[call.name].second);
    kind.add(definitions_.names[call.name].kind);
    start.add(from);
    duration.add(took);
    self.add(call.async ? 0 : std::max<int64_t>(0, took - clock_.duration_ns(call.children)));
    depth.add(call.depth);
    step.add(call.step, -1);
    seq.add(call.seq, -1);
    fwd_thread.add(forward_thread(call), -1);
    fwd.add(call.fwd, -1);
    module.add(or_none(call.module), -1);
    // The stack is taken at ops: a Python or module call would show that of the op before it.
    uint32_t call_kind = definitions_.names[call.name].kind;
    bool is_location = call_kind == kModule || call_kind == kPython;
    stack.add(is_location ? 0 : call.stack, 0);
    inputs.add(or_none(call.inputs), -1);
    alloc.add(call.alloc);
    self_alloc.add(call.self_alloc);
    async.add_bool(call.async);
    open.add_bool(call.cut);
    end_thread.add(or_none(call.end_thread), -1);
    node.add(node_, -1);
    handle.add(call.handle, -1);
    record_id.add(call.record_id, -1);
    if (call.script == kNone || is_location) {
      script.add_null();
    } else {
      script.add(scripts.id(definitions_.names[call.script].name));
    }
  }
  name.set_dictionary(names.take());
  overload.set_dictionary(overloads.take());
  kind.set_dictionary(kKinds);
  script.set_dictionary(scripts.take());
  return batch;
}

}  // namespace torchreel
