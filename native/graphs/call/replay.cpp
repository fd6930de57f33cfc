#include "graphs/call/replay.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "graphs/kernels/layers/boxed.h"
#include "tape/slots.h"
#include "torch/below_autograd.h"

namespace torchreel::graphs {

using tape::Binding;
using tape::kNone;

namespace {

c10::Storage storage_of(at::DataPtr data, size_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(data),
                                                            c10::GetAllocator(c10::DeviceType::CPU), true));
}

// As an op would give it in the mode of the caller: with autograd's keys, or as an inference tensor.
at::Tensor given_on(const c10::Storage& storage, const tape::PlanSlot& slot, int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(slot.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(slot.sizes, slot.strides, offset);
  set_bits(tensor, slot);
  return tensor;
}

// Without the checks of data(): this is asked for each parameter at each call.
const void* data_of(const c10::StorageImpl& storage) {
  return const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks().get();
}

const c10::StorageImpl* storage_impl(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// Of a tensor that has memory, without the checks either, but one: that it may be read at all.
const char* data_of(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  const auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  return static_cast<const char*>(storage->data()) + impl->storage_offset() * static_cast<int64_t>(impl->itemsize());
}

// An input of so many bytes that stays in its place is better read there than copied.
constexpr size_t kLarge = 16 * 1024;

bool lie_as_bound(const Graph& graph, const Tensors& given) {
  const auto& bound_inputs = graph.bound_inputs();
  for (size_t i = 0; i < bound_inputs.size(); i++) {
    if (bound_inputs[i] != nullptr && bound_inputs[i] != given[i].const_data_ptr()) return false;
  }
  return true;
}

size_t bytes_of(const tape::PlanSlot& slot) {
  size_t bytes = c10::elementSize(slot.dtype);
  for (int64_t size : slot.sizes) bytes *= static_cast<size_t>(size);
  return bytes;
}

at::Generator generator() { return at::detail::getDefaultCPUGenerator(); }

at::Tensor bytes_of(const at::Tensor& tensor) {
  const auto& storage = tensor.storage();
  auto copy = at::detail::empty_cpu({static_cast<int64_t>(storage.nbytes())}, at::kByte);
  memcpy(copy.mutable_data_ptr(), storage.data(), storage.nbytes());
  return copy;
}

}  // namespace

Replay::Replay(std::shared_ptr<const StaticProgram> program, ReplayOptions options)
    : program_(std::move(program)), options_(options), lowering_(std::make_shared<Lowering>(options.exact)) {
  static std::atomic<uint64_t> last{0};
  id_ = ++last;
  const auto& tensors = program_->recorded().tensors;
  for (uint32_t slot = 0; slot < tensors.size(); slot++) {
    const auto& tensor = tensors[slot];
    if (!tensor.defined() || program_->storage_of(slot).kind != StorageInfo::kExternal) continue;
    externals_.push_back({tensor.unsafeGetTensorImpl(), storage_impl(tensor), tensor.requires_grad()});
    if (!program_->slot(slot).unplanned) tensor_guards_.add(tensor);
  }
  for (const auto& segment : program_->recorded().segments) {
    std::unordered_map<uint32_t, uint32_t> first;
    auto& given = derivatives_.emplace_back();
    for (uint32_t slot : segment.derivatives) {
      auto place = static_cast<uint32_t>(given.size());
      given.emplace_back(slot, slot == kNone ? place : first.try_emplace(slot, place).first->second);
    }
  }
  for (uint32_t slot : program_->written()) written_.push_back(storage_impl(tensors[slot]));
  for (const auto& external : externals_) {
    bool writes = std::find(written_.begin(), written_.end(), external.storage) != written_.end();
    if (!writes && !external.tensor->is_inference()) only_read_.push_back(external.tensor);
  }
  const auto& inputs = program_->recorded().inputs;
  for (uint32_t i = 0; i < inputs.size(); i++) {
    if (program_->storage_of(inputs[i]).kind == StorageInfo::kExternal) inputs_.external.push_back(i);
    if (program_->slot(inputs[i]).unplanned) {
      inputs_.unplanned.push_back(i);
    } else if (bytes_of(program_->slot(inputs[i])) >= kLarge) {
      inputs_.large.push_back(i);
    }
  }
  has_more_to_write_ =
      !written_.empty() || !program_->written_inputs().empty() || !program_->recorded().bindings.empty();
}

uint64_t Replay::writes_of_others() const {
  uint64_t count = 0;  // versions only grow
  for (const auto* tensor : only_read_) count += tensor->version_counter().current_version();
  return count;
}

bool Replay::is_in_place(const Tensors& given) const {
  if (!tensor_guards_.hold()) return false;
  if (grad) {
    for (const auto& external : externals_) {
      if (external.tensor->requires_grad() != external.requires_grad) return false;
    }
  }
  for (const auto& [owner, gradient] : program_->recorded().held_gradients) {
    if (!owner.grad().is_same(gradient)) return false;
  }
  const auto& inputs = program_->recorded().inputs;
  for (uint32_t i : inputs_.external) {
    const auto& info = program_->storage_of(inputs[i]);
    if (info.unplanned && !given[i].is_same(program_->tensor(inputs[i]))) return false;
    if (info.unplanned) continue;
    if (storage_impl(given[i]) != info.memory.unsafeGetStorageImpl()) return false;
    if (given[i].storage_offset() != program_->slot(inputs[i]).offset) return false;
  }
  return true;
}

// Copies would hide from each other what one writes and another reads.
bool Replay::shares_memory(const Tensors& given) const {
  if (written_.empty() && program_->written_inputs().empty()) return false;
  const auto& inputs = program_->recorded().inputs;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (program_->storage_of(inputs[i]).kind == StorageInfo::kExternal || !given[i].has_storage()) continue;
    const auto* storage = storage_impl(given[i]);
    for (const auto* other : written_) {
      if (storage == other) return true;
    }
    if (program_->written_inputs().empty()) continue;
    for (const auto& external : externals_) {
      if (storage == external.storage) return true;
    }
  }
  return false;
}

