#include "graphs/run/graph.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "graphs/inductor/generated.h"
#include "graphs/kernels/layers/boxed.h"
#include "graphs/run/numbers.h"
#include "graphs/run/unplanned.h"
#include "tape/slots.h"
#include "torch/one_thread.h"

namespace torchreel::graphs {

using tape::Gave;
using tape::Given;
using tape::kNone;
using tape::Step;

namespace {

constexpr int64_t kForever = INT64_MAX;

size_t dense_bytes(const tape::PlanSlot& slot) {
  size_t count = c10::elementSize(slot.dtype);
  for (int64_t size : slot.sizes) count *= static_cast<size_t>(size);
  return count;
}

// Whether it may want memory of its own that counts.
bool moves_much(const KernelCall& call) {
  constexpr size_t kMuch = 1 << 16;
  auto much = [](const at::Tensor& tensor) { return tensor.defined() && tensor.nbytes() >= kMuch; };
  auto argument = [&](const c10::IValue& value) { return value.isTensor() && much(value.toTensor()); };
  return std::any_of(call.results.begin(), call.results.end(), much) ||
         std::any_of(call.arguments.begin(), call.arguments.end(), argument);
}

}  // namespace

c10::Storage storage_at(char* data, size_t bytes) {
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(data, c10::Device(c10::DeviceType::CPU)),
                      nullptr, false);
}

Graph::Graph(std::shared_ptr<const StaticProgram> program, Part part, std::shared_ptr<Pool> pool,
             const std::vector<Obstacle>& obstacles, const Graph* forward, bool keeps,
             const std::shared_ptr<Lowering>& lowering, std::vector<char*> bound_inputs)
    : program_(std::move(program)),
      part_(part),
      pool_(std::move(pool)),
      replacing_(lowering->of(program_->begin(part), program_->end(part))),
      memory_(program_->storages().size()),
      ranges_(program_->storages().size()),
      tensors_(program_->recorded().slots.size()),
      bound_inputs_(std::move(bound_inputs)),
      numbers_(program_->ops(), 0),
      lasts_(program_->storages().size(), kForever),
      exact_(lowering->exact()) {
  static std::atomic<uint32_t> last{0};
  id = ++last;
  Stays stays;
  sequence_.bytes = place(obstacles, forward, keeps, stays);
  sequence_.writes = writes_;
  pool_->reach(sequence_.bytes);
  make_unplanned();
  make_inputs();
  std::vector<Placed> placed;
  for (size_t i = program_->begin(part_); i < program_->end(part_); i++) {
    const auto* replaced = replacing_.at(i);
    placed.push_back(replaced == nullptr ? bind(i, lasts_, &stays) : bind_replaced(*replaced, lowering));
    if (replaced != nullptr) i = static_cast<size_t>(replaced->cluster->end) - 1;
  }
  if (!replacing_.all().empty()) autotuner_.end();  // a kernel for many ops does not part
  fuse(placed);
  sequence_.add(std::move(placed));
}

void Sequence::add(std::vector<Placed> placed) {
  for (auto& one : placed) {
    kernels.push_back(std::move(one.kernel));
    ops.push_back(one.op);
    steps.push_back(static_cast<uint32_t>(one.step));
  }
}

size_t Sequence::beside() const {
  size_t count = 0;
  if (!two_cores) return 0;
  for (const auto& piece : pieces) count += piece.lanes == nullptr ? 0 : piece.lanes->size();
  return count;
}

