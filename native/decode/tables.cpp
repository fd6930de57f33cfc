// What the decoder knows -> the columns of reel/tables.py, by name.
#include <algorithm>
#include <set>

#include "decode/decoder.h"
#include "decode/inputs_text.h"

namespace torchreel {

using namespace layout;
using Type = Column::Type;

namespace {

const std::vector<std::string> kKinds = {"op",    "backward", "torchscript", "lite", "custom", "static_runtime",
                                         "range", "module",   "python",      "other"};

// Texts that many rows share, each once.
class Texts {
 public:
  int32_t id(const std::string& text) {
    auto [known, added] = ids_.emplace(text, texts_.size());
    if (added) texts_.push_back(text);
    return static_cast<int32_t>(known->second);
  }
  std::vector<std::string> take() { return std::move(texts_); }

 private:
  std::unordered_map<std::string, size_t> ids_;
  std::vector<std::string> texts_;
};

int64_t or_none(uint32_t id) { return id == kNone ? -1 : static_cast<int64_t>(id); }

}  // namespace

int64_t Decoder::thread_of(uint64_t torch_id) const {
  auto known = thread_of_torch_id_.find(torch_id);
  return known == thread_of_torch_id_.end() ? -1 : static_cast<int64_t>(known->second);
}

std::unique_ptr<Batch> Decoder::ops_batch(const std::vector<char>& leaves) {
  auto batch = std::make_unique<Batch>();
  auto rows = static_cast<size_t>(std::count(leaves.begin(), leaves.end(), 1));
  auto column = [&](const char* name, Type type) -> Column& {
    Column& made = batch->add(name, type);
    made.reserve(rows);
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
  for (size_t i = 0; i < rows_.size(); i++) {
    if (!leaves[i] || rows_[i].hidden) continue;
    const Row& row = rows_[i];
    int64_t from = nanoseconds(row.begin);
    int64_t took = nanoseconds(row.end) - from;
    auto children = static_cast<int64_t>(static_cast<double>(row.children) * ns_per_tick_);
    id.add(row.id);
    parent.add(row.parent, -1);
    thread.add(row.thread);
    name.add(ids[row.name].first);
    overload.add(ids[row.name].second);
    kind.add(definitions_.names[row.name].kind);
    start.add(from);
    duration.add(took);
    self.add(row.async ? 0 : std::max<int64_t>(0, took - children));
    depth.add(row.depth);
    step.add(row.step, -1);
    seq.add(row.seq, -1);
    fwd_thread.add(row.fwd_torch_thread == 0 ? -1 : thread_of(row.fwd_torch_thread), -1);
    fwd.add(row.fwd, -1);
    module.add(or_none(row.module), -1);
    // The stack is taken at ops: a Python or module call would show that of the op before it.
    uint32_t row_kind = definitions_.names[row.name].kind;
    bool is_place = row_kind == kModule || row_kind == kPython;
    stack.add(is_place ? 0 : row.stack, 0);
    inputs.add(or_none(row.inputs), -1);
    alloc.add(row.alloc);
    self_alloc.add(row.self_alloc);
    async.add_bool(row.async);
    open.add_bool(row.cut);
    end_thread.add(or_none(row.end_thread), -1);
    node.add(header_.node, -1);
    handle.add(row.handle, -1);
    record_id.add(row.record_id, -1);
    if (row.script == kNone || is_place) {
      script.add_null();
    } else {
      script.add(scripts.id(definitions_.names[row.script].name));
    }
  }
  name.set_dictionary(names.take());
  overload.set_dictionary(overloads.take());
  kind.set_dictionary(kKinds);
  script.set_dictionary(scripts.take());
  return batch;
}

std::unique_ptr<Batch> Decoder::allocs_batch() {
  auto batch = std::make_unique<Batch>();
  Column& id = batch->add("id", Type::kInt64);
  Column& time = batch->add("time_ns", Type::kInt64);
  Column& thread = batch->add("thread", Type::kInt32);
  Column& device = batch->add("device", Type::kDictionary);
  Column& action = batch->add("action", Type::kDictionary);
  Column& address = batch->add("addr", Type::kInt64);
  Column& size = batch->add("size", Type::kInt64);
  Column& total = batch->add("total", Type::kInt64);
  Column& op = batch->add("op", Type::kInt64);
  Column& stack = batch->add("stack", Type::kInt32);
  Column& alloc = batch->add("alloc", Type::kInt64);
  Column& category = batch->add("category", Type::kDictionary);
  int64_t first = next_alloc_ - static_cast<int64_t>(allocs_.size());
  for (const ResolvedMemory& event : allocs_) {
    id.add(first++);
    time.add(nanoseconds(event.tick));
    thread.add(or_none(event.thread), -1);
    device.add(0);
    action.add(event.action);
    address.add(static_cast<int64_t>(event.address));
    size.add(event.bytes, -1);
    total.add(event.total);
    op.add(event.op, -1);
    stack.add(event.stack, 0);
    alloc.add(event.alloc, -1);
    category.add(or_none(event.category), -1);
  }
  device.set_dictionary({"cpu"});
  action.set_dictionary({"alloc", "free", "preexisting", "segment_alloc", "segment_free"});
  category.set_dictionary(categories_);
  return batch;
}

std::unique_ptr<Batch> Decoder::moments_batch(const std::vector<Moment>& moments, bool flows) {
  auto batch = std::make_unique<Batch>();
  Column& thread = batch->add("thread", Type::kInt32);
  Column& time = batch->add("time_ns", Type::kInt64);
  Column& name = batch->add("name", Type::kDictionary);
  Column& op = batch->add("op", Type::kInt64);
  Texts names;
  for (const Moment& moment : moments) {
    thread.add(moment.thread);
    time.add(nanoseconds(moment.tick));
    name.add(names.id(moment.name < definitions_.names.size() ? definitions_.names[moment.name].name : "(unknown)"));
    op.add(moment.op, -1);
  }
  name.set_dictionary(names.take());
  if (flows) {
    Column& id = batch->add("id", Type::kInt64);
    Column& end = batch->add("end", Type::kDictionary);
    for (const Moment& moment : moments) {
      id.add(static_cast<int64_t>(moment.flow));
      end.add(moment.in);
    }
    end.set_dictionary({"out", "in"});
  }
  return batch;
}

std::unique_ptr<Batch> Decoder::counters_batch() {
  auto batch = std::make_unique<Batch>();
  Column& op = batch->add("op", Type::kInt64);
  Column& name = batch->add("name", Type::kDictionary);
  Column& value = batch->add("value", Type::kInt64);
  for (const Counter& counter : counters_) {
    op.add(counter.op);
    name.add(counter.counter);
    value.add(counter.value);
  }
  name.set_dictionary(definitions_.counters);
  return batch;
}

std::unique_ptr<Batch> Decoder::inputs() const {
  auto batch = std::make_unique<Batch>();
  Column& id = batch->add("id", Type::kInt32);
  Column& dims = batch->add("dims", Type::kText);
  Column& strides = batch->add("strides", Type::kText);
  Column& dtypes = batch->add("dtypes", Type::kText);
  Column& scalars = batch->add("scalars", Type::kText);
  Column& keywords = batch->add("keywords", Type::kDictionary);
  Texts named;
  for (size_t i = 0; i < definitions_.inputs.size(); i++) {
    InputsText text = inputs_text(definitions_.inputs[i]);
    id.add(static_cast<int64_t>(i));
    dims.add_text(text.dims);
    strides.add_text(text.strides);
    dtypes.add_text(text.dtypes);
    scalars.add_text(text.scalars);
    if (text.keywords.empty()) {
      keywords.add_null();
    } else {
      keywords.add(named.id(text.keywords));
    }
  }
  keywords.set_dictionary(named.take());
  batch->drop_nulls();
  return batch;
}

namespace {

std::unique_ptr<Batch> stacks_batch(const Definitions& all) {
  auto batch = std::make_unique<Batch>();
  Column& id = batch->add("id", Type::kInt32);
  Column& frames = batch->add("frames", Type::kInt32List);
  std::vector<int32_t> list;
  for (size_t i = 1; i < all.stacks.size(); i++) {
    list.clear();
    // Callers come before those they call, so this ends.
    for (auto at = static_cast<uint32_t>(i); at != 0; at = all.stacks[at].parent) {
      if (all.stacks[at].frame >= all.frames.size()) break;
      list.push_back(static_cast<int32_t>(all.stacks[at].frame));
    }
    if (list.empty()) continue;
    id.add(static_cast<int64_t>(i));
    frames.add_list(list);
  }
  return batch;
}

std::unique_ptr<Batch> frames_batch(const Definitions& all) {
  auto batch = std::make_unique<Batch>();
  Column& id = batch->add("id", Type::kInt32);
  Column& file = batch->add("file", Type::kDictionary);
  Column& line = batch->add("line", Type::kInt32);
  Column& function = batch->add("function", Type::kDictionary);
  Texts files;
  Texts functions;
  for (size_t i = 0; i < all.frames.size(); i++) {
    id.add(static_cast<int64_t>(i));
    file.add(files.id(all.frames[i].file));
    line.add(all.frames[i].line);
    function.add(functions.id(all.frames[i].function));
  }
  file.set_dictionary(files.take());
  function.set_dictionary(functions.take());
  return batch;
}

std::unique_ptr<Batch> modules_batch(const Definitions& all) {
  auto batch = std::make_unique<Batch>();
  Column& id = batch->add("id", Type::kInt32);
  Column& path = batch->add("path", Type::kText);
  Column& type = batch->add("class", Type::kText);
  Column& parent = batch->add("parent", Type::kInt32);
  for (size_t i = 0; i < all.modules.size(); i++) {
    if (!all.modules[i].known) continue;
    id.add(static_cast<int64_t>(i));
    path.add_text(all.modules[i].path);
    type.add_text(all.modules[i].type);
    parent.add(or_none(all.modules[i].parent), -1);
  }
  return batch;
}

std::unique_ptr<Batch> threads_batch(const Definitions& all) {
  auto batch = std::make_unique<Batch>();
  Column& id = batch->add("id", Type::kInt32);
  Column& os_id = batch->add("os_id", Type::kInt64);
  Column& torch_id = batch->add("torch_id", Type::kInt64);
  Column& name = batch->add("name", Type::kText);
  for (size_t i = 0; i < all.threads.size(); i++) {
    id.add(static_cast<int64_t>(i));
    os_id.add(static_cast<int64_t>(all.threads[i].os_id));
    torch_id.add(static_cast<int64_t>(all.threads[i].torch_id));
    name.add_text(all.threads[i].name);
  }
  return batch;
}

}  // namespace

void Decoder::finish(Batches& batches) {
  batches.emplace_back("inputs", inputs());
  batches.emplace_back("stacks", stacks_batch(definitions_));
  batches.emplace_back("frames", frames_batch(definitions_));
  batches.emplace_back("modules", modules_batch(definitions_));
  batches.emplace_back("threads", threads_batch(definitions_));

  auto steps = std::make_unique<Batch>();
  Column& number = steps->add("step", Type::kInt32);
  Column& start = steps->add("start_ns", Type::kInt64);
  Column& end = steps->add("end_ns", Type::kInt64);
  const auto& all = definitions_.steps;
  for (size_t i = 0; i < all.size(); i++) {
    number.add(static_cast<int64_t>(all[i].number));
    start.add(nanoseconds(all[i].tick));
    end.add(i + 1 < all.size() ? nanoseconds(all[i + 1].tick) : end_ns());
  }
  batches.emplace_back("steps", std::move(steps));

  add_final_state(batches);
}

}  // namespace torchreel