// A function that clears gradients lets go of those of its last run, which a run then writes again.
void Replay::release_gradients(const Graph* graph) {
  for (const auto& binding : program_->recorded().bindings) {
    if (binding.kind != Binding::kGradient || !binding.cleared) continue;
    const auto& owner = program_->tensor(binding.owner);
    auto& gradient = owner.mutable_grad();
    if (!gradient.defined()) continue;
    Lease* lease = gradient.has_storage() ? Pool::lease_of(*storage_impl(gradient)) : nullptr;
    bool alone = lease != nullptr && lease->maker == graph && gradient.use_count() == 1 &&
                 gradient.storage().use_count() == 1 && binding.value != kNone;
    if (alone) {
      lease->passing = true;
    } else {
      gradient.reset();
    }
  }
}

Replay::Branches& Replay::branches_on(const std::shared_ptr<Pool>& pool) {
  // Those of a pool that is not left are here as long as the replay.
  if (pool->last_route == id_ && !pool->is_left()) return *static_cast<Branches*>(pool->last_branches);
  std::lock_guard lock(mutex_);
  auto place = std::find_if(branches_.begin(), branches_.end(), [&](const auto& one) { return one->pool == pool; });
  if (place == branches_.end()) {
    std::erase_if(branches_, [](const auto& one) {
      // A backward of its forward may run in another thread right now.
      std::unique_lock idle(one->pool->running, std::try_to_lock);
      return idle.owns_lock() && one->pool->is_left();
    });
    branches_.push_back(std::make_unique<Branches>());
    branches_.back()->pool = pool;
    place = branches_.end() - 1;
  }
  pool->last_route = id_;
  pool->last_branches = place->get();
  return **place;
}