// Gives every storage of this part its memory, and returns how far into the pool it reaches.
size_t Graph::place(const std::vector<Obstacle>& obstacles, const Graph* forward, bool keeps, Stays& stays) {
  const auto& storages = program_->storages();
  int64_t begin = static_cast<int64_t>(program_->begin(part_)), end = static_cast<int64_t>(program_->end(part_));
  bool is_forward = part_.is_forward();
  std::vector<bool> handed_out(storages.size(), false), saved(storages.size(), false);
  auto hand_out = [&](uint32_t slot) {
    if (slot != kNone) handed_out[program_->slot(slot).storage] = true;
  };
  const auto& all = program_->recorded();
  for (uint32_t slot : is_forward ? all.outputs : all.segments[part_.segment()].derivatives) hand_out(slot);
  if (is_forward) {
    for (const auto& binding : all.bindings) hand_out(binding.value);
  }
  for (uint32_t storage : program_->saved()) saved[storage] = true;

  const auto& inputs = given();
  std::vector<bool> is_given(storages.size(), false);
  for (uint32_t slot : inputs) {
    if (slot != kNone) is_given[program_->slot(slot).storage] = true;
  }
  for (size_t i = 0; i < bound_inputs_.size(); i++) {
    if (bound_inputs_[i] == nullptr) continue;
    const auto& slot = program_->slot(inputs[i]);
    char* base = bound_inputs_[i] - static_cast<size_t>(slot.offset) * c10::elementSize(slot.dtype);
    memory_[slot.storage] = storage_at(base, storages[slot.storage].extent);
  }

  auto lent_out = lent();
  std::vector<Obstacle> in_the_way = obstacles;
  std::vector<Need> needs;
  std::vector<uint32_t> needers;
  auto elided = replacing_.elided(*program_);
  for (uint32_t storage = 0; storage < storages.size(); storage++) {
    const auto& info = storages[storage];
    if (info.unplanned) continue;
    if (info.kind == StorageInfo::kExternal || info.kind == StorageInfo::kConstant) {
      memory_[storage] = info.memory;
      continue;
    }
    if (!is_forward && saved[storage]) {
      ranges_[storage] = forward->ranges_[storage];
      memory_[storage] = forward->memory_[storage];
      in_the_way.push_back({ranges_[storage], keeps || lent_out[storage] ? kForever : replacing_.last(info.last)});
      continue;
    }
    if (memory_[storage] || elided[storage]) continue;  // bound, or nowhere
    bool input = is_given[storage] && info.kind == (is_forward ? StorageInfo::kInput : StorageInfo::kGradient);
    bool used = info.last >= begin && info.first >= 0 && info.first < end;
    bool here = input || (info.kind == StorageInfo::kMade && used && (info.first >= begin));
    bool kept = info.kind == StorageInfo::kMade && (handed_out[storage] || saved[storage]);
    if (info.kind == StorageInfo::kMade && !used && handed_out[storage]) here = info.first < 0;
    if (!here) continue;
    int64_t first = input ? begin - 1 : replacing_.first(std::max(info.first, begin));
    // What is written to an input is copied back when all is done.
    bool stays_on = kept || saved[storage] || (input && info.written) || lent_out[storage];
    int64_t last = stays_on ? kForever : std::max(first, std::min(info.last, end));
    size_t bytes = input ? info.extent - std::min(info.extent, info.lowest) + Pool::kAlignment : info.extent;
    if (info.kind == StorageInfo::kMade) lasts_[storage] = last;
    needs.push_back({bytes, Life::of(first, replacing_.last(last))});
    needers.push_back(storage);
  }
  for (const auto& [cluster, used] : replacing_.all()) {
    for (size_t bytes : cluster->replacement->generated->scratch) {
      needs.push_back({bytes, Life::of(cluster->begin, cluster->end - 1)});
    }
  }
  size_t reach = plan_memory(needs, in_the_way, end);
  for (const auto& obstacle : in_the_way) stays.push_back({obstacle.range, INT64_MIN, obstacle.last});
  size_t next = needers.size();
  for (const auto& [cluster, used] : replacing_.all()) {
    auto& places = scratch_.emplace_back();
    for (size_t i = 0; i < cluster->replacement->generated->scratch.size(); i++, next++) {
      places.push_back(pool_->at(needs[next].offset));
      writes_.push_back({needs[next].offset, needs[next].offset + needs[next].bytes});
      stays.push_back({writes_.back(), cluster->begin, cluster->end - 1});
    }
  }
  for (size_t i = 0; i < needers.size(); i++) {
    uint32_t storage = needers[i];
    const auto& info = storages[storage];
    ranges_[storage] = {needs[i].offset, needs[i].offset + needs[i].bytes};
    writes_.push_back(ranges_[storage]);
    stays.push_back({ranges_[storage], needs[i].life.first[0], needs[i].life.end()});
    char* base = pool_->at(needs[i].offset);
    bool input = info.kind == StorageInfo::kInput || info.kind == StorageInfo::kGradient;
    // Views of an input count from the beginning of its storage, of which only what they see is copied.
    if (input) base -= info.lowest - info.lowest % Pool::kAlignment;
    memory_[storage] = storage_at(base, info.extent);
    if (handed_out[storage] && !input) outputs_.push_back({storage, ranges_[storage]});
  }
  if (is_forward) {
    for (uint32_t storage : program_->saved()) saved_.push_back(ranges_[storage]);
  } else if (!keeps) {
    for (uint32_t storage : program_->saved()) writes_.push_back(ranges_[storage]);
  }
  writes_ = merged(std::move(writes_));
  std::sort(stays.begin(), stays.end(), [](const Stay& a, const Stay& b) { return a.range.begin < b.range.begin; });
  return reach;
}

