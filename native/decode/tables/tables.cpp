#include "decode/tables/tables.h"

#include "decode/tables/inputs_text.h"

namespace torchreel {

using Type = Column::Type;

std::unique_ptr<Batch> allocs_batch(const MemoryPairing& memory, const SpoolClock& clock) {
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
  int64_t next = memory.first_id();
  for (const PairedEvent& event : memory.events()) {
    id.add(next++);
    time.add(clock.time_ns(event.tick));
    thread.add(or_none(event.thread), -1);
    device.add(0);
    action.add(static_cast<int64_t>(event.action));
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
  category.set_dictionary(memory.categories());
  return batch;
}

namespace {

std::unique_ptr<Batch> moments_batch(const std::vector<Moment>& moments, const Definitions& all,
                                     const SpoolClock& clock) {
  auto batch = std::make_unique<Batch>();
  Column& thread = batch->add("thread", Type::kInt32);
  Column& time = batch->add("time_ns", Type::kInt64);
  Column& name = batch->add("name", Type::kDictionary);
  Column& op = batch->add("op", Type::kInt64);
  Texts names;
  for (const Moment& moment : moments) {
    thread.add(moment.thread);
    time.add(clock.time_ns(moment.tick));
    name.add(names.id(moment.name < all.names.size() ? all.names[moment.name].name : "(unknown)"));
    op.add(moment.op, -1);
  }
  name.set_dictionary(names.take());
  return batch;
}

}  // namespace

std::unique_ptr<Batch> marks_batch(const std::vector<Moment>& marks, const Definitions& all, const SpoolClock& clock) {
  return moments_batch(marks, all, clock);
}

std::unique_ptr<Batch> flows_batch(const std::vector<Moment>& flows, const Definitions& all, const SpoolClock& clock) {
  auto batch = moments_batch(flows, all, clock);
  Column& id = batch->add("id", Type::kInt64);
  Column& end = batch->add("end", Type::kDictionary);
  for (const Moment& flow : flows) {
    id.add(static_cast<int64_t>(flow.flow));
    end.add(flow.in);
  }
  end.set_dictionary({"out", "in"});
  return batch;
}

std::unique_ptr<Batch> counters_batch(const std::vector<CounterDifference>& differences, const Definitions& all) {
  auto batch = std::make_unique<Batch>();
  Column& op = batch->add("op", Type::kInt64);
  Column& name = batch->add("name", Type::kDictionary);
  Column& value = batch->add("value", Type::kInt64);
  for (const CounterDifference& difference : differences) {
    op.add(difference.op);
    name.add(difference.counter);
    value.add(difference.value);
  }
  name.set_dictionary(all.counters);
  return batch;
}

std::unique_ptr<Batch> inputs_batch(const Definitions& all) {
  auto batch = std::make_unique<Batch>();
  Column& id = batch->add("id", Type::kInt32);
  Column& dims = batch->add("dims", Type::kText);
  Column& strides = batch->add("strides", Type::kText);
  Column& dtypes = batch->add("dtypes", Type::kText);
  Column& scalars = batch->add("scalars", Type::kText);
  Column& keywords = batch->add("keywords", Type::kDictionary);
  Texts named;
  for (size_t i = 0; i < all.inputs.size(); i++) {
    InputsText text = inputs_text(all.inputs[i]);
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

std::unique_ptr<Batch> steps_batch(const Steps& steps, const SpoolClock& clock, int64_t end_ns) {
  auto batch = std::make_unique<Batch>();
  Column& number = batch->add("step", Type::kInt32);
  Column& start = batch->add("start_ns", Type::kInt64);
  Column& end = batch->add("end_ns", Type::kInt64);
  const auto& all = steps.all();
  for (size_t i = 0; i < all.size(); i++) {
    number.add(static_cast<int64_t>(all[i].first));
    start.add(clock.time_ns(all[i].second));
    end.add(i + 1 < all.size() ? clock.time_ns(all[i + 1].second) : end_ns);
  }
  return batch;
}

}  // namespace torchreel