// Other kernels are known than when its graphs were made: they are made anew. What backwards need of them stays.
void Replay::renew(Branches& branches) const {
  uint64_t version = lowering_->version();
  if (branches.version == version) return;
  branches.version = version;
  auto& old = branches.outdated;
  old.insert(old.end(), branches.forward.begin(), branches.forward.end());
  for (const auto& branch : branches.backward) old.push_back(branch.graph);
  if (branches.copying != nullptr) old.push_back(branches.copying);
  branches.forward.clear();
  branches.backward.clear();
  branches.copying = nullptr;
}

// Which inputs a new graph reads where they lie: parameters, outputs of other graphs, and large ones that stay.
std::vector<char*> Replay::to_bind(Branches& branches, const Tensors& given) const {
  const auto& inputs = program_->recorded().inputs;
  std::vector<char*> all(inputs.size(), nullptr);
  if (program_->has_guards() && !program_->written_inputs().empty()) return all;  // what is written can be undone
  std::vector<bool> shared(inputs.size(), false);
  for (size_t i = 0; i < inputs.size(); i++) {
    for (size_t j = 0; j < i; j++) {
      if (program_->slot(inputs[i]).storage == program_->slot(inputs[j]).storage) shared[i] = shared[j] = true;
    }
  }
  for (size_t i = 0; i < inputs.size(); i++) {
    const auto& tensor = given[i];
    const auto& saved = program_->saved();
    if (std::find(saved.begin(), saved.end(), program_->slot(inputs[i]).storage) != saved.end()) continue;
    if (shared[i] || program_->storage_of(inputs[i]).kind != StorageInfo::kInput || tensor.numel() == 0) continue;
    if (program_->slot(inputs[i]).unplanned) continue;
    bool stays =
        tensor.nbytes() >= kLarge && i < branches.last.size() && branches.last[i] == data_of(*storage_impl(tensor));
    bool fixed = i < options_.fixed.size() && options_.fixed[i];
    bool leased = Pool::lease_of(*storage_impl(tensor)) != nullptr;
    if (stays || fixed || leased) all[i] = static_cast<char*>(tensor.mutable_data_ptr());
  }
  return all;
}

// The op of this replay that kept what it was given; kNone if that was one of another.
uint32_t Replay::keeper(const Branches& branches) {
  for (const auto& graph : branches.forward) {
    if (graph->kept_op >= 0) return static_cast<uint32_t>(graph->kept_op);
  }
  for (const auto& branch : branches.backward) {
    if (branch.graph->kept_op >= 0) return static_cast<uint32_t>(branch.graph->kept_op);
  }
  const auto& copying = branches.copying;
  return copying != nullptr && copying->kept_op >= 0 ? static_cast<uint32_t>(copying->kept_op) : kNone;
}

// Gives null where none can run: what is in the way is `kept` by an op, or else held by the caller.
const std::shared_ptr<Graph>* Replay::choose(Branches& branches, const Tensors& given, bool& copies, bool& kept) {
  copies = false;
  kept = false;
  auto& pool = *branches.pool;
  auto& graphs = branches.forward;
  const Lease* held = nullptr;
  size_t usable = 0;
  for (size_t i = 0; i < graphs.size(); i++) {
    if (i == 0) release_gradients(graphs[0].get());
    if (!lie_as_bound(*graphs[i], given)) continue;
    usable++;
    held = pool.first_in(graphs[i]->writes());
    if (held != nullptr && i == 0) {
      release_gradients(nullptr);
      held = pool.first_in(graphs[i]->writes());
    }
    if (held != nullptr) {
      kept = kept || held->output == Lease::kLent;
      continue;
    }
    if (i != 0) std::swap(graphs[0], graphs[i]);
    return &graphs[0];
  }
  if (graphs.empty()) release_gradients(nullptr);
  bool first = usable == 0;
  if (!first && options_.held == Held::kError && !kept) return nullptr;
  // What a forward leaves for its backward stays where it is: such a graph has no copy.
  size_t most = program_->has_backward() ? 8 * options_.branches : options_.branches;
  bool branch = options_.held == Held::kBranch || program_->has_backward() || kept;
  if (first || (branch && graphs.size() < most)) {
    std::vector<Obstacle> obstacles;
    for (const auto& range : pool.leased()) obstacles.push_back({range, INT64_MAX});
    // With too many addresses that inputs lay at, they are copied.
    auto bound_inputs = graphs.size() < most ? to_bind(branches, given) : std::vector<char*>();
    graphs.insert(graphs.begin(), std::make_shared<Graph>(program_, Part::forward(), branches.pool, obstacles, nullptr,
                                                          false, lowering_, std::move(bound_inputs)));
    if (graphs.size() > most + 1) graphs.pop_back();
    return &graphs.front();
  }
  if (program_->has_backward() || kept) return nullptr;
  copies = true;
  const auto& scratch = Pool::scratch_of_this_thread();
  if (branches.copying == nullptr) {
    std::vector<Obstacle> obstacles;
    for (const auto& range : scratch->leased()) obstacles.push_back({range, INT64_MAX});
    branches.copying =
        std::make_shared<Graph>(program_, Part::forward(), scratch, obstacles, nullptr, false, lowering_);
  }
  kept = scratch->first_in(branches.copying->writes()) != nullptr;
  return kept ? nullptr : &branches.copying;
}