// The first input on a storage; -1 if there is none.
int64_t Graph::input_on(uint32_t storage) const {
  const auto& slots = given();
  for (size_t i = 0; i < slots.size(); i++) {
    if (slots[i] != kNone && program_->slot(slots[i]).storage == storage) return static_cast<int64_t>(i);
  }
  return -1;
}

std::vector<bool> Graph::lent() const {
  std::vector<bool> all(program_->storages().size(), false);
  for (size_t i = program_->begin(part_); i < program_->end(part_); i++) {
    const auto& step = program_->steps()[i];
    if (!is_foreign(step.op->name)) continue;
    for (const auto& given : step.given) {
      for (uint32_t slot : given.slots) {
        if (slot != kNone) all[program_->slot(slot).storage] = true;
      }
    }
  }
  return all;
}

std::unique_ptr<Loans> Graph::loans_for(const Step& step) {
  if (!is_foreign(step.op->name)) return nullptr;
  std::vector<Loan> loans;
  for (const auto& given_to_op : step.given) {
    for (uint32_t slot : given_to_op.slots) {
      if (slot == kNone || program_->slot(slot).unplanned) continue;
      uint32_t storage = program_->slot(slot).storage;
      const auto& info = program_->storages()[storage];
      if (info.kind == StorageInfo::kExternal || info.kind == StorageInfo::kConstant) continue;
      Loan loan{memory_[storage].unsafeGetStorageImpl(), ranges_[storage]};
      bool of_caller = part_.is_forward() && info.kind == StorageInfo::kInput;
      int64_t input = of_caller ? input_on(storage) : -1;
      bool is_bound =
          input >= 0 && static_cast<size_t>(input) < bound_inputs_.size() && bound_inputs_[input] != nullptr;
      if (input >= 0 && (is_bound || !info.written)) {
        const auto& record = program_->slot(given()[input]);
        loan.input = input;
        loan.shift = record.offset * static_cast<int64_t>(c10::elementSize(record.dtype));
      }
      loans.push_back(loan);
    }
  }
  return std::make_unique<Loans>(pool_, std::move(loans), given_now_, kept_op, step.index);
}

void Graph::make_unplanned() {
  const auto& storages = program_->storages();
  if (std::none_of(storages.begin(), storages.end(), [](const auto& info) { return info.unplanned; })) return;
  unplanned_.resize(tensors_.size());
  forget_unplanned();
}

void Graph::forget_unplanned() {
  for (uint32_t slot = 0; slot < unplanned_.size(); slot++) {
    if (program_->slot(slot).unplanned) unplanned_[slot] = program_->tensor(slot);
  }
}

const at::Tensor& Graph::tensor(uint32_t slot) {
  if (program_->slot(slot).unplanned) return unplanned_[slot];
  auto& tensor = tensors_[slot];
  if (tensor.defined()) return tensor;
  const auto& given = program_->tensor(slot);
  if (!given.defined() && !memory_[program_->slot(slot).storage]) {
    throw std::runtime_error("An op uses a tensor that nothing made.");
  }
  if (given.defined() && given.unsafeGetTensorImpl()->is_wrapped_number()) {
    tensor = given;
  } else {
    tensor = tensor_on(memory_[program_->slot(slot).storage], program_->slot(slot));
  }
  return tensor;
}

