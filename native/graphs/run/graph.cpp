#include "graphs/run/graph.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "graphs/inductor/generated.h"
#include "graphs/kernels/layers/boxed.h"
#include "graphs/run/numbers.h"
#include "graphs/run/unplanned.h"
#include "tape/capture/slots.h"
#include "torch/one_thread.h"

namespace torchreel::graphs {

using tape::Gave;
using tape::Given;
using tape::kNone;
using tape::Step;

namespace {

size_t dense_bytes(const tape::PlanSlot& slot) {
  size_t count = c10::elementSize(slot.dtype);
  for (int64_t size : slot.sizes) count *= static_cast<size_t>(size);
  return count;
}

// Whether it may allocate temporaries of some size.
bool moves_much(const KernelCall& call) {
  constexpr size_t kMuch = 1 << 16;
  auto much = [](const at::Tensor& tensor) { return tensor.defined() && tensor.nbytes() >= kMuch; };
  auto argument = [&](const c10::IValue& value) { return value.isTensor() && much(value.toTensor()); };
  return std::any_of(call.results.begin(), call.results.end(), much) ||
         std::any_of(call.arguments.begin(), call.arguments.end(), argument);
}

}  // namespace

Graph::Graph(std::shared_ptr<const StaticProgram> program, Part part, std::shared_ptr<Pool> pool,
             const std::vector<Obstacle>& obstacles, const Graph* forward, bool keeps,
             const std::shared_ptr<Lowering>& lowering, std::vector<char*> bound_inputs)
    : program_(std::move(program)),
      part_(part),
      pool_(std::move(pool)),
      replacing_(lowering->of(program_->begin(part), program_->end(part))),
      tensors_(program_->recorded().slots.size()),
      bound_inputs_(std::move(bound_inputs)),
      numbers_(program_->ops(), 0),
      exact_(lowering->exact()) {
  static std::atomic<uint32_t> last{0};
  id = ++last;
  Stays stays;
  place(obstacles, forward, keeps, stays);
  make_unplanned();
  make_inputs();
  std::vector<BoundKernel> bound;
  for (size_t i = program_->begin(part_); i < program_->end(part_); i++) {
    const auto* replaced = replacing_.at(i);
    bound.push_back(replaced == nullptr ? bind(i, memory_.lasts, &stays) : bind_replaced(*replaced, lowering));
    if (replaced != nullptr) i = static_cast<size_t>(replaced->cluster->end) - 1;
  }
  if (!replacing_.all().empty()) autotuner_.end();  // a generated kernel for many ops cannot be split among cores
  fuse(bound);
  sequence_.add(std::move(bound));
}

void Sequence::add(std::vector<BoundKernel> bound) {
  for (auto& one : bound) {
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

void Graph::place(const std::vector<Obstacle>& obstacles, const Graph* forward, bool keeps, Stays& stays) {
  auto lent_storages = lent();
  StoragePlacement placement(*program_, part_, *pool_, replacing_, given(), bound_inputs_, lent_storages);
  if (!part_.is_forward()) placement.set_forward(forward->memory_, keeps);
  memory_ = placement.place(obstacles, stays);
  sequence_.bytes = memory_.bytes;
  sequence_.writes = memory_.writes;
  pool_->reach(sequence_.bytes);
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
      Loan loan{memory_.storages[storage].unsafeGetStorageImpl(), memory_.ranges[storage]};
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
  if (!given.defined() && !memory_.storages[program_->slot(slot).storage]) {
    throw std::runtime_error("An op uses a tensor that nothing made.");
  }
  if (given.defined() && given.unsafeGetTensorImpl()->is_wrapped_number()) {
    tensor = given;
  } else {
    tensor = tensor_on(memory_.storages[program_->slot(slot).storage], program_->slot(slot));
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
    // A view of the input may see bytes between its elements.
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
  auto range = largest_idle(memory_.writes, stays, step);
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

// Null for a call that every layer may take.
std::unique_ptr<Kernel> Graph::kernel_for(const KernelCall& call, const Step& step, size_t index) {
  auto is_formula = [](const Given& given) {
    return given.kind == Given::kFormula || given.kind == Given::kFormulaTensor || given.kind == Given::kFormulas;
  };
  auto is_number = [](const Gave& gave) { return gave.kind == Gave::kNumber; };
  auto loans = loans_for(step);
  if (program_->is_unplanned(step)) return unplanned_kernel(call, *program_, index, unplanned_, std::move(loans));
  if (std::any_of(step.gave.begin(), step.gave.end(), is_number)) {
    return number_kernel(call, step, numbers_, std::move(loans));
  }
  if (std::any_of(step.given.begin(), step.given.end(), is_formula)) {
    return formula_kernel(call, step, numbers_, std::move(loans));
  }
  if (loans != nullptr) return prepare_boxed(call, std::move(loans));
  // The boxed kernel checks the sizes of its results at each run.
  return step.op->varying || has_bits(call) ? prepare_boxed(call) : nullptr;
}

BoundKernel Graph::bind(size_t index, const std::vector<int64_t>& lasts, const Stays* stays) {
  const Step& step = program_->steps()[index];
  BoundKernel bound{nullptr, step.index, static_cast<int64_t>(index), {}, {}};
  for (const auto& gave : step.gave) {
    if (gave.kind != Gave::kSlot && gave.kind != Gave::kSlots) bound.lasts.push_back(kForever);
    for (uint32_t slot : gave.slots) {
      bound.lasts.push_back(slot == kNone ? kForever : lasts[program_->slot(slot).storage]);
    }
  }
  KernelCall call = call_of(step);
  bool may_use_idle = stays != nullptr && !program_->is_unplanned(step) && moves_much(call);
  if (may_use_idle) call.idle = idle_at(bound.step, *stays);
  bound.kernel = kernel_for(call, step, index);
  if (bound.kernel == nullptr) {
    bound.kernel = prepare(call);
    bound.call = std::move(call);
  }
  return bound;
}

std::unique_ptr<Kernel> Graph::bind_generated(const Cluster& cluster) {
  size_t index = 0;
  while (replacing_.all()[index].cluster.get() != &cluster) index++;
  const auto& generated = cluster.replacement->generated;
  std::vector<void*> pointers;
  for (const auto& pointer : generated->pointers) {
    char* base = pointer.slot < 0 ? memory_.scratch[index][pointer.scratch]
                                  : static_cast<char*>(tensor(cluster.slots[pointer.slot]).mutable_data_ptr());
    pointers.push_back(base + pointer.offset);
  }
  return generated_kernel(generated, std::move(pointers));
}

BoundKernel Graph::bind_replaced(const Replaced& replaced, const std::shared_ptr<Lowering>& lowering) {
  const auto& cluster = *replaced.cluster;
  auto generated = bind_generated(cluster);
  BoundKernel bound{nullptr, program_->steps()[cluster.begin].index, cluster.begin, {}, {}};
  if (replaced.used) {
    bound.kernel = std::move(generated);
    return bound;
  }
  std::vector<BoundKernel> alone;
  for (int64_t i = cluster.begin; i < cluster.end; i++) alone.push_back(bind(i, memory_.lasts));
  fuse(alone);
  std::vector<std::unique_ptr<Kernel>> exact;
  for (auto& one : alone) exact.push_back(std::move(one.kernel));
  TrialMemory memory;
  for (uint32_t slot : cluster.outputs) memory.outputs.push_back(tensor(slot));
  for (uint32_t slot : cluster.written) memory.written.push_back(tensor(slot));
  bound.kernel = trial_kernel(lowering, replaced.cluster, std::move(exact), std::move(generated), std::move(memory));
  return bound;
}

std::vector<std::pair<std::string, size_t>> Graph::kernels_by_layer() const {
  std::vector<std::pair<std::string, size_t>> counts;
  for (const auto& kernel : sequence_.kernels) {
    std::string layer = kernel->layer();
    auto found = std::find_if(counts.begin(), counts.end(), [&](const auto& one) { return one.first == layer; });
    if (found == counts.end()) found = counts.insert(counts.end(), {layer, 0});
    found->second++;
  }
  return counts;
}

size_t Graph::output_bytes() const {
  size_t bytes = 0;
  for (const auto& output : memory_.outputs) bytes += output.range.end - output.range.begin;
  for (const auto& range : memory_.saved) bytes += range.end - range.begin;
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
  if (sequence.bytes > pool_->reached()) pool_->reach(sequence.bytes);  // Pool::trim() has given its memory back
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