void Replay::copy_in(Graph& graph, const Tensors& given) const {
  graph.give(given);
  const auto& places = graph.inputs();
  for (uint32_t i : inputs_.unplanned) {
    if (graph.part().is_forward()) graph.unplanned(program_->recorded().inputs[i]) = given[i];
  }
  for (size_t i = 0; i < places.size(); i++) {
    const auto& place = places[i];
    if (place.address == nullptr) continue;  // bound
    if (place.bytes == sizeof(float)) {
      memcpy(place.address, data_of(given[i]), sizeof(float));  // no call
    } else if (place.bytes > 0) {
      memcpy(place.address, data_of(given[i]), place.bytes);
    } else if (given[i].numel() > 0) {
      place.tensor.copy_(given[i]);
    }
  }
}

void Replay::copy_again(Graph& graph, const std::vector<uint32_t>& inputs, const Tensors& given) const {
  for (size_t i = 0; i < inputs.size(); i++) {
    const auto& place = graph.inputs()[inputs[i]];
    if (place.address == nullptr || given[i].numel() == 0) continue;
    if (place.bytes > 0) {
      memcpy(place.address, data_of(given[i]), place.bytes);
    } else {
      place.tensor.copy_(given[i]);
    }
  }
}

void Replay::keep_for_guard(Branches& here) const {
  here.kept.clear();
  if (!program_->has_guards()) return;
  for (uint32_t slot : program_->written_before_guard()) here.kept.push_back(bytes_of(program_->tensor(slot)));
  if (program_->draws_before_guard()) here.drawn = generator().get_state();
}

void Replay::undo(Branches& here) const {
  for (size_t i = 0; i < here.kept.size(); i++) {
    const auto& storage = program_->tensor(program_->written_before_guard()[i]).storage();
    memcpy(storage.mutable_data(), here.kept[i].const_data_ptr(), storage.nbytes());
  }
  if (program_->draws_before_guard()) generator().set_state(here.drawn);
}

// Tensors of one storage share it here as well.
c10::Storage Replay::storage_for(Graph& graph, uint32_t storage, bool copies, Handed& known) {
  for (const auto& [other, memory] : known) {
    if (other == storage) return memory;
  }
  const auto& outputs = graph.outputs();
  for (uint32_t i = 0; i < outputs.size(); i++) {
    if (outputs[i].storage != storage) continue;
    size_t bytes = program_->storages()[storage].extent;
    if (copies) {
      auto data = c10::GetAllocator(c10::DeviceType::CPU)->allocate(bytes);
      memcpy(data.get(), graph.pool().at(outputs[i].range.begin), bytes);
      known.emplace_back(storage, storage_of(std::move(data), bytes));
    } else {
      auto& pool = graph.pool();
      Lease* lease = pool.lease(outputs[i].range, &graph, i);
      known.emplace_back(storage, storage_of(pool.data(lease), bytes));
      lease->storage = known.back().second.unsafeGetStorageImpl();
      lease->over = options_.over;
    }
    return known.back().second;
  }
  throw std::runtime_error("An output of the graph lies nowhere.");
}