const std::vector<uint32_t>& Graph::given() const {
  const auto& all = program_->recorded();
  return part_.is_forward() ? all.inputs : all.segments[part_.segment()].gradients;
}

void Graph::make_inputs() {
  const auto& all = program_->recorded();
  const auto& slots = given();
  for (size_t i = 0; i < slots.size(); i++) {
    uint32_t slot = slots[i];
    bool is_bound = i < bound_inputs_.size() && bound_inputs_[i] != nullptr;
    auto kind = slot == kNone || is_bound ? StorageInfo::kConstant : program_->storage_of(slot).kind;
    if ((kind != StorageInfo::kInput && kind != StorageInfo::kGradient) || program_->slot(slot).unplanned) {
      inputs_.push_back({at::Tensor(), nullptr, 0});
      continue;
    }
    const auto& record = program_->slot(slot);
    const auto& wanted = tensor(slot);
    size_t from = static_cast<size_t>(record.offset) * c10::elementSize(record.dtype);
    size_t bytes = record.extent - std::min(from, record.extent);
    // Views of it may see what lies between its elements.
    bool alone = true;
    for (const auto& other : all.slots) alone = alone && (other.storage != record.storage || &other == &record);
    if (alone && bytes > 2 * dense_bytes(record) + Pool::kAlignment) bytes = 0;
    inputs_.push_back({wanted, static_cast<char*>(wanted.mutable_data_ptr()), bytes});
  }
}

c10::IValue Graph::argument(const Given& given, bool& fixed) {
  auto constant = [&](uint32_t slot) { return program_->storage_of(slot).kind == StorageInfo::kConstant; };
  fixed = !given.slots.empty();
  for (uint32_t slot : given.slots) fixed = fixed && (slot == kNone || constant(slot));
  switch (given.kind) {
    case Given::kSlot: return tensor(given.slots[0]);
    case Given::kSlots: {
      c10::List<at::Tensor> list;
      for (uint32_t slot : given.slots) list.push_back(slot == kNone ? at::Tensor() : tensor(slot));
      if (given.nested) return c10::List<c10::List<at::Tensor>>({list});
      return list;
    }
    case Given::kOptionalSlots: {
      c10::List<std::optional<at::Tensor>> list;
      for (uint32_t slot : given.slots) {
        list.push_back(slot == kNone ? std::nullopt : std::optional<at::Tensor>(tensor(slot)));
      }
      return list;
    }
    default: return given.constant;
  }
}

Idle Graph::idle_at(int64_t step, const Stays& stays) const {
  auto range = largest_idle(writes_, stays, step);
  return {pool_->at(range.begin), range.end - range.begin};
}

KernelCall Graph::call_of(const Step& step) {
  KernelCall call;
  call.op = step.op;
  call.grad = step.grad;
  call.exact = exact_;
  for (const auto& given : step.given) {
    bool fixed = false;
    call.arguments.push_back(argument(given, fixed));
    call.fixed.push_back(fixed);
  }
  for (const auto& gave : step.gave) {
    if (gave.kind != Gave::kSlot && gave.kind != Gave::kSlots) {
      call.results.emplace_back();
      continue;
    }
    for (uint32_t slot : gave.slots) call.results.push_back(slot == kNone ? at::Tensor() : tensor(slot));
  }
  return call;
}

Placed Graph::bind(size_t place, const std::vector<int64_t>& lasts, const Stays* stays) {
  const Step& step = program_->steps()[place];
  Placed placed{nullptr, step.index, static_cast<int64_t>(place), {}, {}};
  KernelCall call = call_of(step);
  bool formulas = false, number = false;
  for (const auto& given : step.given) {
    formulas = formulas || given.kind == Given::kFormula || given.kind == Given::kFormulaTensor ||
               given.kind == Given::kFormulas;
  }
  for (const auto& gave : step.gave) {
    number = number || gave.kind == Gave::kNumber;
    if (gave.kind != Gave::kSlot && gave.kind != Gave::kSlots) placed.lasts.push_back(kForever);
    for (uint32_t slot : gave.slots) {
      placed.lasts.push_back(slot == kNone ? kForever : lasts[program_->slot(slot).storage]);
    }
  }
  bool unplanned = program_->is_unplanned(step);
  if (stays != nullptr && !unplanned && moves_much(call)) call.idle = idle_at(placed.step, *stays);
  auto loans = loans_for(step);
  if (unplanned) {
    placed.kernel = unplanned_kernel(call, *program_, place, unplanned_, std::move(loans));
  } else if (number) {
    placed.kernel = number_kernel(call, step, numbers_, std::move(loans));
  } else if (formulas) {
    placed.kernel = formula_kernel(call, step, numbers_, std::move(loans));
  } else if (loans != nullptr) {
    placed.kernel = prepare_boxed(call, std::move(loans));
  } else if (step.op->varying || has_bits(call)) {
    placed.kernel = prepare_boxed(call);  // which looks at each run how much it gave
  } else {
    placed.kernel = prepare(call);
    placed.call = std::move(call);
  }
  return placed;
}