at::Tensor Replay::output(Graph& graph, uint32_t slot, const Tensors& given, bool copies, Handed& known) {
  if (slot == kNone) return at::Tensor();
  const auto& record = program_->slot(slot);
  if (record.unplanned) return graph.tensor(slot);
  const auto& info = program_->storage_of(slot);
  if (info.kind == StorageInfo::kInput || info.kind == StorageInfo::kGradient) {
    const auto& inputs = info.kind == StorageInfo::kInput ? program_->recorded().inputs : graph.given();
    for (size_t i = 0; i < inputs.size(); i++) {
      if (inputs[i] == slot) return given[i];
    }
    for (size_t i = 0; i < inputs.size(); i++) {
      if (inputs[i] == kNone || program_->slot(inputs[i]).storage != record.storage) continue;
      int64_t distance = record.offset * static_cast<int64_t>(c10::elementSize(record.dtype)) -
                         program_->slot(inputs[i]).offset * static_cast<int64_t>(given[i].element_size());
      int64_t from = given[i].storage_offset() * static_cast<int64_t>(given[i].element_size()) + distance;
      return given_on(given[i].storage(), record, from / static_cast<int64_t>(c10::elementSize(record.dtype)));
    }
  }
  if (info.kind == StorageInfo::kExternal || info.kind == StorageInfo::kConstant) {
    if (program_->tensor(slot).defined()) return program_->tensor(slot);
    return given_on(info.memory, record, record.offset);
  }
  for (const auto& place : graph.outputs()) {
    if (place.storage != record.storage) continue;
    return given_on(storage_for(graph, record.storage, copies, known), record, record.offset);
  }
  return graph.tensor(slot).clone();  // of a backward: what the forward left
}

// Of what was written, as often as eager does. Tensors that share a counter find it where it was, each of them.
void Replay::count_versions(const Tensors& given) const {
  thread_local std::vector<std::pair<c10::TensorImpl*, uint32_t>> wanted;
  wanted.clear();
  const auto& all = program_->recorded();
  auto want = [&](const at::Tensor& tensor, uint32_t slot) {
    auto* impl = tensor.unsafeGetTensorImpl();
    if (all.bumps[slot] == 0 || impl->is_inference()) return;
    wanted.emplace_back(impl, impl->version_counter().current_version() + all.bumps[slot]);
  };
  for (uint32_t place : program_->written_inputs()) want(given[place], all.inputs[place]);
  for (uint32_t slot : program_->written()) want(program_->tensor(slot), slot);
  for (auto [impl, version] : wanted) {
    while (impl->version_counter().current_version() < version) impl->bump_version();
  }
}

void Replay::finish(Graph& graph, const Tensors& given, bool copies, Handed& known) {
  for (uint32_t place : program_->written_inputs()) {
    const auto& input = given[place];
    const auto& ours = graph.inputs()[place];
    if (ours.address == nullptr) {
      // It was written where it lies.
    } else if (input.is_contiguous()) {
      memcpy(input.mutable_data_ptr(), ours.address, input.nbytes());
    } else {
      input.copy_(ours.tensor);
    }
  }
  count_versions(given);
  for (const auto& binding : program_->recorded().bindings) {
    auto owner = program_->tensor(binding.owner);
    if (!owner.defined()) {
      const auto& inputs = program_->recorded().inputs;
      for (size_t i = 0; i < inputs.size(); i++) {
        if (inputs[i] == binding.owner) owner = given[i];
      }
    }
    if (binding.kind == Binding::kCopy) {
      owner.copy_(graph.tensor(binding.value));
      continue;
    }
    auto& gradient = owner.mutable_grad();
    Lease* lease = gradient.defined() && gradient.has_storage() ? Pool::lease_of(*storage_impl(gradient)) : nullptr;
    if (lease != nullptr && lease->passing) {
      lease->passing = false;  // the same tensor, written anew
      continue;
    }
    gradient = binding.value == kNone ? at::Tensor() : output(graph, binding.value, given, copies, known);
  }
}

// A recording that ran in this step already begins another one.
void Replay::visit(Graph& graph) {
  auto& pool = graph.pool();
  if (graph.part().is_forward()) {
    if (std::find(pool.path.begin(), pool.path.end(), this) != pool.path.end()) {
      pool.position = 0;
      pool.path.clear();
    }
    pool.path.push_back(this);
  }
  for (auto& [parent, count] : graph.parents) {
    if (parent != pool.position) continue;
    count++;
    pool.position = graph.id;
    return;
  }
  graph.parents.emplace_back(pool.position, 1);
  pool.position = graph.id;
}

Outcome Replay::run(const Tensors& given, Tensors& results, Report& report) {
  if (!is_in_place(given)) return Outcome::kMoved;
  if (shares_memory(given)) return Outcome::kAliased;
  for (const auto& binding : program_->recorded().bindings) {
    if (binding.kind != Binding::kGradient || binding.cleared) continue;
    if (program_->tensor(binding.owner).defined() && program_->tensor(binding.owner).grad().defined()) {
      return Outcome::kMoved;  // it would be added to
    }
  }
  bool copies = false;
  const auto& pool = Pool::of_this_thread();
  std::lock_guard running(pool->running);
  auto& here = branches_on(pool);
  renew(here);
  bool kept = false;
  const auto* chosen = choose(here, given, copies, kept);
  if (chosen == nullptr) {
    if (kept) report.op = keeper(here);
    return kept ? Outcome::kKept : Outcome::kHeld;
  }
  Graph* graph = chosen->get();
  if (report.wants_graph) report.graph = *chosen;
  if (here.last.size() != given.size()) here.last.resize(given.size());
  for (uint32_t i : inputs_.large) here.last[i] = data_of(*storage_impl(given[i]));
  {
    BelowAutograd below_autograd;
    keep_for_guard(here);
    copy_in(*graph, given);
    try {
      RECORD_FUNCTION(label, {});  // who listens hears of the graph, not of its ops
      graph->run(options_.cores);
    } catch (const GuardFailure& failure) {
      report.failure = "was " + failure.recorded + " and is " + failure.now;
      report.op = failure.op;
    } catch (const ShapeChange& change) {
      report.failure = change.what();
      report.op = graph->failed_op();
    } catch (...) {
      report.op = graph->failed_op();
      graph->pool().stop_passing();
      throw;
    }
    if (!report.failure.empty()) {
      graph->forget_unplanned();
      undo(here);
      release_gradients(nullptr);
      return Outcome::kGuard;
    }
  }
  hits++;
  visit(*graph);
  Handed known;
  if (has_more_to_write_) {
    BelowAutograd below_autograd;
    finish(*graph, given, copies, known);
  }
  results.clear();
  for (uint32_t slot : program_->recorded().outputs) results.push_back(output(*graph, slot, given, copies, known));
  graph->forget_unplanned();
  if (report.wants_graph) report.saved = lease_saved(*graph);  // before anybody can give the pool's memory back
  return Outcome::kDone;
}

std::vector<Lease*> Replay::lease_saved(Graph& graph) {
  std::vector<Lease*> all;
  for (const auto& range : graph.saved()) all.push_back(graph.pool().lease(range, &graph, 0));
  return all;
}