std::unique_ptr<Kernel> Graph::bind_generated(const Cluster& cluster) {
  size_t place = 0;
  while (replacing_.all()[place].cluster.get() != &cluster) place++;
  const auto& generated = cluster.replacement->generated;
  std::vector<void*> pointers;
  for (const auto& pointer : generated->pointers) {
    char* base = pointer.slot < 0 ? scratch_[place][pointer.scratch]
                                  : static_cast<char*>(tensor(cluster.slots[pointer.slot]).mutable_data_ptr());
    pointers.push_back(base + pointer.offset);
  }
  return generated_kernel(generated, std::move(pointers));
}

Placed Graph::bind_replaced(const Replaced& replaced, const std::shared_ptr<Lowering>& lowering) {
  const auto& cluster = *replaced.cluster;
  auto generated = bind_generated(cluster);
  Placed placed{nullptr, program_->steps()[cluster.begin].index, cluster.begin, {}, {}};
  if (replaced.used) {
    placed.kernel = std::move(generated);
    return placed;
  }
  std::vector<Placed> alone;
  for (int64_t i = cluster.begin; i < cluster.end; i++) alone.push_back(bind(i, lasts_));
  fuse(alone);
  std::vector<std::unique_ptr<Kernel>> exact;
  for (auto& one : alone) exact.push_back(std::move(one.kernel));
  TrialMemory memory;
  for (uint32_t slot : cluster.outputs) memory.outputs.push_back(tensor(slot));
  for (uint32_t slot : cluster.written) memory.written.push_back(tensor(slot));
  placed.kernel = trial_kernel(lowering, replaced.cluster, std::move(exact), std::move(generated), std::move(memory));
  return placed;
}

size_t Graph::output_bytes() const {
  size_t bytes = 0;
  for (const auto& output : outputs_) bytes += output.range.end - output.range.begin;
  for (const auto& range : saved_) bytes += range.end - range.begin;
  return bytes;
}

uint32_t Graph::failed_op() const {
  const auto& ops = running_->ops;
  return ops.empty() ? 0 : ops[std::min(current_, ops.size() - 1)];
}

void Graph::run(int cores) {
  hits++;
  if (cores > 1 && !autotuner_.is_over()) {
    run_and_learn();
  } else {
    run(sequence_);
  }
}

void Graph::run(Sequence& sequence) {
  if (sequence.bytes > pool_->reached()) pool_->reach(sequence.bytes);  // its memory was given back meanwhile
  running_ = &sequence;
  current_ = 0;
  auto run_until = [&](size_t end) {
    for (; current_ < end; current_++) sequence.kernels[current_]->run();
  };
  for (const auto& piece : sequence.pieces) {
    if (piece.lanes != nullptr) {
      piece.lanes->run(current_, sequence.two_cores);
      current_ = piece.end;
    } else if (piece.one_thread) {
      OneThread guard;
      run_until(piece.end);
    } else {
      run_until(piece.end);
    }
  }
  run_until(sequence.kernels.size());
}

std::vector<double> Graph::timed_run() {
  std::vector<double> times;
  running_ = &sequence_;
  for (current_ = 0; current_ < sequence_.kernels.size(); current_++) {
    auto start = std::chrono::steady_clock::now();
    sequence_.kernels[current_]->run();
    times.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
  }
  return times;
}

}  // namespace torchreel::graphs