void Replay::run_backward(Graph& forward, size_t segment, const std::vector<Lease*>& saved, const Tensors& gradients,
                          bool keeps, Tensors& results) {
  auto& pool = forward.pool();
  std::lock_guard running(pool.running);
  auto& here = branches_on(pool.shared_from_this());
  renew(here);
  for (Lease* lease : saved) lease->passing = !keeps;
  std::shared_ptr<Graph> graph;
  for (const auto& branch : here.backward) {
    if (branch.forward != forward.id || branch.segment != segment || branch.keeps != keeps) continue;
    if (pool.first_in(branch.graph->writes()) != nullptr) continue;
    graph = branch.graph;
    break;
  }
  if (graph == nullptr) {
    std::vector<Obstacle> obstacles;
    for (const auto& range : pool.leased()) obstacles.push_back({range, INT64_MAX});
    graph = std::make_shared<Graph>(program_, Part::backward(segment), pool.shared_from_this(), obstacles, &forward,
                                    keeps, lowering_);
    here.backward.insert(here.backward.begin(), {forward.id, segment, keeps, graph});
    if (here.backward.size() > 8 * options_.branches * derivatives_.size()) here.backward.pop_back();
  }
  copy_in(*graph, gradients);
  graph->run(options_.cores);
  visit(*graph);
  Handed known;
  results.clear();
  const auto& derivatives = derivatives_[segment];
  for (size_t i = 0; i < derivatives.size(); i++) {
    auto [slot, same] = derivatives[i];
    results.push_back(same < i ? results[same] : output(*graph, slot, gradients, false, known));
  }
  graph->forget_unplanned();
}

void Replay::make_first(const Tensors& given) {
  const auto& pool = Pool::of_this_thread();
  std::lock_guard running(pool->running);
  auto& here = branches_on(pool);
  here.version = lowering_->version();
  if (!here.forward.empty()) return;
  std::vector<Obstacle> obstacles;
  for (const auto& range : pool->leased()) obstacles.push_back({range, INT64_MAX});
  here.forward.push_back(std::make_shared<Graph>(program_, Part::forward(), pool, obstacles, nullptr, false, lowering_,
                                                 to_bind(here, given)));
  if (!program_->has_backward()) return;
  std::vector<Obstacle> with_outputs = obstacles;
  for (const auto& output : here.forward[0]->outputs()) with_outputs.push_back({output.range, INT64_MAX});
  for (size_t i = 0; i < derivatives_.size(); i++) {
    bool keeps = i + 1 < derivatives_.size();  // what the segments after it read
    auto backward = std::make_shared<Graph>(program_, Part::backward(i), pool, with_outputs, here.forward[0].get(),
                                            keeps, lowering_);
    here.backward.push_back({here.forward[0]->id, i, keeps, backward});
    for (const auto& output : backward->outputs()) with_outputs.push_back({output.range, INT64_MAX});
  }
}

std::vector<std::shared_ptr<Graph>> Replay::graphs() const {
  std::vector<std::shared_ptr<Graph>> all;
  std::lock_guard lock(mutex_);
  for (const auto& branches : branches_) {
    all.insert(all.end(), branches->forward.begin(), branches->forward.end());
    if (branches->copying != nullptr) all.push_back(branches->copying);
    for (const auto& branch : branches->backward) all.push_back(branch.graph);
  }
  return all;
}

std::vector<Replay::Timed> Replay::timed_run(const Tensors& given) {
  if (timed_ == nullptr || timed_version_ != lowering_->version()) {
    timed_version_ = lowering_->version();
    timed_ = std::make_shared<Graph>(program_, Part::forward(), std::make_shared<Pool>(), std::vector<Obstacle>(),
                                     nullptr, false, lowering_);
  }
  BelowAutograd below_autograd;
  copy_in(*timed_, given);
  auto times = timed_->timed_run();
  auto timed = timed_;
  if (timed->kept_op >= 0) timed_ = nullptr;  // the next one has a pool of its own
  std::vector<Timed> all;
  for (size_t i = 0; i < times.size(); i++) all.push_back({timed->op_of(i), timed->kernel(i).layer(), times[i]});
  return all;
}

}  // namespace torchreel::graphs
